"""Replays of runs with a real ledger, by the real rule judge over HTTP, through the command line."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judge.transcript import Transcript
from stream_rl.app.replay.comparison import Comparing, RejudgedGroup
from stream_rl.app.replay.plan import plan_replay, recorded
from stream_rl.app.replay.results import ReplayResults
from stream_rl.cli import main
from stream_rl.config import Algorithm, JudgeEndpoint
from stream_rl.errors import ConfigError, UsageError
from stream_rl.observe.archive import ArchivedGroup
from stream_rl.observe.rundir import RunDirectory
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Tag, TagValue, Verdict
from tests.unit.judge.builders import CLEAN, transcript
from tests.unit.ledgers import Group, clean_and_lost, write_run

RISED = {
    "groups": {"candidates": 3, "per_update": 2, "size": 2},
    "judge": {"endpoints": [{"url": "embedded"}]},
    "algorithm": {"selection": "rised"},
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """HTTP servers come and go; what they log is not ours."""
    logging.getLogger("aiohttp").setLevel(logging.ERROR)
    yield
    logging.getLogger("aiohttp").setLevel(logging.NOTSET)


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["replay", "--json", *arguments]) == 0
    return dict(json.loads(capsys.readouterr().out))


def refusal(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert main(["replay", *arguments]) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


# what is compared


def rejudged(name: str, value: TagValue, *, rubric: str, selected: bool, environment: str = "w") -> RejudgedGroup:
    """A group whose rollouts show one rubric only; the run's verdicts said `a.one` of all of them."""
    ids = ("a.one", "b.two")

    def verdict(shown: str, value: TagValue) -> Verdict:
        tags = tuple(Tag(rubric=r, value=value if r == shown else "not_applicable") for r in ids)
        return Verdict(trajectory_id=f"{name}/0", tags=tags)

    return RejudgedGroup(
        group=ArchivedGroup(
            group_id=name, round=0, environment=environment, candidate=True, selected=selected, hint=("a.one",)
        ),
        old=(verdict("a.one", "positive"),),
        new=(verdict(rubric, value),),
        complete=True,
    )


def test_a_selection_by_hand() -> None:
    """g0 shows b.two, g1 and g2 show a.one: the mean is (2, 1) / 3, so g1 and g2 are nearest to it."""
    groups = [
        rejudged("g0", "positive", rubric="b.two", selected=True),
        rejudged("g1", "positive", rubric="a.one", selected=True),
        rejudged("g2", "positive", rubric="a.one", selected=False),
    ]
    comparing = Comparing(Algorithm(selection="rised", redundancy=0.0), ("a.one", "b.two"))
    comparing.add_round(groups)
    (change,) = comparing.result().rounds
    assert (change.candidates, change.selected, change.added, change.removed) == (3, 2, ("g2",), ("g0",))
    assert change.overlap == 0.5
    # with redundancy 0.5 g2 scores 0.894 - 0.5 beside g1, and g0 0.447: the run's own selection comes out
    comparing = Comparing(Algorithm(selection="rised", redundancy=0.5), ("a.one", "b.two"))
    comparing.add_round(groups)
    assert comparing.result().overlap == 1.0


def test_a_run_that_selected_by_margin_is_compared_by_margin() -> None:
    """Worlds have no quotas there: both nearest groups are of one world."""
    groups = [
        rejudged("g0", "positive", rubric="b.two", selected=True, environment="v"),
        rejudged("g1", "positive", rubric="a.one", selected=True),
        rejudged("g2", "positive", rubric="a.one", selected=False),
    ]
    for selection, removed in (("mmr", ("g0",)), ("rised", ())):
        comparing = Comparing(Algorithm(selection=selection, redundancy=0.0), ("a.one", "b.two"))  # type: ignore[arg-type]
        comparing.add_round(groups)
        result = comparing.result()
        assert result.method == selection
        assert result.rounds[0].removed == removed


def test_hints_that_change() -> None:
    """Support 1: g0's positive rubric is another one now, g1's is not; g2 was not trained."""
    comparing = Comparing(Algorithm(distillation="rised", hint_support=1), ("a.one", "b.two"))
    comparing.add_round(
        [
            rejudged("g0", "positive", rubric="b.two", selected=True),
            rejudged("g1", "positive", rubric="a.one", selected=True),
            rejudged("g2", "violation", rubric="a.one", selected=False),
        ]
    )
    hints = comparing.result().hints
    assert hints is not None
    assert (hints.groups, hints.changed) == (2, ("g0",))


