"""Recomputing runs whose ledgers, and every expected number, are worked out by hand."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rl.cli import main
from stream_rl.link.codec import pack
from stream_rl.observe.rundir import RunDirectory
from tests.unit.app.replay.recorded import Group, Member, findings, group, trajectory, write

VARIANCE = {
    "groups": {"candidates": 3, "per_update": 2, "size": 2},
    "judge": {"endpoints": [{"url": "embedded"}]},
    "algorithm": {"selection": "reward_variance"},
}
# Spread 0.707, 0 and 0.354: the first and the last are trained.
ROUND = [group("g0", 1.0, 0.0), group("g1", 0.0, 0.0, selected=False), group("g2", 1.0, 0.5)]
LINE: dict[str, Any] = {
    "step": 0,
    "version": 1,
    "loss": 0.3,  # needs the policy: nobody compares it
    "groups": {"candidate": 3, "selected": 2, "discarded": {"not_selected": 1}, "deferred": 0},
    "success": {"train": (0.5 + 0.0 + 0.5) / 3, "by_env": {"w": (0.5 + 0.0 + 0.5) / 3}},
    "reward_mean": 2.5 / 6,
    "lag": {"max": 0, "mean": 0.0, "histogram": {"0": 2}},
    "zero_variance": {"all_pass": 0.0, "all_fail": 1 / 3},
    "turns_mean": 2.0,
    "invalid_action_share": 0.0,
    "cut_share": 0.0,
    "rollouts": {"discarded": {"not_selected": 2}, "rerolled": {}},
    "rows": 4,
    "response": {"tokens_mean": 2.0, "tokens_max": 2},
    "tokens": {"trained": 8, "generated": 12},
}


def replay(capsys: pytest.CaptureFixture[str], run: RunDirectory, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["replay", str(run.root), "--json", *arguments]) == code
    return dict(json.loads(capsys.readouterr().out))


def doctor(run: RunDirectory, query: str, *values: object) -> None:
    writer = sqlite3.connect(run.ledger)
    assert writer.execute(query, values).rowcount == 1
    writer.commit()
    writer.close()


# as recorded


def test_what_was_recorded_comes_out_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GRPO: g0 and g2 have two members each, so every advantage is +-1 / sqrt(2)."""
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    before = run.ledger.read_bytes()
    found = replay(capsys, run, "--recompute")
    assert found["agrees"]
    assert (found["rollouts"], found["faults"], found["total"]) == (4, [], None)
    assert found["metrics"]["lines"] == found["metrics"]["agree"] == 1
    assert found["metrics"]["absent"] == ["advantage", "by_env", "lag.by_origin"]
    assert found["advantages"] == {"turns": 8, "size": pytest.approx(0.5**0.5, abs=1e-5), "none_share": 0.0}
    assert run.ledger.read_bytes() == before
    assert findings(run, "recorded") == found


def test_an_advantage_that_does_not_come_out_again_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RLOO of two: what the other did not get. g0 gives 1 and -1, g2 0.5 and -0.5, on two tokens of each member."""
    rloo = {**VARIANCE, "algorithm": {"selection": "reward_variance", "advantage": "rloo"}}
    own = {**LINE, "advantage": {"abs_mean": 0.75, "zero_share": 0.0}}
    assert replay(capsys, write(tmp_path / "own", [ROUND], rloo, [own]), "--recompute")["agrees"]
    other = {**LINE, "advantage": {"abs_mean": 0.5, "zero_share": 0.0}}
    found = replay(capsys, write(tmp_path / "other", [ROUND], rloo, [other]), "--recompute", code=1)
    assert found["metrics"]["differences"] == [
        {"update": 0, "key": "advantage.abs_mean", "recorded": 0.5, "recomputed": 0.75}
    ]


def test_it_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    assert main(["replay", str(run.root), "--recompute"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("replay of run from its ledger: 1 updates, 3 candidate groups, 2 selected\n")
    assert "selection   1 of 1 rounds come out again" in text
    assert "rewards     of 4 trained rollouts: each is the sum of its steps" in text
    assert "advantages  grpo: mean |A| 0.707, 0 at 0% of 8 turns" in text
    assert "metrics     1 of 1 lines agree exactly in the 14 keys" in text
    assert "log-likelihoods under the policy" in text


def test_a_changed_column_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    doctor(run, "UPDATE trajectories SET reward = 0.25 WHERE trajectory_id = 'g2/1'")
    found = replay(capsys, run, "--recompute", code=1)
    (fault,) = found["faults"]
    assert (fault["update"], fault["trajectory"]) == (0, "g2/1")
    assert "its column says reward 0.25" in fault["problem"]


def test_a_changed_reward_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Changed everywhere but in its steps: the record contradicts itself, the line and the selection do not fit."""
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    record = msgspec.structs.replace(trajectory(ROUND[2], 1), reward=1.0)
    doctor(run, "UPDATE trajectories SET reward = 1.0, record = ? WHERE trajectory_id = 'g2/1'", pack(record))
    assert main(["replay", str(run.root), "--recompute"]) == 1
    text = capsys.readouterr().out
    assert "update 0, g2/1: reward 1, but the rewards of its steps add up to 0.5" in text
    assert "selection   0 of 1 rounds come out again\n              update 0: g2 left out and g1 chosen instead" in text
    assert "reward_mean 0.416667, recomputed 0.5" in text


