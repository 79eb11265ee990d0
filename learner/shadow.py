"""Copies of the policy that no optimiser moves: the start policy, and its moving average."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from learner.batch import ForwardPass
from learner.checkpoint_state import CheckpointUnusable
from learner.logprobs import EntropyMode, TokenScores
from learner.policy import PolicyModel, run_forward
from learner.weights import safetensors
from learner.weights.port import TensorSpec


class Shadow:
    """A policy that scores and is never trained. A whole copy on every rank, under ZeRO 3 too."""

    def __init__(self, policy: PolicyModel, device: torch.device) -> None:
        self._policy = policy.to(device).eval().requires_grad_(False)
        self._device = device

    @torch.no_grad()
    def score(self, forward: ForwardPass, *, entropy: EntropyMode, support: int | Tensor = 0) -> TokenScores:
        """See `Scorer`. Never with a graph."""
        return run_forward(self._policy, forward, self._device, entropy=entropy, support=support)


class MovingAverage(Shadow):
    """The exponential moving average of the policy's trained parameters, kept in float32.

    Of adapters the factors are averaged, and the base stays as it is.

    In half precision an average would stand still: (1 - decay) of a change is below its resolution.
    """

    def __init__(self, policy: PolicyModel, device: torch.device) -> None:
        self._names = [name for name, _ in policy.trained()]
        super().__init__(policy, device)  # moves and freezes them
        named = dict(self._policy.causal_lm.named_parameters())
        self._parameters: list[Tensor] = [named[name].detach() for name in self._names]
        self._averages = [p.float() for p in self._parameters]  # of float32 parameters, they themselves

    @property
    def specs(self) -> Sequence[TensorSpec]:
        """Name, dtype and shape of every average."""
        return [
            TensorSpec(name=name, dtype=average.dtype, shape=tuple(average.shape))
            for name, average in zip(self._names, self._averages, strict=True)
        ]

    @torch.no_grad()
    def follow(self, parameters: Iterable[Tensor], *, decay: float) -> None:
        """average <- decay * average + (1 - decay) * parameter, for the policy's parameters in the model's order."""
        for average, parameter in zip(self._averages, parameters, strict=True):
            average.lerp_(parameter.to(average), 1 - decay)
        self._use_averages()

    def save(self, path: Path) -> None:
        """Write the averages."""
        safetensors.write(path, self.specs, (average.cpu() for average in self._averages))

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Read what `save` wrote. Raises `CheckpointUnusable`."""
        try:
            with safe_open(path, framework="pt") as file:
                for name, average in zip(self._names, self._averages, strict=True):
                    average.copy_(file.get_tensor(name))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise CheckpointUnusable(f"{path}: the teacher's moving average cannot be read: {error}") from error
        self._use_averages()

    def _use_averages(self) -> None:
        for parameter, average in zip(self._parameters, self._averages, strict=True):
            if parameter is not average:
                parameter.copy_(average)
