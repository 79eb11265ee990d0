from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stream_rl.observe.rundir import RunDirectory, append_json, keep_json_lines
from stream_rl.page.reader import RunReader
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Trajectory
from tests.unit.judge.builders import CLEAN
from tests.unit.ledgers import Group, clean_and_lost, write_run


def by_member(group: Sequence[Trajectory]) -> list[list[float]]:
    return [[float(t.member)] * len(t.turns) for t in group]


def reader(run: RunDirectory) -> RunReader:
    return RunReader(run, builtin(), advantages=by_member)


def add_updates(run: RunDirectory, steps: range) -> None:
    for step in steps:
        append_json(run.metrics, {"step": step, "version": step + 1, "loss": float(step)})


def test_ten_thousand_updates_come_in_bounded_answers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    lines = "".join(f'{{"step":{step},"loss":{step}.0}}\n' for step in range(10_000))
    run.metrics.write_text(lines, encoding="utf-8")
    page, epoch, since, answers = reader(run), "", -1, 0
    more = True
    while more:
        found = page.updates(since=since, points=100, epoch=epoch)
        assert len(found.step) <= 100
        epoch, since, more, answers = found.epoch, max([since, *found.step]), found.more, answers + 1
    assert answers > 1
    assert since == 9_999
    whole = page.updates(since=-1, points=100)
    assert (len(whole.step), whole.updates, whole.count) == (100, 10_000, 10_000)
    assert whole.columns["loss"][0] == 49.5  # mean of 0 .. 99


def test_a_resume_changes_the_epoch_and_gives_everything_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    add_updates(run, range(4))
    page = reader(run)
    first = page.updates(since=-1, points=9)
    keep_json_lines(run.metrics, 2, "step")
    add_updates(run, range(2, 3))
    second = page.updates(since=3, points=9, epoch=first.epoch)
    assert second.epoch != first.epoch
    assert second.step == [0, 1, 2]


def test_an_episode_has_its_credit_verdict_and_hint(tmp_path: Path) -> None:
    groups = [Group(id="g0", episodes=(CLEAN, CLEAN), hint=("exploration.open_closed",))]
    found = reader(write_run(tmp_path / "run", groups)).episode("g0/1")
    assert found is not None
    assert {turn.advantage for turn in found.turns} == {1.0}
    assert found.hint == ("exploration.open_closed",)
    assert found.tags
    assert all(tag.reason or tag.value == "abstained" for tag in found.tags)


def test_a_group_that_is_still_rolled_out_has_no_advantages(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [Group(id="g0", episodes=(CLEAN, CLEAN), state="leased")])
    found = reader(run).episode("g0/1")
    assert found is not None
    assert {turn.advantage for turn in found.turns} == {None}


def test_an_unknown_rollout_is_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    assert reader(run).episode("g0/9") is None
    assert reader(run).episode("") is None


def test_the_rubric_map_counts_every_verdict_once(tmp_path: Path) -> None:
    page = reader(write_run(tmp_path / "run", clean_and_lost()))
    first = page.rubrics()
    assert (first.counted, first.complete, first.environments) == (6, True, ("household",))
    assert all(sum(row.counts["household"]) == 6 for row in first.rows)
    assert page.rubrics().counted == 6
    opened = next(row for row in first.rows if row.rubric == "exploration.open_closed")
    assert opened.skill == "exploration"
    assert opened.counts["household"][:2] == (3, 3)  # three episodes open what is closed, three do not


def test_of_an_evaluation_made_twice_the_newer_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    for success in (0.2, 0.5):
        by_env = {"household": {"reward_mean": 2 * success}}
        record = {"step": 10, "train_s": 3.0, "success": {"overall": success}, "stderr": 0.1, "by_env": by_env}
        append_json(run.eval, record)
    (found,) = reader(run).evaluations()
    assert (found.version, found.success, found.reward) == (10, 0.5, {"household": 1.0})
    assert (round(found.low, 3), round(found.high, 3)) == (0.304, 0.696)  # 0.5 -+ 1.96 * 0.1


def test_events_are_sentences_newest_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    append_json(run.events, {"type": "learner_ready", "at": 1.0, "version": 0})
    append_json(run.events, {"type": "stopping", "at": 2.0, "reason": "asked to stop"})
    assert [event.text for event in reader(run).events()] == [
        "stopping: asked to stop",
        "the learner is ready at version 0",
    ]
