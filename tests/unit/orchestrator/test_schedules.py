"""The whole orchestrator in virtual time under random schedules. Ten thousand: `python -m benchmarks.schedules`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stream_rl.config import from_dict
from stream_rl.orchestrator import production
from stream_rl.orchestrator.fleet import Fleet, ProducerState
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.group_row import GroupRow
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.production import Production
from stream_rl.orchestrator.rerolls import Reroll, Rerolls, reroll
from stream_rl.orchestrator.tally import Tally
from tests.unit.orchestrator.virtual.play import ScheduleFailed, play
from tests.unit.orchestrator.virtual.schedule import Life, Schedule, Weather

_CALM = Weather(
    num_producers=2,
    capacity=64,
    late_s=0.0,
    turn_s=0.3,
    tail=3.0,
    max_turns=1,
    member_fails_p=0.0,
    group_fails_p=0.0,
    silent_p=0.0,
    old_tokens_p=0.0,
    twice_p=0.0,
    producer_life_s=math.inf,
    update_s=0.2,
    update_fails_p=0.0,
    update_hangs_p=0.0,
    cut_every_s=math.inf,
    dark=(math.inf, math.inf),
    train_s=8.0,
    publish_s=0.0,
    refused_p=0.0,
    judge_s=0.0,
    abstains_p=0.0,
    judge_out=(math.inf, math.inf),
    ledger_s=0.0,
)


def _calm(lives: tuple[Life, ...] = (), weather: dict[str, Any] | None = None, **over: Any) -> Schedule:
    """Nothing goes wrong, and generation is much faster than the learner."""
    groups = {"per_update": 2, "candidates": 3, "size": 2, "deadline_s": 60.0, **over.pop("groups", {})}
    tree = {
        "updates": 6,
        "async_depth": 1,
        "groups": groups,
        "algorithm": {"selection": "random"},
        "eval": {"every": 0},
        "stall_s": 900.0,
        **over,
    }
    return Schedule(
        seed=0,
        config=from_dict(tree),
        weather=msgspec.structs.replace(_CALM, **(weather or {})),
        lives=(*lives, Life(end="complete")),
        wishes=(),
        judged=False,
        threaded=False,
    )


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_everything_holds_in_random_schedules(first: int) -> None:
    for seed in range(first, first + 15):
        played = play(seed)
        assert played.ends[-1] == "complete"
        assert played.max_lag <= played.bound or not played.honest


def test_a_schedule_is_the_same_every_time() -> None:
    assert play(0) == play(0)


@pytest.mark.parametrize("depth", range(5))
def test_where_generation_outpaces_training_the_lag_sits_at_the_depth(depth: int) -> None:
    """Round S is leased at version 0, long before the first update ends: lag S. Nothing is ever older."""
    played = play(_calm(async_depth=depth))
    assert played.max_lag == played.bound == depth
    assert played.trained == 6 * 2
    assert played.discarded == {"not_selected": 6 * (3 - 2)}


def test_max_lag_below_the_depth_is_the_bound() -> None:
    assert play(_calm(async_depth=4, max_lag=2)).max_lag == 2


@pytest.mark.parametrize("committed", [False, True])
def test_killed_at_any_ledger_call_nothing_is_lost_and_nothing_trained_twice(committed: bool) -> None:
    """What is checked at the end of every schedule, with the orchestrator killed at one of its calls after another.

    Two updates of two groups take 36 calls; every third one is tried.
    """
    for call in range(1, 37, 3):
        life = Life(end="killed", after_calls=call, committed=committed)
        played = play(
            _calm((life,), updates=2, groups={"per_update": 2, "candidates": 2}, learner={"checkpoint_every": 1})
        )
        assert played.trained == 4


def test_what_the_learner_refuses_is_rolled_again_in_its_round_also_after_a_resume() -> None:
    """Every second group is refused, and the learner dies without a checkpoint: all updates are done again."""
    died = Life(end="learner_died", after_s=25.0)
    played = play(_calm((died,), weather={"refused_p": 0.5}, learner={"checkpoint_every": 0}))
    assert played.ends == ("learner_died", "complete")
    assert played.rerolled == played.discarded["the script says so"] > 0
    assert played.trained == 6 * 2
    assert played.discarded["not_selected"] == 6 * (3 - 2)


# The checks find what they look for: each of these breaks one rule of the orchestrator.


def _opens_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_round(gate: Gate) -> int | None:
        rounds = range(gate.version, min(gate.version + gate.depth + 2, 6))
        return next((r for r in rounds if not gate.is_full(r)), None)

    monkeypatch.setattr(Gate, "open_round", property(open_round))


def _leases_to_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Fleet.choose

    def anyone(fleet: Fleet, rollouts: int, *, version: int) -> ProducerState | None:
        return choose(fleet, rollouts, version=0)

    monkeypatch.setattr(Fleet, "choose", anyone)


def _refills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    was_full: set[int] = set()

    def open_round(gate: Gate) -> int | None:
        rounds = range(gate.version, min(gate.version + gate.depth + 1, 6))
        was_full.update(r for r in rounds if gate.is_full(r))
        return next((r for r in rounds if r not in was_full), None)

    monkeypatch.setattr(Gate, "open_round", property(open_round))


def _rolls_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next task of the order takes the place, as if nothing were owed."""
    monkeypatch.setattr(Rerolls, "take", lambda rerolls, round_: None)


