"""Written bundles from the producer's message to the learner's hint, with scripted roles and a real ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from stream_rl.config import Config, from_dict
from stream_rl.errors import ConfigError
from stream_rl.messages import TrainLease
from stream_rl.observe.rundir import read_json_lines
from stream_rl.orchestrator.bundling import Bundling, criterion_scores
from stream_rl.orchestrator.choosing import hint_for
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.offer import Offer
from stream_rl.types import Scores, Tag, Trajectory, Verdict, Writing
from tests.unit.orchestrator.test_service import World
from tests.unit.records import flight, trajectory

GOOD = ("search each place once", "open closed places", "take what is asked", "go straight", "finish at once")
BAD = ("look around often", "walk back", "repeat what failed", "carry nothing", "examine everything")
ASKED = "rubric bundles were asked for"


def _config(**over: Any) -> Config:
    tree: dict[str, Any] = {
        "updates": 3,
        "async_depth": 1,
        "groups": {"per_update": 2, "candidates": 2, "size": 4, "deadline_s": 10.0},
        "judge": {"endpoints": [{"url": "http://127.0.0.1:1/v1", "price_in": 1.0, "price_out": 2.0}]},
        "algorithm": {"distillation": "orsd", "rubrics": "written", "bundles": 2},
        "eval": {"every": 0},
        "stall_s": 20.0,
    }
    for key, value in over.items():
        tree[key] = {**tree[key], **value} if isinstance(value, dict) else value
    return from_dict(tree)


class Verifier:
    """Scores GOOD high for members that succeeded and BAD high for those that failed."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.tagged: list[str] = []
        self.missing: frozenset[str] = frozenset()  # criteria it never scores

    async def tag(self, trajectory: Trajectory) -> Verdict:
        self.tagged.append(trajectory.id)
        return Verdict(trajectory_id=trajectory.id, tags=(Tag(rubric="precision.valid_actions", value="abstained"),))

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        self.asked.append((trajectory.id, criteria))
        await anyio.lowlevel.checkpoint()
        return Scores(
            trajectory_id=trajectory.id,
            scores=tuple(
                None if c in self.missing else float((c in GOOD) == (trajectory.reward > 0)) for c in criteria
            ),
            endpoint="http://127.0.0.1:1/v1",
            prompt_tokens=100,
            completion_tokens=10,
        )


def _mixed(world: World) -> None:
    """Two of four members succeed, in every group."""
    world.outcome = lambda lease, member: trajectory(
        lease.group_id, member, success=member % 2 == 0, versions=(world.live["p"],)
    )


def _writes(*bundles: tuple[str, ...], malformed: int = 0) -> Any:
    def written(lease: TrainLease) -> Writing | None:
        assert lease.bundles in (1, 2), ASKED
        return Writing(bundles=bundles[: lease.bundles], malformed=malformed, prompt_tokens=50, sampled_tokens=9)

    return written


async def test_the_bundle_that_goes_with_success_is_what_the_teacher_is_told(tmp_path: Path) -> None:
    verifier = Verifier()
    world = World(_config(), tmp_path, judge=verifier)
    _mixed(world)
    world.written = _writes(BAD, GOOD)
    await world.play()
    groups = [g for round_ in world.rounds.values() for g in round_]
    assert len(groups) == 6
    assert {g.hint_rubrics for g in groups} == {GOOD}
    assert {g.hint for g in groups} == {f"guide : {' . '.join(GOOD)} ."}
    assert not verifier.tagged, "tags are paid for only where a switch reads them"
    assert {criteria for _, criteria in verifier.asked} == {BAD + GOOD}
    lines = list(read_json_lines(world.run_dir.metrics))
    assert all(line["orsd"]["rho_mean"] == pytest.approx(1.0) for line in lines)
    assert all(line["orsd"]["taught_share"] == 1.0 for line in lines)
    assert sum(line["tokens"]["writing"] for line in lines) % (50 + 9) == 0
    assert lines[0]["tokens"]["writing"] >= 2 * 59
    assert lines[0]["judge"]["missing_scores_share"] == 0.0


async def test_groups_that_pass_or_fail_as_a_whole_are_not_scored_and_have_no_teacher(tmp_path: Path) -> None:
    verifier = Verifier()
    world = World(_config(), tmp_path, judge=verifier)
    world.outcome = lambda lease, member: trajectory(lease.group_id, member, success=True, versions=(world.live["p"],))
    world.written = _writes(BAD, GOOD)
    await world.play()
    assert verifier.asked == []
    assert {g.hint for groups in world.rounds.values() for g in groups} == {None}
    lines = list(read_json_lines(world.run_dir.metrics))
    assert all(line["orsd"]["undefined_share"] == 1.0 and line["orsd"]["rho_mean"] is None for line in lines)


@pytest.mark.parametrize(("choice", "told"), [("single", {BAD}), ("random", {BAD, GOOD})])
async def test_baselines_need_no_verifier(tmp_path: Path, choice: str, told: set[tuple[str, ...]]) -> None:
    world = World(_config(judge={"endpoints": []}, algorithm={"bundle_choice": choice}), tmp_path)
    _mixed(world)
    world.written = _writes(BAD, GOOD)
    await world.play()
    hints = {g.hint_rubrics for groups in world.rounds.values() for g in groups}
    assert hints == told  # of six groups; "random" draws by seed and group id


async def test_a_policy_that_writes_nothing_usable_still_trains(tmp_path: Path) -> None:
    world = World(_config(), tmp_path, judge=Verifier())
    _mixed(world)
    world.written = _writes(malformed=2)
    await world.play()
    assert {g.hint for groups in world.rounds.values() for g in groups} == {None}
    lines = list(read_json_lines(world.run_dir.metrics))
    assert len(lines) == 3
    assert lines[-1]["orsd"]["taught_share"] == 0.0


