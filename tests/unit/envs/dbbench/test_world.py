"""An episode from the first message to the verdict."""

from __future__ import annotations

import ast
import json
import random

import pytest

from envs.dbbench.player import Player
from envs.dbbench.synthetic import generate
from envs.dbbench.world import DBBench
from envs.registry import create
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Split, StepResult, Task
from tests.unit.envs.dbbench.test_data import Write, row, write

__all__ = ["write"]


def task(index: int = 0, split: Split = "train") -> Task:
    return Task(environment="dbbench", split=split, index=index)


def run(world: DBBench, sql: str) -> StepResult:
    return world.step(f"Action: Operation\n```sql\n{sql}\n```")


def answer(world: DBBench, *values: str) -> StepResult:
    return world.step(f"Action: Answer\nFinal Answer: {json.dumps(values)}")


def of_kind(kind: str) -> int:
    """Index of a generated training task of this kind."""
    return next(i for i in range(50) if generate("train", i).kind == kind)


def test_synthetic_is_the_generated_tasks() -> None:
    named, unnamed = DBBench(data="synthetic"), DBBench()
    assert named.num_tasks("train") is None
    assert named.reset(task(3), 0) == unnamed.reset(task(3), 0)
    named.close()
    unnamed.close()


def test_the_first_message_explains_the_form_and_asks() -> None:
    record = generate("train", 0)
    text = DBBench().reset(task(), 0).text
    assert "Action: Operation" in text
    assert record.about in text
    assert text.endswith(f"Question: {record.question}")
    assert "execute_sql" in DBBench(form="tool").reset(task(), 0).text
    assert DBBench(instructions=False).reset(task(), 0).text.startswith("Additional table information")


def test_a_question_is_answered() -> None:
    index = of_kind("SELECT")
    record = generate("train", index)
    world = DBBench()
    world.reset(task(index), 0)
    looked = run(world, f"SELECT * FROM `{record.tables[0].name}`")
    assert (looked.done, looked.valid, looked.reward) == (False, True, 0.0)
    assert tuple(ast.literal_eval(looked.text)[0]) == record.tables[0].rows[0]
    result = answer(world, *record.answers)
    assert (result.done, result.success, result.reward, result.score) == (True, True, 1.0, 1.0)


def test_a_wrong_answer_ends_without_reward() -> None:
    world = DBBench()
    world.reset(task(of_kind("SELECT")), 0)
    result = answer(world, "surely not")
    assert (result.done, result.success, result.reward) == (True, False, 0.0)
    after = world.step("anything")
    assert (after.done, after.valid) == (True, False)


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "DELETE"])
def test_a_change_is_judged_by_the_tables(kind: str) -> None:
    index = of_kind(kind)
    gold = generate("train", index).gold
    world = DBBench()
    world.reset(task(index), 0)
    assert not answer(world, "done").success  # nothing was changed
    world.reset(task(index), 0)
    run(world, gold)
    assert answer(world, "anything").success


def test_dropping_the_table_is_a_failure_not_an_error() -> None:
    index = of_kind("UPDATE")
    world = DBBench()
    world.reset(task(index), 0)
    run(world, f"DROP TABLE `{generate('train', index).tables[0].name}`")
    result = answer(world, "done")
    assert (result.done, result.success) == (True, False)
    world.reset(task(index), 0)
    assert run(world, f"SELECT COUNT(*) FROM `{generate('train', index).tables[0].name}`").text != "[]"


def test_errors_are_told_and_refusals_are_invalid() -> None:
    world = DBBench()
    world.reset(task(), 0)
    error = run(world, "SELECT * FROM nowhere")
    assert error.text.startswith("Error: ")
    assert error.valid
    refused = run(world, "SELECT 1; SELECT 2")
    assert "one statement" in refused.text
    assert not refused.valid
    assert not world.step("hello").valid


def test_the_last_round_ends_the_episode() -> None:
    world = DBBench()
    world.reset(task(), 0)
    results = [run(world, "SELECT 1") for _ in range(15)]
    assert [result.done for result in results] == [False] * 14 + [True]
    assert results[-1].text == "[(1,)]"
    assert not results[-1].success


def test_a_strict_world_ends_at_a_reply_in_no_form() -> None:
    world = DBBench(strict=True)
    world.reset(task(), 0)
    result = world.step("hello")
    assert (result.done, result.valid, result.success) == (True, False, False)


@pytest.mark.parametrize("form", ["text", "tool"])
def test_the_scripted_player_solves_every_generated_kind(form: str) -> None:
    world = DBBench(form=form)
    for split in ("train", "held_out"):
        for index in range(27):
            player = Player(world.reset(task(index, split), 0).text, random.Random(0))
            result = StepResult(text="")
            while not result.done:
                action = player.act()
                result = world.step(action)
                player.observe(action, result.text)
            assert result.success, (split, index, generate(split, index).question)
    world.close()


def test_generated_tasks_are_the_same_each_time_and_splits_share_no_name() -> None:
    assert generate("train", 7) == generate("train", 7)
    used = {s: {r[0] for i in range(60) for r in generate(s, i).tables[0].rows} for s in ("train", "held_out")}
    assert not used["train"] & used["held_out"]
    assert len({generate("train", i).question + str(generate("train", i).tables) for i in range(60)}) == 60


def test_a_users_file_is_played(write: Write) -> None:
    rows = [row(description=f"{i}?", rows=[[str(i), "x"]], label=[str(i)]) for i in range(40)]
    world = DBBench(data=str(write("mine.jsonl", *rows)))
    counts = [world.num_tasks(split) for split in ("train", "held_out")]
    assert sum(count or 0 for count in counts) == 40
    seen = {world.reset(task(i), 0).text.rpartition("Question: ")[2] for i in range(counts[0] or 0)}
    assert len(seen) == counts[0]
    found = ast.literal_eval(run(world, "SELECT a FROM t").text)[0][0]
    assert answer(world, found).success


def test_a_change_without_a_hash_is_judged_by_its_gold_statement(write: Write) -> None:
    gold = "UPDATE t SET b = 'y'"
    rows = [row(type=["UPDATE"], label=[gold], answer_md5="", rows=[[str(i), "x"]]) for i in range(40)]
    world = DBBench(data=str(write("change.jsonl", *rows)))
    world.reset(task(), 0)
    assert not answer(world, "").success
    world.reset(task(), 0)
    run(world, "UPDATE t SET b = 'y' WHERE a >= 0")
    assert answer(world, "").success


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"backend": "oracle"}, "oracle"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"statement_limit_s": 0}, "statement_limit_s"),
        ({"data": "/nowhere/at/all"}, "neither a file nor a folder"),
        ({"backend": "mysql", "dsn_env": "STREAM_RL_NO_SUCH_DSN"}, "STREAM_RL_NO_SUCH_DSN is not set"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        create("dbbench", options)


def test_a_file_whose_tasks_are_all_in_one_split_is_refused(write: Write) -> None:
    path = write("only.jsonl", row())
    with pytest.raises(ConfigError, match="split"):
        DBBench(data=str(path))


def test_a_step_before_the_first_reset_fails() -> None:
    with pytest.raises(EnvironmentFailed, match="reset"):
        DBBench().step("x")


def test_generated_tasks_are_without_number() -> None:
    assert DBBench().num_tasks("train") is None