def _owes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def discard(ledger: Ledger, group_id: str, reason: str, at: float) -> None:
        with ledger._transaction():
            ledger._advance(group_id, "discarded", at, reason)

    monkeypatch.setattr(Ledger, "discard", discard)
    monkeypatch.setattr(Rerolls, "take", lambda rerolls, round_: None)


def _rolls_another_world_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(row: GroupRow, seed: int) -> Reroll:
        found = reroll(row, seed)
        name = "barn" if row.task.environment == "attic" else "attic"
        task = msgspec.structs.replace(found.ticket.task, environment=name)
        return msgspec.structs.replace(found, ticket=msgspec.structs.replace(found.ticket, task=task))

    monkeypatch.setattr(production, "reroll", another)


def _counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def discard(tally: Tally, flight: Flight, reason: str) -> None:
        pass

    monkeypatch.setattr(Tally, "discard", discard)


def _forgets_lost_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(production: Production, group_id: str) -> None:
        pass

    monkeypatch.setattr(Production, "lost", lost)


def _never_leases_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Production, "_next_again", lambda production: None)


@pytest.mark.parametrize(
    ("fault", "weather", "says"),
    [
        (_opens_too_far, {}, r"joined round 2 at version 0"),
        (_leases_to_anyone, {"producer_life_s": 20.0, "update_s": 5.0, "turn_s": 5.0}, r"leased in vain"),
        (_refills_nothing, {"group_fails_p": 0.3}, r"no progress"),
        (_rolls_nothing_again, {"refused_p": 0.3}, r"\(the script says so\) was rolled again as \[\]"),
        (_owes_nothing, {"group_fails_p": 0.3}, r"discarded groups that have no re-roll"),
        (_rolls_another_world_again, {"refused_p": 0.3}, r"of \('attic', \d+, \d\) was rolled again as .*'barn'"),
        (_counts_nothing, {"group_fails_p": 0.3}, r"counted as discarded: {}"),
        (_forgets_lost_groups, {"dark": (4.0, 5.0), "turn_s": 20.0}, r"nobody rolls out"),
        (_never_leases_again, {"dark": (4.0, 5.0), "turn_s": 20.0}, r"no progress"),
    ],
)
def test_the_checks_find_a_broken_rule(
    fault: Callable[[pytest.MonkeyPatch], None], weather: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(ScheduleFailed, match=says):
        play(_calm(weather=weather, environments=[{"name": "attic"}, {"name": "barn"}]))
