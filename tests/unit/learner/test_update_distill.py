"""Every form of self-distillation through the whole update, against what a hand would put into the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from learner.metrics import update_metrics
from learner.objective import Objective
from learner.ports import Scorer
from learner.rows import Row, Rows, build_rows
from learner.shadow import Shadow
from learner.update import run_update
from stream_rl.config import Algorithm
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, tiny_policy

CPU = torch.device("cpu")
FORMS: list[dict[str, Any]] = [
    {"distillation": "rised", "distill_coef": 0.1},
    {"distillation": "rised", "distill_coef": 0.1, "divergence": "jsd", "jsd_top_k": 5},
    {"distillation": "opsd", "distill_coef": 0.1},
    {"distillation": "opsd", "distill_coef": 0.1, "divergence": "jsd", "jsd_top_k": 5},
    {"distillation": "sdar", "distill_coef": 0.1},
    {"distillation": "orsd"},
    {"distillation": "rlsd"},
]
WITHOUT_ADVANTAGE = [f for f in FORMS if f["distillation"] != "rlsd"]


def name(options: dict[str, Any]) -> str:
    return "_".join(str(options[key]) for key in ("distillation", "divergence") if key in options)


def made(rewards: Sequence[float] = (1, 0, 1, 0), hint: str | None = "search") -> Rows:
    return build_rows(
        [group("g", rewards, hint=hint), group("h", rewards[:2], hint=None)],
        version=0,
        algorithm=Algorithm(),
        renderer=WordRenderer(),
        max_model_len=256,
    )


def train(
    rows: Rows,
    algorithm: Algorithm,
    *,
    engine: PlainEngine | None = None,
    mini_batches: int = 1,
    update: int = 0,
    teacher: Scorer | None = None,
    reference: Scorer | None = None,
) -> tuple[PlainEngine, dict[str, Any]]:
    engine = engine or PlainEngine(tiny_policy())
    goal = Objective(algorithm=algorithm, episode_tokens=10, token_budget=128, mini_batches=mini_batches)
    sums, norms = run_update(
        engine,
        rows.rows,
        goal,
        update=update,
        seed=(0, 0),
        enter=lambda _: None,
        teacher=teacher,
        reference=reference,
    )
    return engine, update_metrics(sums.reduced(list), sums.lags, rows, norms)


def log_p(policy: Any, ids: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> Tensor:
    """Whole log-distributions [places, vocabulary] of the tokens at `places`."""
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    return torch.log_softmax(policy.causal_lm(input_ids=tokens, use_cache=False).logits[0, places - 1], -1)


def gaps(row: Row) -> np.ndarray[Any, Any]:
    """D of a row's loss tokens, one plain pass each."""
    assert row.teacher_ids is not None
    places = np.flatnonzero(row.loss_mask)
    with torch.no_grad():
        targets = torch.from_numpy(row.token_ids[places].astype(np.int64))[:, None]
        student = log_p(tiny_policy(), row.token_ids, places).gather(-1, targets)[:, 0]
        teacher = log_p(tiny_policy(), row.teacher_ids, places + row.teacher_shift).gather(-1, targets)[:, 0]
    return (teacher - student).double().numpy()


def with_advantages(row: Row, values: np.ndarray[Any, Any]) -> Row:
    """The row without its teacher, and with `values` as the advantages of its loss tokens."""
    advantages = row.advantages.copy()
    advantages[row.loss_mask] = values
    return msgspec.structs.replace(row, advantages=advantages, teacher_ids=None)


def same_gradient(a: PlainEngine, b: PlainEngine) -> bool:
    return all(torch.allclose(x, y, atol=2e-6) for x, y in zip(a.gradients, b.gradients, strict=True))


@pytest.mark.parametrize("options", WITHOUT_ADVANTAGE, ids=name)
@pytest.mark.parametrize("rewards", [[1, 1, 1], [0, 0, 0]], ids=["all_pass", "all_fail"])
def test_groups_without_spread_learn_from_the_teacher(options: dict[str, Any], rewards: list[float]) -> None:
    engine, metrics = train(made(rewards), Algorithm(**options))
    assert metrics["steps"] == {"taken": 1, "skipped": 0}
    assert engine.gradients[0].abs().max() > 1e-6
    engine, metrics = train(made(rewards), Algorithm())
    assert metrics["steps"] == {"taken": 0, "skipped": 1}


def test_a_factor_on_no_advantage_is_no_signal() -> None:
    _, metrics = train(made([1, 1, 1]), Algorithm(distillation="rlsd"))
    assert metrics["steps"] == {"taken": 0, "skipped": 1}
    assert metrics["distill"]["correction_abs"] == 0


