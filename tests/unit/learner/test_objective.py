from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from learner.batch import MiniBatch
from learner.objective import Objective
from learner.rows import Row
from stream_rl.config import Algorithm


def objective(**options: Any) -> Objective:
    return Objective(algorithm=Algorithm(**options), episode_tokens=50, token_budget=9, mini_batches=1)


def row(advantage: float, *, taught: bool) -> Row:
    ids = np.arange(3, dtype=np.int32)
    return Row(
        group_id="g",
        trajectory_id="g/0",
        lag=0,
        token_ids=ids,
        loss_mask=np.array([False, False, True]),
        behavior_logprobs=np.zeros(3, dtype=np.float32),
        advantages=np.array([0, 0, advantage], dtype=np.float32),
        teacher_ids=ids if taught else None,
    )


def mini(*, has_teacher: bool) -> MiniBatch:
    return MiniBatch(
        ranks=(),
        num_loss_tokens=7,
        num_trajectories=3,
        trains=True,
        has_teacher=has_teacher,
        peak_targets=(),
        peak_teacher_targets=(),
    )


# (advantage, no teacher), (none, no teacher), (advantage, teacher), (none, teacher)
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [True, False, True, False]),
        ({"distillation": "rised"}, [True, False, True, True]),
        ({"distillation": "rised", "distill_coef": 0.0}, [True, False, True, False]),
        ({"distillation": "sdar"}, [True, False, True, True]),
        ({"distillation": "opsd"}, [False, False, True, True]),
        ({"distillation": "orsd"}, [True, False, True, True]),
        ({"distillation": "orsd", "orsd_weight": 0.0}, [True, False, True, False]),
        ({"distillation": "rlsd"}, [True, False, True, False]),
        ({"kl_coef": 0.01}, [True] * 4),
        ({"entropy_coef": 0.01}, [True] * 4),
    ],
)
def test_who_can_move_a_parameter(options: dict[str, Any], wanted: list[bool]) -> None:
    goal = objective(**options)
    rows = [row(a, taught=taught) for taught in (False, True) for a in (1.0, 0.0)]
    assert [goal.has_signal(r) for r in rows] == wanted


@pytest.mark.parametrize(
    ("options", "has_teacher", "first", "later"),
    [
        ({}, False, False, True),  # the ratio and the weights of a later mini-batch are taken to the start
        ({"correction": "none"}, False, False, False),
        ({"correction": "none", "distillation": "rised"}, True, False, True),
        ({"distillation": "rised", "divergence": "jsd"}, True, True, True),  # the kept tokens are those at the start
        ({"distillation": "opsd", "divergence": "jsd", "correction": "none"}, False, False, False),
        ({"distillation": "orsd"}, True, True, True),  # D of the whole trajectory comes before any step
        ({"distillation": "orsd", "orsd_norm": "none"}, True, False, True),
        ({"distillation": "rlsd"}, True, False, True),
    ],
)
def test_who_needs_a_prox_pass(options: dict[str, Any], has_teacher: bool, first: bool, later: bool) -> None:
    goal = objective(**options)
    assert goal.needs_prox(mini(has_teacher=has_teacher), is_first=True) is first
    assert goal.needs_prox(mini(has_teacher=has_teacher), is_first=False) is later


def test_only_a_faded_teacher_is_not_asked() -> None:
    assert not objective().teaches(0)
    assert objective(distillation="rised").teaches(10**6)
    rlsd = objective(distillation="rlsd", rlsd_updates=100)
    assert [rlsd.teaches(update) for update in (0, 99, 100)] == [True, True, False]


def test_kept_tokens_belong_to_the_divergence() -> None:
    assert objective(distillation="opsd", divergence="jsd", jsd_top_k=7).kept_tokens == 7
    assert objective(distillation="rised").kept_tokens == 0
    assert objective(divergence="jsd").kept_tokens == 0


def test_divisors() -> None:
    assert objective().divisor(mini(has_teacher=False)) == 7
    dr_grpo = msgspec.structs.replace(objective(), algorithm=Algorithm(advantage="dr_grpo"))
    assert dr_grpo.divisor(mini(has_teacher=False)) == 3 * 50
