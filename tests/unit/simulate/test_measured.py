"""A run whose every second is known gives its service times back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.config import Config, to_toml
from stream_rl.errors import LedgerError, UsageError
from stream_rl.observe.rundir import RunDirectory, append_json, read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.simulate.cpu_use import CpuUse, cpu_use, level_cpu
from stream_rl.simulate.history import TurnTimes
from stream_rl.simulate.measured import Means, level, profile_of_run
from stream_rl.simulate.model import simulate
from stream_rl.simulate.profile import LearnerTimes
from stream_rl.simulate.turn_law import fit_turn_law
from stream_rl.types import Trajectory
from tests.unit.observe.samples import metrics_line
from tests.unit.records import row, trajectory, verdict
from tests.unit.simulate.profiles import grpo, profile, rised

TURNS = ((2, 4, 6, 8, 10), (3, 5, 7, 9, 11), (2, 4, 6, 8, 12), (1, 5, 7, 9, 12))  # of four groups' members
TURN_S, ROLLOUT_S, STEP_S = 0.1, 0.01, 0.05
TRAIN_S, FIXED_S, PAUSE_S = 0.5, 0.25, 0.125


def play(config: Config, *, updates: int) -> tuple[list[tuple[float, list[Trajectory]]], float]:
    """One round at depth 0: when each group was leased, its trajectories; and how long the round takes.

    All rollouts act in step. While n are played a turn takes TURN_S + n * ROLLOUT_S in the generator, and the world
    then answers in STEP_S without slowing it: m = n * g / (g + STEP_S) are in the generator.
    """
    lengths = [count for group in TURNS for count in group]
    took: list[float] = []
    for turn in range(max(lengths)):
        n = sum(count > turn for count in lengths)
        generator_s = TURN_S
        for _ in range(200):  # the fixed point of m, by iteration
            generator_s = TURN_S + ROLLOUT_S * n * generator_s / (generator_s + STEP_S)
        took.append(generator_s)
    groups = []
    for number, counts in enumerate(TURNS):
        members = []
        for member, count in enumerate(counts):
            t = trajectory(f"g{number}", member, versions=(0,) * count)
            turns = tuple(
                msgspec.structs.replace(turn, generate_s=s, environment_s=STEP_S)
                for turn, s in zip(t.turns, took, strict=False)
            )
            members.append(msgspec.structs.replace(t, turns=turns, seconds=sum(took[:count]) + count * STEP_S))
        groups.append((0.0, members))
    return groups, sum(took) + len(took) * STEP_S


def write(root: Path, config: Config, *, updates: int, judged_s: float | None = None) -> RunDirectory:
    """The run of `play`: round after round, with training and new weights in between."""
    run = RunDirectory.create(root)
    run.config.write_text(to_toml(config), encoding="utf-8")
    ledger = Ledger(run.ledger, run.run_id)
    groups, round_s = play(config, updates=updates)
    passes_s = 20 * TRAIN_S / 20
    now_s = 0.0
    for update in range(updates):
        for number, (_, members) in enumerate(groups):
            name = f"r{update:02d}-{number}"
            ledger.lease(row(name, round_=update, position=4 * update + number), 1000.0 + now_s)
            for t in members:
                t = msgspec.structs.replace(t, id=f"{name}/{t.member}", group_id=name)
                ledger.add_trajectory(t, "train")
                if judged_s is not None:
                    ledger.add_verdict(msgspec.structs.replace(verdict(t.id, {"a.one": "positive"}), seconds=judged_s))
            ledger.advance_all(name, ("produced", "judged", "candidate"), 1000.0 + now_s + round_s)
        names = [f"r{update:02d}-{n}" for n in range(4)]
        ledger.select(update, dict.fromkeys(names), [], 1000.0 + now_s + round_s)
        now_s += round_s + passes_s + FIXED_S
        ledger.train(update, names, 1000.0 + now_s)
        wait_s = round_s + (PAUSE_S if update else 0.0)
        line = metrics_line(
            update,
            train_s=now_s,
            learner={
                "rollout_wait_s": wait_s, "judge_wait_s": 0.0, "prox_s": 0.0, "teacher_s": 0.0, "train_s": passes_s,
                "publish_s": 0.0, "other_s": FIXED_S, "total_s": wait_s + passes_s + FIXED_S,
            },
            learner_other={"unpack_s": FIXED_S, "checkpoint_s": 0.0},
            zero_variance={"all_pass": 0.0, "all_fail": 0.0},
            roles={"weights": {"pause_s": PAUSE_S, "load_s": 0.1, "updates": 1}} if update else {},
        )  # fmt: skip
        append_json(run.metrics, line)
        now_s += PAUSE_S
    ledger.close()
    return run


def test_service_times_come_back(tmp_path: Path) -> None:
    config = grpo(updates=6)
    run = write(tmp_path / "r", config, updates=6)
    found = profile_of_run(run, cores=0)
    assert found.generator.turn_s == pytest.approx(TURN_S, rel=0.05)
    assert found.generator.rollout_s == pytest.approx(ROLLOUT_S, rel=0.05)
    assert found.generator.pause_s == pytest.approx(PAUSE_S)
    assert found.generator.turn_tokens == 1.0
    assert found.generator.spread == pytest.approx(0.0, abs=1e-6)
    (world,) = found.environments
    assert world.step_s == pytest.approx(STEP_S)
    assert sum(world.turns) / len(world.turns) == pytest.approx(sum(map(sum, TURNS)) / 20, rel=0.05)
    assert found.learner.train_s == pytest.approx(TRAIN_S / 20)
    assert found.learner.forward_s == pytest.approx(TRAIN_S / 60)  # no pass was measured: a third of a training pass
    assert found.learner.fixed_s == pytest.approx(FIXED_S)
    assert found.invalid_share == 0.0
    assert found.judge.answer_s == 0.0


def test_the_run_itself_is_predicted(tmp_path: Path) -> None:
    config = grpo(updates=6)
    run = write(tmp_path / "r", config, updates=6)
    _, round_s = play(config, updates=6)
    measured_s = round_s + TRAIN_S + FIXED_S + PAUSE_S * 5 / 6
    for cores in (0, 2):
        assert simulate(config, profile_of_run(run, cores=cores)).update_s == pytest.approx(measured_s, rel=0.02)


def test_answers_of_judges_are_read(tmp_path: Path) -> None:
    run = write(tmp_path / "r", rised(groups={"candidates": 4}, updates=2), updates=2, judged_s=0.75)
    assert profile_of_run(run, cores=0).judge.answer_s == 0.75


def test_a_run_that_holds_nothing_says_what_is_missing(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    run.config.write_text(to_toml(grpo()), encoding="utf-8")
    with pytest.raises(UsageError, match="has not trained an update"):
        profile_of_run(run)
    append_json(run.metrics, metrics_line(0, train_s=4.0))
    with pytest.raises(UsageError, match=r"has no ledger\.sqlite"):
        profile_of_run(run)
    Ledger(run.ledger, run.run_id).close()
    with pytest.raises(UsageError, match="no valid training rollout"):
        profile_of_run(run)
    run.ledger.write_bytes(b"no ledger at all, but long enough to be taken for the head of one" * 20)
    for extra in ("-wal", "-shm"):
        run.ledger.with_name(run.ledger.name + extra).unlink(missing_ok=True)
    with pytest.raises(LedgerError, match="cannot be read as a ledger"):
        profile_of_run(run)


@settings(deadline=None, max_examples=10)
@given(
    generator=st.floats(0.3, 3.0), passes=st.floats(0.3, 3.0), depth=st.integers(0, 2), cores=st.sampled_from([0, 2])
)
def test_levelling_finds_the_times_that_give_what_was_measured(
    generator: float, passes: float, depth: int, cores: int
) -> None:
    config = grpo(updates=12, async_depth=depth)
    true = profile(turns=(2.0, 6.0, 20.0), cores=cores, learner=LearnerTimes(forward_s=0.03, train_s=0.08))
    seen = simulate(config, true)
    means = Means(
        update_s=seen.update_s,
        rollout_wait_s=seen.rollout_wait_s,
        passes_s=seen.learner["prox_s"] + seen.learner["teacher_s"] + seen.learner["train_s"],
        rollout_s=seen.rollout_s,
    )
    wrong = msgspec.structs.replace(
        true,
        generator=msgspec.structs.replace(
            true.generator, turn_s=true.generator.turn_s * generator, rollout_s=true.generator.rollout_s * generator
        ),
        learner=msgspec.structs.replace(
            true.learner, forward_s=true.learner.forward_s * passes, train_s=true.learner.train_s * passes
        ),
    )
    found = level(wrong, config, updates=12, measured=means)
    assert simulate(config, found).update_s == pytest.approx(seen.update_s, rel=0.01)
    assert found.generator.turn_s == pytest.approx(true.generator.turn_s, rel=0.05)
    assert found.learner.train_s == pytest.approx(true.learner.train_s, rel=0.05)


def test_cpu_seconds_are_of_lines_without_evaluation_and_after_the_first() -> None:
    used = {
        "producers": 1.0,
        "generators": 2.0,
        "environments": 0.25,
        "orchestrator": 0.5,
        "judges": 0.25,
        "learner": 3.0,
    }
    lines = [metrics_line(k, train_s=4.0 * k, cost={"cpu_s": used}) for k in range(4)]
    lines[0]["cost"] = {"cpu_s": dict.fromkeys(used, 100.0)}
    lines[2]["cost"], lines[2]["learner_other"] = lines[0]["cost"], {"evaluation_s": 5.0}
    # 8,000 tokens a line are 2,000 turns of 4 tokens.
    assert cpu_use(lines, 4.0) == CpuUse(engine_s=0.001, around_s=0.001, learner_s=3.0)
    assert cpu_use(lines[:1], 4.0) is None
    assert cpu_use([metrics_line(k, train_s=4.0 * k) for k in range(4)], 4.0) is None


def test_a_run_without_cpu_seconds_is_read_and_says_what_it_lacks(tmp_path: Path) -> None:
    run = write(tmp_path / "r", grpo(updates=3), updates=3)
    assert "did not measure CPU seconds" in profile_of_run(run, cores=2).note
    assert "CPU" not in profile_of_run(run, cores=0).note


@settings(deadline=None, max_examples=10)
@given(generator=st.floats(0.3, 3.0), passes=st.floats(0.3, 3.0), depth=st.integers(0, 2), cores=st.integers(1, 4))
def test_cpu_seconds_give_the_times_back_whatever_the_walls_said(
    generator: float, passes: float, depth: int, cores: int
) -> None:
    """Walls of the measured run were spoilt by other programs, so generator and learner look slower than they are."""
    config = grpo(updates=12, async_depth=depth)
    true = profile(turns=(2.0, 6.0, 20.0), cores=cores, learner=LearnerTimes(forward_s=0.03, train_s=0.08))
    true = msgspec.structs.replace(true, generator=msgspec.structs.replace(true.generator, turn_cpu_s=0.004))
    seen = simulate(config, true)
    use = CpuUse(
        engine_s=seen.cpu_s["generators"] / seen.turns,
        around_s=seen.cpu_s["around"] / seen.turns,
        learner_s=seen.cpu_s["learner"],
    )
    g, x = true.generator, true.learner
    spoilt = msgspec.structs.replace(
        true,
        generator=msgspec.structs.replace(g, turn_s=g.turn_s * generator, rollout_s=g.rollout_s * generator),
        learner=msgspec.structs.replace(x, forward_s=x.forward_s * passes, train_s=x.train_s * passes),
    )
    found = level_cpu(spoilt, config, use, updates=12)
    assert found.generator.turn_cpu_s == pytest.approx(0.004)
    assert found.generator.rollout_s == pytest.approx(g.rollout_s, rel=0.02)
    assert found.learner.train_s == pytest.approx(x.train_s)
    for other in (0, 1, 2):
        elsewhere = grpo(updates=12, async_depth=other)
        assert simulate(elsewhere, found).update_s == pytest.approx(simulate(elsewhere, true).update_s, rel=0.02)


def test_the_profile_of_a_run_uses_the_cpu_seconds_that_run_used(tmp_path: Path) -> None:
    """The run of `play`: 144 turns of 1 token an update; its engine used 0.7 s, what surrounds it 0.288 s."""
    config = grpo(updates=6)
    run = write(tmp_path / "r", config, updates=6)
    turns = sum(map(sum, TURNS))
    lines = list(read_json_lines(run.metrics))
    run.metrics.unlink()
    for line in lines:
        line["tokens"]["generated"] = turns
        line["cost"] = {"cpu_s": {"generators": 0.7, "producers": 0.002 * turns, "learner": 0.375}}
        append_json(run.metrics, line)
    found = profile_of_run(run, cores=2)
    assert found.generator.turn_cpu_s == pytest.approx(0.002)
    predicted = simulate(config, found)
    assert predicted.cpu_s["generators"] / predicted.turns == pytest.approx(0.7 / turns, rel=0.01)
    assert sum(predicted.learner.values()) == pytest.approx(0.375)


def test_a_line_through_turns_is_found_with_what_the_learner_costs() -> None:
    rng = np.random.default_rng(0)
    rollouts = rng.integers(1, 200, 4000)
    beside = (rng.random(4000) < 0.5).astype(float)
    law = fit_turn_law(_turns((0.03 + 0.0006 * rollouts) * (1 + 0.3 * beside), rollouts, beside), producers=1, with_world=True)  # fmt: skip  # noqa: E501
    assert law.turn_s == pytest.approx(0.03)
    assert law.rollout_s == pytest.approx(0.0006)
    assert law.learner_cost == pytest.approx(0.3)


def test_turns_that_were_never_beside_the_learner_cannot_tell() -> None:
    rollouts = np.arange(1, 101)
    law = fit_turn_law(_turns(0.05 + 0.002 * rollouts, rollouts, np.zeros(100)), producers=2, with_world=False)
    assert law.learner_cost is None
    assert law.rollout_s == pytest.approx(0.004)  # of one producer, which plays half of them


def test_times_stay_above_zero() -> None:
    rollouts = np.arange(1, 101)
    steep = fit_turn_law(_turns(0.01 * rollouts - 0.005, rollouts, np.zeros(100)), producers=1, with_world=True)
    assert steep.turn_s > 0
    assert steep.rollout_s > 0
    falling = fit_turn_law(_turns(2.0 - 0.01 * rollouts, rollouts, np.zeros(100)), producers=1, with_world=True)
    assert falling.rollout_s == 0.0
    assert falling.turn_s == pytest.approx(2.0 - 0.505)


def _turns(seconds: Sequence[float] | np.ndarray, rollouts: np.ndarray, beside: np.ndarray) -> TurnTimes:
    generate_s = np.asarray(seconds, dtype=np.float64)
    return TurnTimes(generate_s=generate_s, world_s=np.zeros(len(generate_s)), rollouts=rollouts, beside_learner=beside)
