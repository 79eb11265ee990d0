"""What a learner process is started with."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from stream_rl.config import Algorithm, Learner, Weights


class LearnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The same for every rank; plain data, so that a launcher can pass it as JSON."""

    run_id: str  # written into manifests and checkpoints
    run_dir: str  # checkpoints go to `run_dir/checkpoints`
    model: str  # folder, or hub name in the local cache
    weights_dir: str  # where versions are published
    seed: int  # order of trajectories in mini-batches
    temperature: float  # rollouts are sampled at it, so log-probabilities are taken at it
    max_model_len: int  # longest sequence the generators take; longer teacher sequences are dropped
    episode_tokens: int  # most tokens one trajectory can sample (turns x tokens): divisor of `dr_grpo`
    max_lag: int  # groups older than this many updates are refused
    keep_versions: int = 2  # published files kept; the learner may be that far ahead of a generator
    algorithm: Algorithm = Algorithm()  # `[algorithm]`
    learner: Learner = Learner()  # `[learner]`
    weights: Weights = Weights()  # `[weights]`; its directory is `weights_dir`
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the parameters
    resume_from: str | None = None  # checkpoint folder; None: start from `model` at version 0

    @property
    def digest(self) -> str:
        """Of what decides the course of training; places and names are left out."""
        parts = (self.model, self.seed, self.temperature, self.algorithm, self.learner, self.dtype)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]
