from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
import torch

from learner.metrics import update_metrics
from learner.objective import Objective
from learner.rows import Row, Rows, build_rows
from learner.update import TrainingDiverged, run_update
from stream_rl.config import Algorithm
from stream_rl.messages import SelectedGroup
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, tiny_policy

GRPO = Algorithm()
RISED = Algorithm(distillation="rised", distill_coef=0.1)


def rows_of(*groups: SelectedGroup) -> Rows:
    return build_rows(groups, version=0, algorithm=Algorithm(), renderer=WordRenderer(), max_model_len=256)


def objective(algorithm: Algorithm, mini_batches: int = 1, episode_tokens: int = 10) -> Objective:
    return Objective(algorithm=algorithm, episode_tokens=episode_tokens, token_budget=128, mini_batches=mini_batches)


def train(
    engine: PlainEngine, rows: Rows, goal: Objective
) -> tuple[dict[str, object], Sequence[float | None], list[str]]:
    states: list[str] = []
    sums, norms = run_update(engine, rows.rows, goal, update=0, seed=(0, 0), enter=states.append)
    return update_metrics(sums.reduced(list), sums.lags, rows, norms), norms, states


@pytest.mark.parametrize("rewards", [[1, 1, 1], [0, 0, 0]], ids=["all_pass", "all_fail"])
def test_groups_without_spread_teach_only_through_the_teacher(rewards: list[float]) -> None:
    engine = PlainEngine(tiny_policy())
    before = [p.detach().clone() for p in engine.policy.parameters()]
    metrics, norms, _ = train(engine, rows_of(group("g", rewards)), objective(GRPO, mini_batches=2))
    assert norms == [None, None]
    assert metrics["steps"] == {"taken": 0, "skipped": 2}
    assert metrics["entropy"] > 0  # type: ignore[operator]
    assert all(torch.equal(a, b) for a, b in zip(before, engine.policy.parameters(), strict=True))
    assert engine.gradients == []
    metrics, norms, _ = train(engine, rows_of(group("g", rewards, hint="search")), objective(RISED, mini_batches=2))
    assert all(norm is not None and norm > 0 for norm in norms)
    assert metrics["distill"]["share"] == 1.0  # type: ignore[index]
    assert engine.gradients[0].abs().max() > 0


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_the_gap_is_exactly_zero_without_a_hint_text(mini_batches: int) -> None:
    engine = PlainEngine(tiny_policy())
    metrics, _, _ = train(engine, rows_of(group("g", [1, 0, 1, 0], hint="")), objective(RISED, mini_batches))
    distill = metrics["distill"]
    assert isinstance(distill, dict)
    assert (distill["d_mean"], distill["d_std"], distill["share"], distill["loss"]) == (0.0, 0.0, 1.0, 0.0)
    assert metrics["tokens"]["teacher"] == 0  # type: ignore[index]


def test_another_hint_is_another_gradient() -> None:
    gradients = []
    for hint in ("search", "open"):
        engine = PlainEngine(tiny_policy())
        train(engine, rows_of(group("g", [0, 0, 0], hint=hint)), objective(RISED))
        gradients += engine.gradients
    assert not torch.allclose(gradients[0], gradients[1])


def test_the_teacher_gets_no_gradient_and_passes_come_in_order() -> None:
    engine = PlainEngine(tiny_policy())
    rows = rows_of(group("g", [1, 0, 1, 0], hint="search"))
    _, _, states = train(engine, rows, objective(RISED, mini_batches=2))
    assert states == ["unpack", "prox", "teacher", "train", "other"]
    graph_from = engine.passes.index(True)
    assert not any(engine.passes[:graph_from])
    assert all(engine.passes[graph_from:])


def test_on_policy_weights_are_one_when_the_sampler_is_the_policy() -> None:
    engine = PlainEngine(tiny_policy())
    rows = rows_of(group("g", [1, 0, 1, 0]))
    first, _, _ = train(PlainEngine(tiny_policy()), rows, objective(GRPO))
    assert first["kl_behavior"] > 0.01  # type: ignore[operator]
    scored = []
    for row in rows.rows:  # give the rows the policy's own log-probabilities
        ids = torch.from_numpy(row.token_ids.astype("int64"))[None]
        with torch.no_grad():
            log_p = torch.log_softmax(engine.policy.causal_lm(input_ids=ids, use_cache=False).logits[0], -1)
        own = row.behavior_logprobs.copy()
        for place in row.loss_mask.nonzero()[0]:
            own[place] = float(log_p[place - 1, ids[0, place]])
        scored.append(msgspec.structs.replace(row, behavior_logprobs=own))
    metrics, _, _ = train(engine, Rows(rows=tuple(scored)), objective(GRPO))
    assert metrics["kl_behavior"] == pytest.approx(0, abs=1e-9)
    assert metrics["ess"] == pytest.approx(1, abs=1e-9)
    # balanced advantages, unequal lengths: loss is -sum(A) / M at ratio 1
    total = sum(float(row.advantages.sum()) for row in scored)
    assert metrics["loss"] == pytest.approx(-total / sum(r.num_loss_tokens for r in scored), abs=1e-6)
    assert metrics["clip_share"] == 0


