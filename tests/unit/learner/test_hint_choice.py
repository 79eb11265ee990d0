from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import torch

from learner.hint_choice import HintsChosen, choose_hints
from learner.objective import Objective
from learner.rows import Row, build_rows
from learner.shadow import Shadow
from learner.within import choose
from stream_rl.config import Algorithm
from stream_rl.messages import SelectedGroup
from stream_rl.types import Trajectory
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, tiny_policy, trajectory
from tests.unit.learner.test_update_distill import gaps

ALGORITHM = Algorithm(distillation="orsd", rubrics="written", bundle_score="within", min_rho=-1.0)
HINTS = ("search", "open", "go")


def with_returns(made: Trajectory, rewards: Sequence[float]) -> Trajectory:
    """Every turn answers the same observation, so all turns of the group are one step group."""
    turns = tuple(msgspec.structs.replace(t, reward=r) for t, r in zip(made.turns, rewards, strict=True))
    return msgspec.structs.replace(made, turns=turns, first_prompt="ok")


def open_group(name: str = "g") -> SelectedGroup:
    """Step advantages of the last turn and the rest differ in both members; one member failed."""
    members = (
        with_returns(trajectory(name, 0, 1.0, turns=3), [0, 0, 1]),
        trajectory(name, 1, 0.0, error="crashed"),
        with_returns(trajectory(name, 2, 1.0, turns=4), [1, 0, 2, 0]),
    )
    return SelectedGroup(update=0, group_id=name, trajectories=members, hint=None, alternatives=HINTS)


def chosen(
    groups: Sequence[SelectedGroup], *, max_model_len: int = 256, teacher: Shadow | None = None, budget: int = 128
) -> HintsChosen:
    objective = Objective(algorithm=ALGORITHM, episode_tokens=1, token_budget=budget, mini_batches=1)
    return choose_hints(
        PlainEngine(tiny_policy()), teacher, groups, objective, renderer=WordRenderer(), max_model_len=max_model_len
    )


def rows_with(made: SelectedGroup, hint: str) -> tuple[Row, ...]:
    hinted = msgspec.structs.replace(made, hint=hint, alternatives=())
    return build_rows([hinted], version=0, algorithm=Algorithm(), renderer=WordRenderer(), max_model_len=256).rows


def test_the_hint_that_follows_the_step_advantages_is_chosen() -> None:
    made = open_group()
    # one plain pass a row; every turn samples 2 tokens
    by_hint = [[gaps(row).reshape(-1, 2).mean(1) for row in rows_with(made, hint)] for hint in HINTS]
    # returns at gamma 0.95: [0.9025, 0.95, 1] and [2.805, 1.9, 2, 0]; all are one step group: their order decides
    signals = [np.array([0.9025, 0.95, 1.0]), np.array([2.805, 1.9, 2.0, 0.0])]
    wanted = choose(by_hint, signals, min_rho=-1.0)
    for budget in (1, 128, 10**4):
        found = chosen([made], budget=budget)
        assert found.choices[0].index == wanted.index
        assert found.choices[0].rho == pytest.approx(wanted.rho)
        assert found.choices[0].held_out_rho == pytest.approx(wanted.held_out_rho)
        assert wanted.index is not None
        assert found.groups[0].hint == HINTS[wanted.index]
        assert found.groups[0].alternatives == ()


def test_all_that_is_read_is_counted() -> None:
    made = open_group()
    student = sum(len(row.token_ids) for row in rows_with(made, "x"))
    hinted = sum(len(row.teacher_ids) for h in HINTS for row in rows_with(made, h) if row.teacher_ids is not None)
    assert chosen([made]).num_tokens == student + hinted


def test_groups_with_a_hint_are_left_as_they_are() -> None:
    given = (group("a", [1, 0], hint="search"), group("b", [1, 0]))
    found = chosen(given)
    assert found.groups == given
    assert (found.choices, found.num_tokens) == ((), 0)
    mixed = chosen([given[0], open_group(), given[1]])
    assert [g.group_id for g in mixed.groups] == ["a", "g", "b"]
    assert mixed.groups[0] is given[0]
    assert len(mixed.choices) == 1


def test_a_teacher_of_its_own_reads_the_hints() -> None:
    same = chosen([open_group()], teacher=Shadow(tiny_policy(), torch.device("cpu")))
    assert same.choices == chosen([open_group()]).choices
    assert same.num_tokens == chosen([open_group()]).num_tokens


def test_hints_that_do_not_fit_cannot_be_chosen() -> None:
    shortest = min(len(t.samples[0].token_ids) for t in open_group().trajectories if t.valid)
    found = chosen([open_group()], max_model_len=shortest)
    assert found.choices[0].index is None
    assert found.groups[0].hint is None


def test_without_a_comparable_turn_nothing_is_chosen() -> None:
    silent = msgspec.structs.replace(group("g", [1, 0]), alternatives=HINTS)  # no step reward anywhere
    assert chosen([silent]).groups[0].hint is None