@pytest.mark.parametrize("options", FORMS, ids=name)
@pytest.mark.parametrize("teacher", ["current", "frozen"])
def test_another_hint_is_another_gradient_and_the_teacher_receives_none(options: dict[str, Any], teacher: str) -> None:
    gradients = []
    for hint in ("search", "open"):
        policy = tiny_policy(seed=5)
        before = [p.detach().clone() for p in policy.parameters()]
        shadow = Shadow(policy, CPU) if teacher == "frozen" else None
        engine, metrics = train(made(hint=hint), Algorithm(teacher=teacher, **options), teacher=shadow)  # type: ignore[arg-type]
        gradients.append(engine.gradients[0])
        assert all(p.grad is None for p in policy.parameters())
        assert all(torch.equal(p, b) for p, b in zip(policy.parameters(), before, strict=True))
        assert metrics["tokens"]["teacher"] > 0
        assert metrics["distill"]["d_std"] > 1e-3
    assert not torch.allclose(gradients[0], gradients[1], atol=1e-7)


@pytest.mark.parametrize("options", FORMS, ids=name)
@pytest.mark.parametrize("mini_batches", [1, 2])
def test_without_a_hint_text_the_gap_is_exactly_zero(options: dict[str, Any], mini_batches: int) -> None:
    _, metrics = train(made(hint=""), Algorithm(**options), mini_batches=mini_batches)
    assert (metrics["distill"]["d_mean"], metrics["distill"]["d_std"]) == (0.0, 0.0)
    assert metrics["tokens"]["teacher"] == 0
    assert metrics["distill"]["share"] > 0.5


@pytest.mark.parametrize("form", ["orsd", "rlsd"])
def test_a_teacher_that_agrees_leaves_plain_grpo(form: Any) -> None:
    rows = made(hint="")
    taught, metrics = train(rows, Algorithm(distillation=form))
    plain, _ = train(rows, Algorithm())
    assert metrics["distill"]["correction_abs"] == 0
    assert same_gradient(taught, plain)


@pytest.mark.parametrize("hint", ["", "search"])
def test_a_pass_of_its_own_finds_the_same_gap(hint: str) -> None:
    # the start policy as a frozen teacher runs a real pass over every row, and has the student's parameters
    rows = made(hint=hint)
    frozen = Shadow(tiny_policy(), CPU)
    _, own = train(rows, Algorithm(distillation="rised", teacher="frozen"), teacher=frozen)
    _, short = train(rows, Algorithm(distillation="rised"))
    assert own["tokens"]["teacher"] > 0
    assert own["distill"]["d_mean"] == pytest.approx(short["distill"]["d_mean"], abs=1e-6)
    assert own["distill"]["d_std"] == pytest.approx(short["distill"]["d_std"], abs=1e-6)
    if not hint:
        assert abs(own["distill"]["d_mean"]) < 1e-6
        assert own["distill"]["d_std"] < 1e-6


@pytest.mark.parametrize("norm", ["none", "centre", "zscore"])
@pytest.mark.parametrize("mini_batches", [1, 2])
def test_orsd_is_grpo_with_corrected_advantages(norm: Any, mini_batches: int) -> None:
    rows = made()
    # the first two rows become one trajectory: its statistics run over both, which lie in different micro-batches
    first, second, *rest = rows.rows
    rows = msgspec.structs.replace(
        rows, rows=(first, msgspec.structs.replace(second, trajectory_id=first.trajectory_id), *rest)
    )
    by_trajectory: dict[str, list[np.ndarray[Any, Any]]] = {}
    for row in rows.rows:
        if row.teacher_ids is not None:
            by_trajectory.setdefault(row.trajectory_id, []).append(gaps(row))
    by_hand, changes = [], []
    for row in rows.rows:
        advantages: Any = row.advantages[row.loss_mask]
        if row.teacher_ids is not None:
            every = np.concatenate(by_trajectory[row.trajectory_id])
            d = gaps(row)
            d = d if norm == "none" else d - every.mean()
            d = d / every.std() if norm == "zscore" else d
            change = 0.5 * np.clip(d, -1.0, 1.0)
            changes += np.abs(change).tolist()
            advantages = advantages + change
        by_hand.append(with_advantages(row, advantages))
    algorithm = Algorithm(distillation="orsd", orsd_norm=norm, orsd_weight=0.5, orsd_clip=1.0)
    engine, metrics = train(rows, algorithm, mini_batches=mini_batches)
    wanted, _ = train(Rows(rows=tuple(by_hand)), Algorithm(), mini_batches=mini_batches)
    assert same_gradient(engine, wanted)
    assert metrics["distill"]["correction_abs"] == pytest.approx(np.mean(changes), abs=1e-5)
    assert metrics["distill"]["loss"] is None


