"""The producer's four accounts, on a clock that stands still unless it is told."""

from __future__ import annotations

import pytest

from stream_rl.producer.account import ProducerAccount


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def busy(states: dict[str, float]) -> dict[str, float]:
    return {state: seconds for state, seconds in states.items() if seconds}


def test_two_rollouts_in_four_places() -> None:
    clock = Clock()
    account = ProducerAccount(capacity=4, clock=clock)
    clock.now = 1.0  # all wait for a lease
    with account.rollout(), account.rollout():
        with account.entering("shop"):
            clock.now = 2.0  # one waits for a place, one renders
        with account.generating():
            clock.now = 4.0  # one generates
            with account.acting("shop"):
                clock.now = 8.0  # one generates, one acts
        with account.acting("shop"):
            clock.now = 16.0
    with account.sending():
        clock.now = 32.0
    with account.writing():
        clock.now = 64.0
    assert busy(account.lap()) == {
        "wait_for_lease": 1.0, "environment": 1.0 + 8.0, "generate": 6.0, "wait_for_credit": 16.0, "write": 32.0
    }  # fmt: skip
    parts = account.parts_lap()
    assert busy(parts["generator"]) == {"generate": 6.0, "write": 32.0, "idle": 26.0}
    assert busy(parts["environment/shop"]) == {"wait_for_place": 1.0, "compute": 12.0, "idle": 51.0}
    slots = account.slots_lap()
    assert busy(slots) == {
        "wait_for_place": 1.0, "generate": 6.0, "environment": 12.0, "other": 1.0 + 2.0 + 8.0, "wait_for_credit": 16.0,
        "write": 32.0, "wait_for_lease": 4.0 + 2 * 15.0 + 3 * 16.0 + 3 * 32.0,
    }  # fmt: skip
    assert sum(slots.values()) == 4 * 64.0


@pytest.mark.parametrize(
    ("drained", "role", "slots"),
    [
        (
            False,
            {"paused_for_sync": 2.0, "generate": 6.0},
            {"paused_for_sync": 2.0, "generate": 6.0, "environment": 8.0},
        ),
        (True, {"paused_for_sync": 8.0}, {"paused_for_sync": 16.0, "environment": 8.0}),
    ],
)
def test_only_the_pause_of_an_update_is_paused(drained: bool, role: dict[str, float], slots: dict[str, float]) -> None:
    """An update takes 8 s, 2 of them a pause. One rollout is in the generator meanwhile, one in its world, one is free.

    A drained producer has no rollout; the two here show what would be counted if it had. Its free place is held back.
    """
    clock = Clock()
    account = ProducerAccount(capacity=3, clock=clock)
    with account.rollout(), account.rollout(), account.generating(), account.acting("shop"):
        with account.updating(drained=drained) as pause:
            clock.now = 5.0
            assert not busy(account.lap())  # nobody knows yet what these seconds were
            clock.now = 8.0
            pause.seconds = 2.0
        assert busy(account.lap()) == role
        found = busy(account.slots_lap())
    found.pop("wait_for_lease", None)
    assert found == slots


def test_an_update_that_failed_was_a_pause_as_far_as_is_known() -> None:
    clock = Clock()
    account = ProducerAccount(capacity=1, clock=clock)

    def fail() -> None:
        with account.updating(drained=False):
            clock.now = 3.0
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert busy(account.lap()) == {"paused_for_sync": 3.0}
