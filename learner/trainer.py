"""One rank's trainer: parameters, optimiser, versions, files. Blocking.

All ranks make the same calls in one order: `update`, `take`, `end_update`. `write` is rank 0's alone, and may run in
another thread beside the update that follows, up to that update's `take`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from learner import checkpoint
from learner.distributed import TrainRound, World
from learner.engine import DeepSpeedEngine
from learner.hint_choice import HintsChosen, choose_hints
from learner.lora import add_adapters
from learner.metrics import choice_metrics, response_metrics, update_metrics
from learner.objective import Objective
from learner.options import LearnerOptions
from learner.policy import PolicyModel, load_policy, model_folder
from learner.ports import Scorer
from learner.rows import HeadRenderer, build_rows
from learner.shadow import MovingAverage, Shadow
from learner.update import run_update
from learner.weights.files import FilesPublisher
from learner.weights.host_copy import HostCopy
from stream_rl.model_folder import fingerprint_of
from stream_rl.observe.cpu import CpuClock
from stream_rl.types import AdapterRecord, WeightsManifest


class UpdateEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to say of an update once its version is taken."""

    checkpoint: str | None  # folder, if one was due
    cpu_s: float  # CPU seconds of all ranks since the update before ended


class Trainer:
    """Trains, publishes and checkpoints.

    `weights_address` is where generators get versions from, for transports other than `files`.
    """

    def __init__(self, options: LearnerOptions, world: World, weights_address: str = "") -> None:
        torch.set_num_threads(options.learner.threads)
        torch.manual_seed(options.seed)
        self._options = options
        self._world = world
        self._model_folder = model_folder(options.model)
        rank = options.learner.lora_rank
        self._adapter = (
            AdapterRecord(rank=rank, alpha=options.learner.lora_alpha, base=fingerprint_of(self._model_folder))
            if rank
            else None
        )
        algorithm = options.algorithm
        taught = algorithm.distillation != "none"
        needs_start_policy = algorithm.kl_coef > 0 or (taught and algorithm.teacher == "frozen")
        start_policy = Shadow(self._load_policy(), world.device) if needs_start_policy else None
        self._reference: Scorer | None = start_policy if algorithm.kl_coef > 0 else None
        self._average = (
            MovingAverage(self._load_trained(), world.device) if taught and algorithm.teacher == "ema" else None
        )
        # Who reads the hints; None: the policy itself.
        self._teacher: Scorer | None = start_policy if algorithm.teacher == "frozen" else self._average
        self._engine = DeepSpeedEngine(self._load_trained(), options.learner, world, dtype=options.dtype)
        self._specs = self._engine.specs
        self._objective = Objective(
            algorithm=algorithm,
            episode_tokens=options.episode_tokens,
            token_budget=options.learner.token_budget,
            mini_batches=options.learner.mini_batches,
        )
        self._renderer = _renderer(self._model_folder) if taught else None
        dtype = None if options.weights.dtype == "policy" else getattr(torch, options.weights.dtype)
        self._taken = HostCopy(dtype)
        self._taken_version = 0
        self._publisher = (
            FilesPublisher(
                Path(options.weights_dir),
                options.run_id,
                keep=options.keep_versions,
                dtype=dtype,
                transport=options.weights.transport,
                address=weights_address,
                adapter=self._adapter,
            )
            if world.rank == 0
            else None
        )
        self.version = 0  # of the parameters
        if options.resume_from is not None:
            self.version = checkpoint.load(
                self._engine,
                world,
                Path(options.resume_from),
                run_id=options.run_id,
                zero_stage=options.learner.zero_stage,
                teacher=self._average,
                adapter=self._adapter,
            ).version
        self._cpu = CpuClock("learner")  # after all of the start

    def publish(self) -> WeightsManifest | None:
        """Publish the current parameters. The manifest is on rank 0."""
        self.take()
        return None if self._publisher is None else self.write()

    def take(self) -> None:
        """Copy the current parameters to the host, on rank 0, whose last `write` has returned."""
        if self._publisher is None:
            for _ in self._engine.full_parameters():
                pass
        else:
            self._taken.take(self._engine.full_parameters())
            self._taken_version = self.version

    def write(self) -> WeightsManifest:
        """Publish what was taken last. On rank 0. Raises `OSError` where it cannot be written."""
        if self._publisher is None:
            raise ValueError(f"rank {self._world.rank} publishes nothing: rank 0 does")
        return self._publisher.publish(self._taken_version, self._specs, self._taken.tensors)

    def update(self, command: TrainRound, enter: Callable[[str], None]) -> dict[str, Any]:
        """Round `command.update` turns version k into k + 1, whether or not it held anything to learn from.

        Returns the update's metrics, without times.
        """
        options = self._options
        enter("unpack")
        groups = command.groups
        renderer = self._renderer if self._objective.teaches(self.version) else None
        chosen = HintsChosen(groups=groups, choices=(), num_tokens=0)
        if renderer is not None:
            enter("teacher")
            chosen = choose_hints(
                self._engine,
                self._teacher,
                groups,
                self._objective,
                renderer=renderer,
                max_model_len=options.max_model_len,
            )
            enter("unpack")
        rows = build_rows(
            chosen.groups,
            version=self.version,
            algorithm=options.algorithm,
            renderer=renderer,
            max_model_len=options.max_model_len,
        )
        sums, norms = run_update(
            self._engine,
            rows.rows,
            self._objective,
            update=self.version,
            seed=(options.seed, self.version),
            enter=enter,
            teacher=self._teacher,
            reference=self._reference,
        )
        sums.add("teacher_tokens", chosen.num_tokens)
        self.version += 1
        if self._average is not None:
            enter("teacher")
            self._average.follow(self._engine.full_parameters(), decay=options.algorithm.teacher_decay)
            enter("other")
        metrics = update_metrics(sums.reduced(self._world.sum), sums.lags, rows, norms)
        metrics["distill"] |= choice_metrics(chosen.choices)
        return metrics | response_metrics([t for group in groups for t in group.trajectories])

    def end_update(self, enter: Callable[[str], None]) -> UpdateEnd:
        """Write a checkpoint if one is due, and close the accounts."""
        every = self._options.learner.checkpoint_every
        folder = None
        if every and self.version % every == 0:
            enter("checkpoint")
            folder = str(self.save())
        enter("other")
        return UpdateEnd(checkpoint=folder, cpu_s=self._world.sum([self._cpu.lap()["learner"]])[0])

    def save(self) -> Path:
        """Write a checkpoint of the current version."""
        return checkpoint.save(
            self._engine,
            self._world,
            Path(self._options.run_dir) / "checkpoints",
            version=self.version,
            run_id=self._options.run_id,
            zero_stage=self._options.learner.zero_stage,
            config_digest=self._options.digest,
            model_folder=self._model_folder,
            teacher=self._average,
            adapter=self._adapter,
        )

    def close(self) -> None:
        """Release the engine and leave the process group."""
        self._engine.close()
        self._world.leave()

    def _load_policy(self) -> PolicyModel:
        options = self._options
        return load_policy(self._model_folder, dtype=options.dtype, temperature=options.temperature)

    def _load_trained(self) -> PolicyModel:
        """The start policy with what is trained of it: everything, or adapters that change nothing yet."""
        policy = self._load_policy()
        if self._adapter is not None:
            add_adapters(
                policy,
                rank=self._adapter.rank,
                alpha=self._adapter.alpha,
                seed=self._options.seed,
                base=self._model_folder,
            )
        return policy


def _renderer(folder: Path) -> HeadRenderer:
    from stream_rl.renderer import load_renderer  # transformers: seconds

    return load_renderer(str(folder))