def test_a_reward_changed_with_its_step_is_seen_in_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    other = trajectory(group("g2", 1.0, 0.25), 1)
    doctor(run, "UPDATE trajectories SET reward = 0.25, record = ? WHERE trajectory_id = 'g2/1'", pack(other))
    found = replay(capsys, run, "--recompute", code=1)
    assert found["faults"] == []
    assert found["metrics"]["differences"] == [
        {"update": 0, "key": "reward_mean", "recorded": 2.5 / 6, "recomputed": 2.25 / 6}
    ]


def test_a_changed_hint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = VARIANCE | {"algorithm": {"selection": "reward_variance", "distillation": "rised", "hint_support": 2}}
    told = [msgspec.structs.replace(g, hint=("a.one",) if g.selected else None) for g in ROUND]
    run = write(tmp_path / "run", [told], config, [LINE])
    assert replay(capsys, run, "--recompute")["rounds"][0]["hints"] == []
    doctor(run, "UPDATE groups SET hint = '[\"b.two\"]' WHERE group_id = 'g2'")
    found = replay(capsys, run, "--recompute", code=1)
    assert found["rounds"][0]["hints"] == ["g2"]
    assert found["not_in_ledger"][1] == "the teacher's term of 'rised'"


def test_a_missing_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = [msgspec.structs.replace(g, id=f"h{i}") for i, g in enumerate(ROUND)]
    run = write(tmp_path / "run", [ROUND, second], VARIANCE, [LINE])
    found = replay(capsys, run, "--recompute", code=1)
    assert (found["metrics"]["lines"], found["metrics"]["missing"]) == (1, [1])


def test_what_memory_held_before_a_resume_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = LINE | {"groups": {**LINE["groups"], "discarded": {"not_selected": 1, "stale": 4}}}
    run = write(tmp_path / "run", [ROUND], VARIANCE, [line])
    ready = '{"type":"learner_ready","at":0.0,"version":0}\n'
    run.events.write_text(ready)
    assert replay(capsys, run, "--recompute", code=1)["metrics"]["differences"][0]["key"] == "groups.discarded.stale"
    run.events.write_text(ready * 2)
    found = replay(capsys, run, "--recompute")
    assert (found["resumed"], found["metrics"]["agree"]) == ([0], 1)


# another formula


def test_another_estimator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dr. GRPO: +-0.5 in g0, +-0.25 in g2, four turns each, where GRPO has +-0.7071.

    Pearson: 0.7071 * (2 + 1) / sqrt(4 * 1.25) = 0.9487. |difference|: (0.2071 + 0.4571) / 2 = 0.3321.
    """
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    found = replay(capsys, run, "--set", "algorithm.advantage=dr_grpo")
    pairs = found["total"]["pairs"]
    assert pairs["turns"] == 8
    assert pairs["pearson"] == pytest.approx(0.9487, abs=1e-4)
    assert pairs["kendall"] == 1.0
    assert pairs["difference"] == pytest.approx(0.3321, abs=1e-4)
    assert (pairs["size_was"], pairs["size_now"]) == (pytest.approx(0.7071, abs=1e-4), 0.375)
    assert (pairs["flipped"], pairs["silenced"], pairs["woken"]) == (0, 0, 0)
    assert found["total"]["was"] == found["total"]["now"]
    assert found["rounds"][0]["change"]["overlap"] == 1.0
    assert findings(run, "set-advantage=dr_grpo") == found


def test_a_penalty_turns_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """g0's winner has one invalid turn: 0.7071 - 1 is below 0. g1's members are alike: their one gets -1 from 0."""
    groups = [
        Group(id="g0", members=(Member(steps=(0.0, 1.0), invalid=(0,)), Member(steps=(0.0, 0.0)))),
        Group(id="g1", members=(Member(steps=(0.0, 0.0), invalid=(1,)), Member(steps=(0.0, 0.0)))),
    ]
    config = {"groups": {"candidates": 2, "per_update": 2, "size": 2}}
    run = write(tmp_path / "run", [groups], config)
    pairs = replay(capsys, run, "--set", "algorithm.invalid_action_penalty=1.0")["total"]["pairs"]
    assert (pairs["flipped"], pairs["silenced"], pairs["woken"]) == (1, 0, 1)
    assert pairs["difference"] == pytest.approx(2 / 8)


def test_each_world_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RLOO of two members is their difference: +-1 in world w, +-0.5 in world v."""
    groups = [group("g0", 1.0, 0.0), group("g1", 1.0, 0.5, environment="v")]
    run = write(tmp_path / "run", [groups], {"groups": {"candidates": 2, "per_update": 2, "size": 2}})
    found = replay(capsys, run, "--set", "algorithm.advantage=rloo")
    sizes = {name: world["pairs"]["size_now"] for name, world in found["environments"].items()}
    assert sizes == {"v": 0.5, "w": 1.0}
    assert found["environments"]["v"]["was"]["reward_mean"] == 0.75
    assert found["rounds"][0]["change"]["worlds"] == found["environments"]


