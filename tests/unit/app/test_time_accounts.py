"""Every second of every role in its right state: whole runs at a known pace, and one part of them made slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.app.whole_stream import GROUPS, ROLLOUTS, TURNS, Pace, play

DELAY_S = 8.0  # of an update, whatever is slow
UPDATES = 5
TOLERANCE = 0.05  # of the delay
WAITS = {"rollout_wait", "judge_wait", "wait_for_lease", "idle"}

Accounts = dict[tuple[str, str], float]


def seconds(lines: list[dict[str, Any]]) -> Accounts:
    """Seconds of an update by role and state, in the mean over all updates but the first."""
    total: Counter[tuple[str, str]] = Counter()
    for line in lines[1:]:
        learner = {part.removesuffix("_s"): s for part, s in line["learner"].items() if part != "total_s"}
        slots = {f"slots of {name}": states for name, states in line["slots"].items()}
        for role, states in {"learner": learner, **line["roles"], **slots}.items():
            for state, s in states.items():
                if role != "weights":
                    total[role, state] += s
    return {key: s / (len(lines) - 1) for key, s in total.items()}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Accounts:
    return seconds(play(tmp_path_factory.mktemp("usual") / "run", Pace(), updates=UPDATES))


def test_an_update_at_depth_0_is_worked_out_by_hand(usual: Accounts) -> None:
    """Nothing overlaps: 3 turns of 1 s and 3 answers of 0.25 s, a verdict, prox, training, publishing, loading."""
    near = pytest.approx
    assert usual["learner", "rollout_wait"] == near(0.125 + 3 * (1.0 + 0.25))
    assert usual["learner", "judge_wait"] == near(0.5)
    assert usual["learner", "prox"] == near(0.5)
    assert usual["learner", "train"] == near(2.0)
    assert usual["learner", "publish"] == near(0.25)
    assert usual["learner", "other"] == near(0.0)
    update_s = 0.125 + 3.75 + 0.5 + 2.75
    assert sum(s for (role, _), s in usual.items() if role == "learner") == near(update_s)
    rollouts = GROUPS * ROLLOUTS
    for role, state, expected in (
        ("producer-0", "generate", 3.0),
        ("producer-0", "environment", 0.75),
        ("producer-0", "paused_for_sync", 0.125),
        ("producer-0/generator", "generate", 3.0),
        ("producer-0/generator", "paused_for_sync", 0.125),
        ("producer-0/environment/household", "compute", 0.75),
        ("judging", "asking", 0.5),
        ("slots of producer-0", "generate", rollouts * 3.0),
        ("slots of producer-0", "environment", rollouts * 0.75),
        ("slots of judging", "asking", rollouts * 0.5),
    ):
        assert usual[role, state] == near(expected, rel=0.05), (role, state)


def test_shares_of_every_role_and_update_add_up(tmp_path: Path) -> None:
    for line in play(tmp_path / "run", Pace(ledger_s=0.015625), depth=1, updates=4):
        learner = line["learner"]
        assert sum(s for part, s in learner.items() if part != "total_s") == pytest.approx(learner["total_s"])
        assert set(line["roles"]) - {"weights"} == {
            "orchestrator",
            "judging",
            "producer-0",
            "producer-0/generator",
            "producer-0/environment/household",
        }
        assert all(s >= -1e-9 for states in line["roles"].values() for s in states.values())
        # The accounts of the orchestrator's process are cut where the line is: they cover the same time.
        own = [sum(line["roles"][role].values()) for role in ("orchestrator", "judging")]
        assert own[0] == pytest.approx(own[1])
        assert line["cost"]["device_s"]["orchestrator"] == pytest.approx(own[0], abs=0.1)


@pytest.mark.parametrize(
    ("slow", "works", "waits"),
    [
        (
            {"judge_s": 0.5 + DELAY_S},
            {("judging", "asking"): 1, ("slots of judging", "asking"): GROUPS * ROLLOUTS},
            "judge_wait",
        ),
        (
            {"step_s": 0.25 + DELAY_S / TURNS},
            {
                ("producer-0", "environment"): 1,
                ("producer-0/environment/household", "compute"): 1,
                ("slots of producer-0", "environment"): GROUPS * ROLLOUTS,
            },
            "rollout_wait",
        ),
        (
            {"turn_s": 1.0 + DELAY_S / TURNS},
            {
                ("producer-0", "generate"): 1,
                ("producer-0/generator", "generate"): 1,
                ("slots of producer-0", "generate"): GROUPS * ROLLOUTS,
            },
            "rollout_wait",
        ),
        ({"train_s": 2.0 + DELAY_S}, {("learner", "train"): 1}, None),
        ({"prox_s": 0.5 + DELAY_S}, {("learner", "prox"): 1}, None),
        ({"publish_s": 0.25 + DELAY_S}, {("learner", "publish"): 1}, None),
        (
            {"load_s": 0.125 + DELAY_S},
            {("producer-0", "paused_for_sync"): 1, ("producer-0/generator", "paused_for_sync"): 1},
            "rollout_wait",
        ),
    ],
    ids=["judge", "environment", "generator", "learner", "prox", "publish", "load"],
)
def test_what_is_slow_shows_in_its_own_state_and_only_there(
    tmp_path: Path, usual: Accounts, slow: dict[str, float], works: dict[tuple[str, str], int], waits: str | None
) -> None:
    """8 s an update more, in one part. `works`: the states of that part, with how many did it at once; `waits`: what
    the learner waits for meanwhile. The others wait in the states in which they wait."""
    accounts = seconds(play(tmp_path / "run", msgspec.structs.replace(Pace(), **slow), updates=UPDATES))
    changed = {key: accounts[key] - usual.get(key, 0.0) for key in accounts}
    for key, at_once in works.items():
        assert changed[key] == pytest.approx(at_once * DELAY_S, rel=TOLERANCE), key
    for part in ("rollout_wait", "judge_wait"):
        assert changed["learner", part] == pytest.approx(DELAY_S if part == waits else 0.0, abs=TOLERANCE * DELAY_S)
    for (role, state), more in changed.items():
        if (role, state) not in works and state not in WAITS:
            assert more == pytest.approx(0.0, abs=TOLERANCE * DELAY_S), (role, state)


def test_a_slow_ledger_is_the_orchestrators_and_nobody_elses_work(tmp_path: Path, usual: Accounts) -> None:
    accounts = seconds(play(tmp_path / "run", Pace(ledger_s=0.125), updates=UPDATES))
    assert usual["orchestrator", "ledger"] == 0.0
    # A group: leased, two rollouts, produced, two verdicts, judged.
    # A round: four selections, trained, published, live, memory.
    calls = GROUPS * 7 + 4 + 1 + 1 + 1 + 1
    assert accounts["orchestrator", "ledger"] == pytest.approx(calls * 0.125, rel=TOLERANCE)
    for role, state in (("learner", "train"), ("producer-0", "environment"), ("judging", "asking")):
        assert accounts[role, state] <= usual[role, state] * (1 + TOLERANCE) + calls * 0.125 * (role == "judging")


def test_what_training_hides_is_nobodys_wait(tmp_path: Path) -> None:
    """At depth 1 rollouts (3.75 s), verdict and loading fit into an update of 8.75 s: the learner waits for none."""
    accounts = seconds(play(tmp_path / "run", Pace(train_s=8.0), depth=1, updates=UPDATES))
    assert accounts["learner", "rollout_wait"] + accounts["learner", "judge_wait"] == pytest.approx(0.0, abs=0.01)
    rolled = (UPDATES - 2) / (UPDATES - 1)  # beside the last update there is no round left to roll out
    assert accounts["judging", "asking"] == pytest.approx(rolled * 0.5, rel=TOLERANCE)
    assert accounts["producer-0", "generate"] == pytest.approx(rolled * 3.0, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("write_s", "publishing_s"),
    [(2.0, 0.0), (12.0, 12.0 - 8.5)],
    ids=["fits into the next update", "takes longer than one"],
)
def test_a_version_is_written_beside_the_next_update(tmp_path: Path, write_s: float, publishing_s: float) -> None:
    """An update computes for 8.5 s. What writing takes beyond that is all that the learner is held up by."""
    lines = play(tmp_path / "run", Pace(train_s=8.0, publish_s=write_s), depth=2, updates=6)
    for line in lines[3:]:  # rounds that were there from the start are behind
        assert line["learner"]["publish_s"] == pytest.approx(publishing_s, abs=0.01)
        assert line["learner"]["rollout_wait_s"] + line["learner"]["judge_wait_s"] == pytest.approx(0.0, abs=0.01)
        assert line["learner"]["total_s"] == pytest.approx(8.5 + publishing_s, abs=0.01)
        assert line["roles"]["weights"]["write_s"] == pytest.approx(write_s)
    assert max(line["lag"]["max"] for line in lines) <= 2


@pytest.mark.parametrize(
    ("pace", "origin"),
    [
        # Version 2 is made an update (4 s) after version 1 went live and the group of round 2 was leased.
        (Pace(turn_s=2.0, step_s=0.0, judge_s=0.25, train_s=3.25), "generation"),  # 6 s for the rollouts
        (Pace(turn_s=0.25, step_s=0.0, judge_s=6.0, train_s=3.25), "judge"),  # 0.75 s, then 6 s for the verdict
        (Pace(turn_s=0.25, step_s=0.0, judge_s=0.25, train_s=3.25), "learner"),  # all is there after a second
    ],
    ids=["generation", "judge", "learner"],
)
def test_lag_arises_where_the_group_was_when_the_update_was_made(tmp_path: Path, pace: Pace, origin: str) -> None:
    lines = play(tmp_path / "run", pace, depth=1, updates=4)
    for line in lines:
        arose = sum(int(lag) * n for groups in line["lag"]["by_origin"].values() for lag, n in groups.items())
        assert arose == sum(int(lag) * n for lag, n in line["lag"]["histogram"].items())
    assert lines[2]["lag"]["histogram"] == {"1": GROUPS}
    assert lines[2]["lag"]["by_origin"][origin] == {"1": GROUPS}


def test_levels_and_device_seconds_of_an_update(tmp_path: Path) -> None:
    """At depth 0 all 4 permits are taken from the lease to live weights, which is all the time but for the start."""
    lines = play(tmp_path / "run", Pace(), updates=4)
    update_s = 0.125 + 3.75 + 0.5 + 2.75
    for line in lines[1:]:
        levels, devices = line["levels"], line["cost"]["device_s"]
        assert levels["permits_taken"] == {"mean": pytest.approx(4.0), "max": 4}
        assert levels["permits_free"]["mean"] == pytest.approx(0.0)
        assert levels["rollouts"]["mean"] == pytest.approx(GROUPS * ROLLOUTS * 3.75 / update_s, rel=0.01)
        assert levels["groups_produced"]["mean"] == pytest.approx(GROUPS * 0.5 / update_s, rel=0.01)
        assert devices["learner"] == devices["generators"] == pytest.approx(update_s)
