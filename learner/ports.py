"""What an update needs of the things that hold parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from learner.batch import ForwardPass
from learner.logprobs import EntropyMode, TokenScores


class Scorer(Protocol):
    """Parameters that can be asked what they think of given tokens."""

    def score(self, forward: ForwardPass, *, entropy: EntropyMode, support: int | Tensor = 0) -> TokenScores:
        """Run one forward pass, [targets]; `support` as in `learner.logprobs.token_scores`."""
        ...


class Engine(Scorer, Protocol):
    """Parameters that are trained, and their optimiser. Every call is made by all ranks.

    `score` gives a graph if gradients are on.
    """

    @property
    def rank(self) -> int:
        """This process, 0 .. num_ranks - 1."""
        ...

    @property
    def num_ranks(self) -> int:
        """Processes that train together."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tensors must be."""
        ...

    def sum_over_ranks(self, values: Sequence[float]) -> Sequence[float]:
        """Element-wise sum over ranks, in float64."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of this rank's share of the loss; the shares of all ranks are summed, not averaged."""
        ...

    def step(self) -> float:
        """Clip, step, clear; returns the gradient norm before clipping."""
        ...
