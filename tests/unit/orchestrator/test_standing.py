"""What a run says it is doing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.standing import doing


def _state(gate: Gate, *, phase: str = "training", running: int = 0, **over: Any) -> Any:
    fields = {"paused": False, "stopping": None} | over
    return SimpleNamespace(
        phase=SimpleNamespace(state=phase), fleet=SimpleNamespace(running=running), gate=gate, **fields
    )


def _gate(admitted: int) -> Gate:
    """Two rounds of two groups, both open at once."""
    gate = Gate(depth=1, candidates=2, last_round=2)
    for i in range(admitted):
        gate.admit(f"g{i}")
    return gate


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (_state(_gate(3), running=8), "training"),
        (_state(_gate(4), running=8), "rolling out the last rounds"),
        (_state(_gate(4)), "training the last rounds, nothing more to roll out"),
        (_state(_gate(4), phase="evaluating"), "evaluating"),
        (_state(_gate(1), paused=True, running=8), "paused, 8 rollouts end first"),
        (_state(_gate(1), paused=True, phase="paused"), "paused"),
        (_state(_gate(1), paused=True, phase="stopping", stopping="asked to stop"), "stopping"),
    ],
)
def test_a_run_that_rolls_nothing_out_says_why(state: Any, told: str) -> None:
    assert doing(state) == told


def test_a_discarded_group_of_a_last_round_is_rolled_out_again() -> None:
    gate = _gate(4)
    told = [gate.filled]
    gate.discard("g3")
    assert [*told, gate.filled] == [True, False]
    assert gate.open_round == 1


def test_rounds_that_are_not_open_yet_are_not_filled() -> None:
    gate = Gate(depth=0, candidates=1, last_round=2)
    gate.admit("a")
    told = [gate.filled]
    gate.round_live(0)
    gate.admit("b")
    assert [*told, gate.filled] == [False, True]
