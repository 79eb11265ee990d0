"""The plain loop on a tiny random policy: every part of an update runs, and what it records adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.lean_rollout import Rollout
from benchmarks.plain_loop import Clock, Group, PlainLoop, Row, buckets, load_recipe
from stream_rl.config import Config
from stream_rl.errors import UsageError
from stream_rl.types import Message, Task

SMALL = ("groups.size=4", "generate.max_turns=3", "eval.tasks=3")
SMALL_ROUNDS = {
    "grpo": (*SMALL, "groups.candidates=2", "groups.per_update=2"),
    "rised": (*SMALL, "groups.candidates=4", "groups.per_update=2"),
}


def make(algorithm: str, folder: Path) -> PlainLoop:
    return PlainLoop(load_recipe(algorithm, 0, SMALL_ROUNDS[algorithm]), folder, Clock())


def recipe(config: Config) -> tuple[Any, ...]:
    a, g = config.algorithm, config.groups
    return g.candidates, g.per_update, g.size, config.learner.lr, config.learner.mini_batches, a.selection


def test_the_recipes_are_those_of_the_shipped_configurations() -> None:
    assert recipe(load_recipe("grpo", 0)) == (16, 16, 8, 5e-4, 2, "all")
    assert recipe(load_recipe("rised", 0)) == (32, 16, 8, 5e-4, 2, "rised")
    a = load_recipe("rised", 0).algorithm
    assert (a.distill_coef, a.hint_support, a.hint_top_k, a.clip_low, a.clip_high) == (0.1, 2, 4, 0.2, 0.28)


def test_what_the_loop_does_not_do_is_refused() -> None:
    with pytest.raises(UsageError, match="entropy_coef"):
        load_recipe("grpo", 0, ["algorithm.entropy_coef=0.1"])


@pytest.mark.parametrize(("algorithm", "generated", "trained"), [("grpo", 8, 8), ("rised", 16, 8)])
def test_an_update_accounts_for_its_rollouts_and_its_time(
    policy_folder: Path, algorithm: str, generated: int, trained: int
) -> None:
    loop = make(algorithm, policy_folder)
    before = loop.evaluate()
    assert (before["update"], before["train_s"]) == (0, 0.0)
    assert 0 <= before["success"] <= 1
    line = loop.update()
    assert line["turns"] == 3 * generated
    assert line["tokens"]["generated"] >= line["tokens"]["trained"] >= 3 * trained
    assert line["train_s"] == pytest.approx(sum(line["parts"].values()), abs=1e-3)
    assert loop.evaluate()["train_s"] == line["train_s"], "evaluation is not training time"


def test_same_seed_same_rollouts(policy_folder: Path) -> None:
    first, second = (make("grpo", policy_folder).update() for _ in range(2))
    assert first["tokens"] == second["tokens"]


def rollout(ids: list[int], *, success: bool) -> Rollout:
    return Rollout(
        task=Task(environment="household", split="train", index=0),
        head=(Message(role="user", content="look"),),
        head_tokens=2,
        ids=[0, 0, *ids],
        sampled=[False, False, *(True for _ in ids)],
        logprobs=[0.0, 0.0, *(-1.0 for _ in ids)],
        success=success,
    )


def test_rows_carry_the_groups_advantage_and_no_hint_without_a_judge(policy_folder: Path) -> None:
    loop = make("grpo", policy_folder)
    rows = list(loop._rows(Group([rollout([5], success=True), rollout([6], success=False)], None)))
    # One of two succeeded: (1 - 1/2) / 0.7071 = 0.7071.
    assert [row.advantage for row in rows] == pytest.approx([0.7071, -0.7071], abs=1e-4)
    assert {row.hint for row in rows} == {""}


def test_a_teacher_equal_to_the_student_changes_no_gradient(policy_folder: Path) -> None:
    loop = make("rised", policy_folder)
    rows = [
        Row(rollout([5, 6, 7], success=True), 1.0, "guide : be brief ."),
        Row(rollout([8], success=False), -1.0, ""),
    ]
    student = torch.full((3,), -1.0)

    def gradient(teacher: torch.Tensor | None) -> torch.Tensor:
        loop._model.zero_grad()
        loop._loss(rows, [teacher, None]).backward()  # type: ignore[no-untyped-call]
        found = loop._model.embedding.grad
        assert found is not None
        return found.clone()

    torch.testing.assert_close(gradient(student), gradient(None))
    assert not torch.allclose(gradient(student + 1), gradient(None))


def test_buckets_hold_every_row_once_within_the_budget() -> None:
    lengths = [5, 100, 7, 6, 30, 31]
    found = list(buckets(range(6), lengths.__getitem__, budget=64))
    assert sorted(i for batch in found for i in batch) == [0, 1, 2, 3, 4, 5]
    # Shortest first: three rows padded to 7, two to 31, and one that is longer than the budget alone.
    assert found == [[0, 3, 2], [4, 5], [1]]