# another selection


def test_every_candidate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`all` takes g1, too, which never succeeds and has no spread."""
    run = write(tmp_path / "run", [ROUND], VARIANCE, [LINE])
    found = replay(capsys, run, "--set", "algorithm.selection=all")
    assert [(c["key"], c["was"], c["now"]) for c in found["set"]] == [
        ("algorithm.selection", "reward_variance", "all"),
        ("groups.per_update", 2, 3),
    ]
    change = found["rounds"][0]["change"]
    assert (change["added"], change["removed"], change["overlap"]) == (["g1"], [], 1.0)
    was, now = found["total"]["was"], found["total"]["now"]
    assert found["total"]["pairs"] is None
    assert (was["groups"], now["groups"]) == (2, 3)
    assert (was["reward_mean"], now["reward_mean"]) == (2.5 / 4, 2.5 / 6)
    assert (was["success"], now["success"]) == (0.5, 2 / 6)
    assert (was["zero_variance"], now["zero_variance"]) == (0.0, 1 / 3)
    assert (was["response_tokens"], was["rubrics"], was["skills"]) == (2.0, 1.0, 1.0)


def test_less_redundancy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """g0 shows b.two, g1 and g2 a.one. RISED with redundancy 0.5 takes g1 and then g0; with 0 both alike, g1 and g2."""
    config = VARIANCE | {"algorithm": {"selection": "rised", "redundancy": 0.5}}
    alike = (Member(steps=(1.0,)), Member(steps=(0.0,)))
    groups = [
        Group(id="g0", members=tuple(msgspec.structs.replace(m, shows="b.two") for m in alike)),
        Group(id="g1", members=alike),
        Group(id="g2", members=alike, selected=False),
    ]
    run = write(tmp_path / "run", [groups], config)
    found = replay(capsys, run, "--set", "algorithm.redundancy=0.0")
    assert found["rounds"][0]["agrees"]
    change = found["rounds"][0]["change"]
    assert (change["added"], change["removed"], change["overlap"]) == (["g2"], ["g0"], 0.5)
    assert (found["total"]["was"]["rubrics"], found["total"]["now"]["rubrics"]) == (2.0, 1.0)
    assert main(["replay", str(run.root), "--set", "algorithm.redundancy=0.0"]) == 0
    text = capsys.readouterr().out
    assert "50% of the 2 selected groups are chosen again, 1 others beside them" in text
    assert "update 0: g0 left out and g2 chosen instead" in text


def test_other_hints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = VARIANCE | {"algorithm": {"selection": "reward_variance", "distillation": "rised", "hint_support": 2}}
    told = [msgspec.structs.replace(g, hint=("a.one",) if g.selected else None) for g in ROUND]
    run = write(tmp_path / "run", [told], config, [LINE])
    found = replay(capsys, run, "--set", "algorithm.hint_support=3")
    assert found["rounds"][0]["change"]["hints"] == ["g0", "g2"]


# what is refused


def refusal(capsys: pytest.CaptureFixture[str], run: RunDirectory, *arguments: str) -> str:
    assert main(["replay", str(run.root), *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_what_the_ledger_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [ROUND], VARIANCE)
    assert "--set learner.lr: the ledger cannot tell" in refusal(capsys, run, "--set", "learner.lr=1")
    said = refusal(capsys, run, "--set", "algorithm.selektion=all")
    assert "Did you mean `algorithm.selection`?" in said
    assert "'most' is not one of" in refusal(capsys, run, "--set", "algorithm.selection=most")
    assert "3 candidates cannot fill" in refusal(capsys, run, "--set", "groups.per_update=4")
    assert "expected KEY=VALUE" in refusal(capsys, run, "--set", "algorithm.selection")
    assert "--endpoint, --limit asks a judge" in refusal(capsys, run, "--recompute", "--endpoint", "x", "--limit", "1")


def test_selections_by_tags_nobody_gave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    untagged = [
        msgspec.structs.replace(g, members=tuple(msgspec.structs.replace(m, shows=None) for m in g.members))
        for g in ROUND
    ]
    bare = {name: table for name, table in VARIANCE.items() if name != "judge"}
    run = write(tmp_path / "run", [untagged], bare)
    said = refusal(capsys, run, "--set", "algorithm.selection=mmr")
    assert said.endswith("algorithm.selection = mmr: this reads tags, and no rollout of this run was tagged")


def test_a_run_that_trained_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [], VARIANCE)
    assert "has trained no update yet" in refusal(capsys, run, "--recompute")
    run.ledger.unlink()
    assert "there is no ledger.sqlite" in refusal(capsys, run, "--recompute")


def test_a_reward_nothing_can_be_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", [ROUND], VARIANCE)
    record = msgspec.structs.replace(trajectory(ROUND[0], 1), reward=float("inf"))
    doctor(run, "UPDATE trajectories SET record = ? WHERE trajectory_id = 'g0/1'", pack(record))
    assert main(["replay", str(run.root), "--recompute"]) == 1
    assert "g0/1" in capsys.readouterr().err