def test_rlsd_is_grpo_with_scaled_advantages() -> None:
    rows = made()
    by_hand = []
    for row in rows.rows:
        a = row.advantages[row.loss_mask].astype(np.float64)
        if row.teacher_ids is not None:
            factor = np.clip(np.exp(np.sign(a) * gaps(row)), 0.8, 1.2)
            a = a * (0.75 + 0.25 * factor)  # half of the updates are over: the mix is 0.5 * 0.5
        by_hand.append(with_advantages(row, a))
    engine, _ = train(rows, Algorithm(distillation="rlsd", rlsd_updates=20), update=10)
    wanted, _ = train(Rows(rows=tuple(by_hand)), Algorithm())
    assert same_gradient(engine, wanted)


@pytest.mark.parametrize("options", [{}, {"divergence": "jsd", "jsd_top_k": 4}], ids=["sampled", "jsd"])
def test_opsd_reads_no_reward(options: dict[str, Any]) -> None:
    algorithm = Algorithm(distillation="opsd", distill_coef=1.0, **options)
    a, _ = train(made([1, 0, 1, 0]), algorithm)
    b, _ = train(made([0, 0, 0, 9]), algorithm)
    assert same_gradient(a, b)
    untaught, metrics = train(made(hint=None), algorithm)
    assert metrics["steps"] == {"taken": 0, "skipped": 1}
    assert untaught.gradients == []


@pytest.mark.parametrize("top_k", [3, 64, 500])
def test_the_divergence_by_plain_passes(top_k: int) -> None:
    rows = made()
    policy = tiny_policy()
    total, tokens = torch.zeros(()), 0
    for row in rows.rows:
        places = np.flatnonzero(row.loss_mask)
        tokens += len(places)
        if row.teacher_ids is None:
            continue
        student = log_p(policy, row.token_ids, places)
        with torch.no_grad():
            teacher = log_p(policy, row.teacher_ids, places + row.teacher_shift)
            kept = student.topk(min(top_k, 64), -1).indices
        p, q = (torch.cat([d := x.exp().gather(-1, kept), 1 - d.sum(-1, keepdim=True)], -1) for x in (student, teacher))
        p, q = p.clamp(min=1e-7), q.clamp(min=1e-7)
        m = 0.3 * q + 0.7 * p
        total = total + (0.3 * q * (q / m).log() + 0.7 * p * (p / m).log()).sum()
    (total / tokens).backward()  # type: ignore[no-untyped-call]
    algorithm = Algorithm(distillation="opsd", divergence="jsd", distill_coef=1.0, jsd_alpha=0.3, jsd_top_k=top_k)
    engine, metrics = train(rows, algorithm)
    assert torch.allclose(engine.gradients[0], policy.causal_lm.get_input_embeddings().weight.grad, atol=2e-6)
    assert metrics["loss"] == pytest.approx(float(total.detach()) / tokens, abs=1e-6)
    taught = sum(row.num_loss_tokens for row in rows.rows if row.teacher_ids is not None)
    assert metrics["distill"]["loss"] == pytest.approx(float(total.detach()) / taught, abs=1e-6)


def test_micro_batches_and_chunks_do_not_change_the_divergence() -> None:
    algorithm = Algorithm(distillation="rised", divergence="jsd", distill_coef=0.5, jsd_top_k=5)
    whole, _ = train(made(), algorithm)
    chunked, _ = train(made(), algorithm, engine=PlainEngine(tiny_policy(chunk_elements=64 * 3)))
    assert same_gradient(whole, chunked)


def test_the_reference_pulls_back_to_the_start() -> None:
    rows, algorithm = made([1, 1, 1]), Algorithm(kl_coef=0.5)
    start = Shadow(tiny_policy(), CPU)
    at_start, metrics = train(rows, algorithm, reference=start)
    assert metrics["kl_reference"] == pytest.approx(0, abs=1e-9)
    assert at_start.gradients[0].abs().max() < 1e-6
    _, metrics = train(rows, algorithm, engine=PlainEngine(tiny_policy(seed=1)), reference=start)
    assert metrics["kl_reference"] > 1e-3
    assert metrics["loss"] == pytest.approx(0.5 * metrics["kl_reference"], rel=1e-5)
    assert metrics["tokens"]["reference"] == sum(len(row.token_ids) for row in rows.rows)
    with pytest.raises(ValueError, match=r"kl_coef = 0\.5 and no reference was given"):
        train(rows, algorithm)