# whole replays


def test_the_same_judge_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's own verdicts are the rule judge's: full agreement, the same hints for the same rubrics."""
    config = RISED | {"algorithm": {"selection": "rised", "distillation": "rised", "steering": True}}
    run = write_run(tmp_path / "run", clean_and_lost(), config=config)
    before = run.ledger.read_bytes()
    facts = replay(capsys, str(run.root))
    assert (facts["rollouts"], facts["judged"], facts["models"]) == (6, 6, ["rules"])
    assert facts["coverage"] == 1.0
    assert facts["agreement"]["verdicts"] == 6
    assert facts["agreement"]["overall"]["kappa"] == 1.0
    assert len(facts["agreement"]["by_rubric"]) == 59
    assert [r["round"] for r in facts["selection"]["rounds"]] == [0]
    assert facts["hints"]["groups"] == 2
    assert run.ledger.read_bytes() == before
    kept = sqlite3.connect(facts["file"])
    assert kept.execute("SELECT COUNT(*) FROM verdicts").fetchone() == (6,)
    kept.close()
    assert json.loads(Path(facts["file"]).with_suffix(".json").read_text()) == facts


def test_it_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost(), config=RISED)
    assert main(["replay", str(run.root)]) == 0
    text = capsys.readouterr()
    assert text.out.startswith("replay of run by rules: 6 of 6 rollouts\n")
    assert "59 rubrics (builtin), 100.0% of the tags decided" in text.out
    assert "agreement with the run's verdicts on 59 shared rubrics: kappa 1.00, 100% of 354 tags equal" in text.out
    assert "selection (rised): " in text.out
    assert "6/6 rollouts judged" in text.err


def test_another_judge_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's judge called everything positive: no category of its own is left, and kappa is 0 by definition."""
    groups = clean_and_lost()
    praise = {
        f"{group.id}/{member}": Verdict(
            trajectory_id=f"{group.id}/{member}", tags=tuple(Tag(rubric=r, value="positive") for r in builtin().ids)
        )
        for group in groups
        for member in range(2)
    }
    run = write_run(tmp_path / "run", groups, praise, config=RISED)
    facts = replay(capsys, str(run.root), "--endpoint", "embedded")
    assert facts["agreement"]["overall"]["kappa"] == 0.0
    assert 0.0 < facts["agreement"]["overall"]["observed"] < 1.0


def test_another_vocabulary_is_compared_where_they_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def table(rubric_id: str) -> str:
        names = ("name", "applies", "positive", "violation", "hint", "avoid")
        texts = {name: f"{name} of {rubric_id}" for name in names}
        fields = {"id": rubric_id, "skill": rubric_id.partition(".")[0], **texts}
        return "[[rubrics]]\n" + "".join(f"{name} = '{value}'\n" for name, value in fields.items())

    words = tmp_path / "words.toml"
    words.write_text(table("own.new_one") + table("precision.valid_actions"), encoding="utf-8")
    run = write_run(tmp_path / "run", clean_and_lost(), config=RISED)
    facts = replay(capsys, str(run.root), "--vocabulary", str(words))
    assert list(facts["agreement"]["by_rubric"]) == ["precision.valid_actions"]
    assert facts["agreement"]["overall"] == {"kappa": 1.0, "observed": 1.0, "pairs": 6, "left_out": 0}
    assert facts["vocabulary"] == str(words)


def test_a_run_without_verdicts_is_judged_but_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost(), {})
    facts = replay(capsys, str(run.root))
    assert facts["judged"] == 6
    assert facts["environments"]["household"]["positive"] > 0
    assert (facts["agreement"], facts["selection"], facts["hints"]) == (None, None, None)
    assert main(["replay", str(run.root)]) == 0
    assert "nothing to compare with" in capsys.readouterr().out