async def test_a_resumed_run_keeps_bundles_and_scores_and_does_not_pay_twice(tmp_path: Path) -> None:
    first_verifier = Verifier()
    first = World(_config(updates=6, async_depth=2), tmp_path, judge=first_verifier)
    _mixed(first)
    first.written = _writes(BAD, GOOD)
    first.on_trained = lambda update: first.stop.set() if update == 1 else None
    await first.play()
    version = [e for e in first.events if e["type"] == "checkpoint"][-1]["version"]
    ledger = Ledger(first.run_dir.ledger, first.run_dir.run_id)
    states = {row.state for row in ledger.groups()}
    kept = {row.group_id: {s.trajectory_id for s in ledger.scores(row.group_id)} for row in ledger.groups()}
    ledger.close()
    second_verifier = Verifier()
    second = World(_config(updates=6, async_depth=2), tmp_path, version=version, judge=second_verifier)
    _mixed(second)
    second.written = _writes(BAD, GOOD)
    await second.play()
    assert any(kept.values())
    assert "selected" in states, states
    leased_again = {lease.group_id for lease in second.leases}
    for group_id, scored in kept.items():
        if group_id not in leased_again:
            assert not scored & {t for t, _ in second_verifier.asked}, "what is scored is not paid for again"
    assert {g.hint_rubrics for groups in second.rounds.values() for g in groups} == {GOOD}
    assert sorted(second.rounds) == list(range(version, 6))
    lines = list(read_json_lines(second.run_dir.metrics))
    assert [line["step"] for line in lines] == list(range(6))
    assert all(line["orsd"]["rho_mean"] == pytest.approx(1.0) for line in lines), "of restored groups, too"
    assert all(line["orsd"]["taught_share"] == 1.0 for line in lines)


def test_a_missing_score_is_left_out_of_the_mean_and_is_not_zero() -> None:
    """Member 0 succeeded and its second criterion is missing: its satisfaction is (1 + 1 + 1 + 1) / 4 = 1, not 0.8."""
    config = _config()
    group = flight("g", (True, False, False))
    bundle = GOOD
    group.offer = Offer(bundles=(bundle,), asked=True)
    rows = [(1.0, None, 1.0, 1.0, 1.0), (0.9, 0.9, 0.9, 0.9, 0.9), (0.0, 0.0, None, 0.0, 0.0)]
    for t, values in zip(group.valid, rows, strict=True):
        group.scores[t.id] = Scores(trajectory_id=t.id, scores=values, endpoint="e")
    alignment = Bundling(config).choose(group)
    # Satisfaction 1, 0.9, 0 against outcomes 1, 0, 0: ranks 3, 2, 1 against 3, 1.5, 1.5. Were the missing score 0,
    # member 0 would stand at 0.8, below member 1, and rho would be 0.
    assert alignment is not None
    assert alignment.rho == pytest.approx(1.5 / (2 * 1.5) ** 0.5)  # covariance 1.5 over sqrt(2 * 1.5)
    group.alignment = alignment
    assert hint_for(group, config.algorithm, ()) == GOOD


def test_scores_of_an_abstaining_verifier_leave_the_group_without_a_teacher() -> None:
    config = _config()
    group = flight("g", (True, False))
    group.offer = Offer(bundles=(GOOD,), asked=True)
    for t in group.valid:
        group.scores[t.id] = Scores(trajectory_id=t.id, scores=(None,) * 5)
    assert criterion_scores(group, GOOD) == {c: [None, None] for c in GOOD}
    group.alignment = Bundling(config).choose(group)
    assert group.alignment is not None
    assert group.alignment.reason == "undefined"
    assert hint_for(group, config.algorithm, ()) is None


def test_the_bank_offers_what_aligned_before() -> None:
    bundling = Bundling(_config(algorithm={"rubric_bank": True}))
    for number in range(3):
        group = flight(f"g{number}", (True, False, True, False), round_=number)
        offer = bundling.offer(group, Writing(bundles=(GOOD, BAD)))
        group.offer = offer
        for t in group.valid:
            values = tuple(float((c in GOOD) == (t.reward > 0)) for c in offer.criteria)
            group.scores[t.id] = Scores(trajectory_id=t.id, scores=values, endpoint="e")
        bundling.learn(group)
    last = bundling.offer(flight("g9", (True, False), round_=3), Writing(bundles=(BAD,)))
    assert last.banked
    assert set(last.bundles[-1]) == set(GOOD)
    again = Bundling(_config(algorithm={"rubric_bank": True}))
    again.restore(dict(bundling.states()))
    assert again.offer(flight("g9", (True, False), round_=3), Writing(bundles=(BAD,))) == last


def test_orsd_needs_a_verifier_and_room_for_its_prompt() -> None:
    with pytest.raises(ConfigError, match="judge's answers") as caught:
        _config(judge={"endpoints": []})
    assert caught.value.path == "judge.endpoints"
    with pytest.raises(ConfigError, match="leaves 12 tokens") as caught:
        _config(algorithm={"bundle_tokens": 500})
    assert caught.value.path == "algorithm.bundle_tokens"


async def test_the_learner_gets_every_bundle_when_it_chooses_itself(tmp_path: Path) -> None:
    config = _config(judge={"endpoints": []}, algorithm={"bundle_score": "within"})
    world = World(config, tmp_path)
    _mixed(world)
    world.written = _writes(BAD, GOOD)
    await world.play()
    groups = [g for round_ in world.rounds.values() for g in round_]
    told = (f"guide : {' . '.join(BAD)} .", f"guide : {' . '.join(GOOD)} .")
    assert {(g.hint, g.alternatives) for g in groups} == {(None, told)}