def test_without_correction_the_ratio_is_taken_to_the_sampler() -> None:
    algorithm = Algorithm(correction="none", clip_low=0.999, clip_high=1e9, dual_clip=1e9)
    rows = rows_of(group("g", [1, 0, 1, 0]))
    engine = PlainEngine(tiny_policy())
    metrics, _, _ = train(engine, rows, objective(algorithm, mini_batches=2))
    assert engine.passes.count(False) == 0  # no prox pass
    assert metrics["kl_behavior"] > 0  # type: ignore[operator]


def test_dr_grpo_divides_by_a_constant() -> None:
    rows = rows_of(group("g", [1, 0]))
    tokens = sum(row.num_loss_tokens for row in rows.rows)
    by_tokens, _, _ = train(PlainEngine(tiny_policy()), rows, objective(GRPO))
    goal = objective(Algorithm(advantage="dr_grpo"), episode_tokens=50)
    by_constant, _, _ = train(PlainEngine(tiny_policy()), rows, goal)
    assert by_constant["loss"] * 100 == pytest.approx(by_tokens["loss"] * tokens, rel=1e-5)  # type: ignore[operator]


def test_micro_batches_do_not_change_the_gradient() -> None:
    rows = rows_of(group("g", [1, 0, 1, 0], hint="search"), group("h", [1, 0, 0]))
    gradients = []
    for budget in (1, 60, 10**4):
        engine = PlainEngine(tiny_policy())
        train(engine, rows, msgspec.structs.replace(objective(RISED), token_budget=budget))
        gradients += engine.gradients
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)
    assert torch.allclose(gradients[0], gradients[2], atol=1e-6)


class _Everything(Objective, frozen=True, kw_only=True):
    """The same objective, which takes every row for one that can move a parameter."""

    def has_signal(self, row: Row) -> bool:
        return True


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_rows_without_a_signal_cost_nothing_and_change_nothing(mini_batches: int) -> None:
    """Three groups of eight rows, one of which can be compared: a quarter of the rows is read at all."""
    mixed = group("mixed", [1, 0])
    rows = rows_of(group("pass", [1, 1, 1]), mixed, group("fail", [0, 0, 0]))
    goal = msgspec.structs.replace(objective(GRPO, mini_batches), token_budget=1)  # a micro-batch for each row
    lean, full = PlainEngine(tiny_policy()), PlainEngine(tiny_policy())
    found, _, _ = train(lean, rows, goal)
    everything = _Everything(**{f: getattr(goal, f) for f in goal.__struct_fields__})
    wanted, _, _ = train(full, rows, everything)
    for a, b in zip(lean.policy.parameters(), full.policy.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-7)
    assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-6)
    assert found["tokens"] == wanted["tokens"]
    num_tokens = sum(row.num_loss_tokens for row in rows.rows)
    spread = sum(row.num_loss_tokens for row in rows_of(mixed).rows)
    assert found["advantage"]["zero_share"] == pytest.approx(1 - spread / num_tokens)  # type: ignore[index]
    assert (lean.passes.count(True), full.passes.count(True)) == (2, 8)
    needs_prox = mini_batches == 2
    assert lean.passes.count(False) <= needs_prox  # of the second mini-batch, if one of the two rows is in it


def test_an_update_without_a_signal_is_measured_and_takes_no_step() -> None:
    rows = rows_of(group("pass", [1, 1, 1]), group("fail", [0, 0, 0]))
    engine, before = PlainEngine(tiny_policy()), PlainEngine(tiny_policy())
    found, norms, _ = train(engine, rows, objective(GRPO, mini_batches=2))
    for a, b in zip(engine.policy.parameters(), before.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    assert norms == [None, None]
    assert engine.passes.count(True) == 0
    assert found["kl_behavior"] > 0.01  # type: ignore[operator]  # what was sampled is not of this policy
    assert found["tokens"]["trained"] == sum(row.num_loss_tokens for row in rows.rows)  # type: ignore[index]


def test_an_empty_update_is_an_update() -> None:
    metrics, norms, _ = train(PlainEngine(tiny_policy()), Rows(rows=()), objective(GRPO, mini_batches=2))
    assert norms == []
    assert metrics["rows"] == 0
    assert metrics["tokens"] == {"trained": 0, "teacher": 0, "reference": 0}


def test_divergence_is_an_error() -> None:
    engine = PlainEngine(tiny_policy())
    with torch.no_grad():
        engine.policy.causal_lm.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(TrainingDiverged, match="nan"):
        train(engine, rows_of(group("g", [1, 0])), objective(GRPO))


def test_lags_are_told_apart() -> None:
    rows = build_rows(
        [group("g", [1, 0], version=2), group("h", [1, 0], version=1)],
        version=2,
        algorithm=Algorithm(),
        renderer=None,
        max_model_len=256,
    )
    metrics, _, _ = train(PlainEngine(tiny_policy()), rows, objective(GRPO))
    by_lag = metrics["mismatch"]["kl_by_lag"]  # type: ignore[index]
    assert set(by_lag) == {"0", "1"}
    assert min(by_lag.values()) > 0