def test_a_limit_judges_the_first_and_compares_whole_rounds_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = [
        Group(id="g3", round=1, episodes=(CLEAN,)),
        Group(id="g4", round=1, episodes=(CLEAN, CLEAN)),
        Group(id="g5", round=1, episodes=(CLEAN,), state="unselected"),
    ]
    run = write_run(tmp_path / "run", [*clean_and_lost(), *second], config=RISED)
    facts = replay(capsys, str(run.root), "--limit", "8")
    assert (facts["judged"], facts["rollouts"]) == (8, 10)
    assert facts["agreement"]["verdicts"] == 8
    assert [r["round"] for r in facts["selection"]["rounds"]] == [0]
    whole = replay(capsys, str(run.root))
    assert [r["round"] for r in whole["selection"]["rounds"]] == [0, 1]
    assert whole["from_cache"] == 10  # every episode has been seen


def episodes(count: int) -> list[Transcript]:
    """No two alike."""
    return [transcript(f"put some mug in desk {i}", ("go to desk 1", "You see nothing.")) for i in range(count)]


# what is refused


def test_no_such_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run" in refusal(capsys, 2, str(tmp_path / "none"))


def test_a_run_without_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [])
    assert "has no training rollouts to judge: its ledger holds none yet" in refusal(capsys, 2, str(run.root))
    run.ledger.unlink()
    assert "there is no ledger.sqlite" in refusal(capsys, 2, str(run.root))


def test_an_endpoint_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    said = refusal(capsys, 1, str(run.root), "--endpoint", "http://127.0.0.1:9/v1", "--model", "m")
    assert "http://127.0.0.1:9/v1 (m): " in said


def test_arguments_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    assert "name its address" in refusal(capsys, 2, str(run.root), "--model", "m")
    assert 'expected "embedded"' in refusal(capsys, 2, str(run.root), "--endpoint", "ftp://x")
    assert "expected 1 or more" in refusal(capsys, 2, str(run.root), "--limit", "0")


def test_two_replays_of_one_run_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    (run.root / "replay").mkdir()
    with RunDirectory(run.root / "replay").exclusive():
        assert "is running" in refusal(capsys, 2, str(run.root))


def test_a_damaged_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    writer = sqlite3.connect(run.ledger)
    writer.execute("UPDATE trajectories SET record = x'00ff'")
    writer.commit()
    writer.close()
    assert "holds a record that cannot be read" in refusal(capsys, 1, str(run.root))


# the plan


def test_a_known_endpoint_keeps_its_limits_and_the_model_is_taken_from_the_command(tmp_path: Path) -> None:
    known = {"url": "http://judge/v1", "model": "old", "requests_per_minute": 60, "key_env": "KEY"}
    run = write_run(tmp_path / "run", [], config={"judge": {"endpoints": [known]}})
    (endpoint,) = plan_replay(run, url="http://judge/v1", model="new").endpoints
    assert endpoint == JudgeEndpoint(url="http://judge/v1", model="new", requests_per_minute=60, key_env="KEY")
    assert plan_replay(run).endpoints[0].model == "old"


def test_names_of_results_are_file_names(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    plan = plan_replay(run, url="http://judge/v1", model="Qwen/Qwen3-32B")
    assert plan.name == f"Qwen_Qwen3-32B-{builtin().digest[:8]}"


def test_options_of_another_version_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "gone = 1\nseed = 5\n[algorithm]\nselection = 'rised'\nbehavior_cap = 5.0\n[learner]\nlr = 'odd'\n"
        "[[judge.endpoints]]\nurl = 'embedded'\ncolour = 'red'\n",
        encoding="utf-8",
    )
    config = recorded(file)
    assert (config.seed, config.algorithm.selection, config.judge.endpoints[0].url) == (5, "rised", "embedded")
    file.write_text("[algorithm", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        recorded(file)


def test_unfinished_results_do_not_replace_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "name.sqlite"
    verdict = Verdict(trajectory_id="g0/0", tags=())
    with ReplayResults(path) as results:
        results.add("g0", verdict)
        assert results.verdicts("g0") == [verdict]
        results.finish()
    whole = path.read_bytes()
    with pytest.raises(UsageError), ReplayResults(path) as results:
        raise UsageError("interrupted")
    assert path.read_bytes() == whole
    assert [p.name for p in tmp_path.iterdir()] == ["name.sqlite"]
