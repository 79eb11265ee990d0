"""What a sink is given, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one update or of one held-out evaluation.

    >>> Point(step=3, scalars={"success/train": 0.5}, record={"step": 3, "success": {"train": 0.5}}).held_out
    False
    """

    step: int  # the update's number, from 0; of an evaluation the version that was evaluated
    scalars: Mapping[str, float]  # "lag/max" -> value; of an evaluation every name begins with "eval/"
    record: Mapping[str, Any]  # the line of metrics.jsonl or eval.jsonl it was made from
    held_out: bool = False  # it is an evaluation


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The run a sink writes about."""

    name: str  # of its folder
    run_id: str  # random, the same after a resume
    folder: Path  # `runs/NAME`
    config: Mapping[str, Any]  # resolved, as plain values, without secrets
    resumed_at: int | None = None  # updates from this one on are trained again; None: the run is new
    kept_evaluation: Point | None = None  # of version `resumed_at`: made before, and not made again


class Sink(Protocol):
    """Blocking calls, all from one thread, which also made it. Whatever they raise ends the sink and nothing else."""

    def write(self, point: Point) -> None:
        """Take one point. Points come in order; after a resume steps are repeated from `RunFacts.resumed_at` on."""
        ...

    def close(self) -> None:
        """Write out what is held back, and release everything."""
        ...
