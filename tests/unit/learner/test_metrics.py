from __future__ import annotations

import msgspec
import numpy as np
import pytest

from learner.metrics import STATES, Sums, response_metrics, time_metrics, update_metrics
from learner.row_facts import row_facts
from learner.rows import Row, Rows
from tests.unit.learner.builders import trajectory


def test_time_keys_are_the_contract_and_add_up() -> None:
    states = {state: float(2**i) for i, state in enumerate(STATES)}
    found = time_metrics(states)
    learner = dict(found["learner"])
    total = learner.pop("total_s")
    assert total == 2.0 ** len(STATES) - 1
    assert sum(learner.values()) == total
    assert learner["other_s"] == states["other"] + states["unpack"] + states["checkpoint"]
    assert found["learner_other"] == {"unpack_s": states["unpack"], "checkpoint_s": states["checkpoint"]}


def test_ranks_are_added_before_any_mean() -> None:
    # rank 0: 3 tokens with entropy sum 3; rank 1: 1 token with entropy 5. The mean is 2, not 3.
    sums = Sums(lags=[0])
    sums.add("tokens", 3)
    sums.add("entropy", 3)
    sums.add("gap.tokens", 2)
    sums.add("gap.total", 2)
    sums.add("gap.squares", 4)
    other = {"tokens": 1.0, "entropy": 5.0, "loss": 0.5, "gap.tokens": 2.0, "gap.total": -2.0, "gap.squares": 4.0}

    def reduce(values: object) -> list[float]:
        assert isinstance(values, list)
        names = list(sums.reduced(list))
        return [value + other.get(name, 0.0) for name, value in zip(names, values, strict=True)]

    found = update_metrics(sums.reduced(reduce), [0], Rows(rows=(), dropped_teachers=3), [2.0, None])
    assert found["entropy"] == 2.0
    assert found["loss"] == 0.25  # over two mini-batches
    assert found["grad_norm"] == 2.0  # over steps that were taken
    assert found["steps"] == {"taken": 1, "skipped": 1}
    # D over 4 tokens: mean 0, mean square 2
    assert found["distill"] == {
        "d_mean": 0.0,
        "d_std": pytest.approx(2**0.5),
        "share": 1.0,
        "loss": None,  # nothing was measured, which is not 0
        "correction_abs": None,
        "dropped_rows": 3,
    }
    assert found["kl_reference"] is None


def test_means_of_what_is_measured_only_somewhere() -> None:
    sums = Sums(lags=[])
    given = {
        "tokens": 8,
        "capped": 2,
        "rejected": 4,
        "reference_tokens": 100,
        "kl_reference.total": 2,
        "kl_reference.tokens": 8,
        "distill.total": -3,
        "distill.tokens": 6,
        "correction.total": 1,
        "correction.tokens": 4,
    }
    for name, value in given.items():
        sums.add(name, value)
    found = update_metrics(sums.reduced(list), [], Rows(rows=()), [])
    assert found["kl_reference"] == 0.25
    assert found["mismatch"]["capped_share"] == 0.25
    assert found["mismatch"]["rejected_share"] == 0.5
    assert found["distill"]["loss"] == -0.5
    assert found["distill"]["correction_abs"] == 0.25
    assert found["tokens"] == {"trained": 0, "teacher": 0, "reference": 100}  # of the rows, and there is none


def test_facts_of_rows_by_hand() -> None:
    """Three loss tokens of size 0.5, one of size 0, and a prompt that counts nowhere."""
    rows = [_row([0.0, 0.5, 0.5]), _row([9.0, -0.5, 0.0])]
    assert row_facts(rows) == {
        "rows": 2,
        "advantage": {"abs_mean": 0.375, "zero_share": 0.25},
        "tokens": {"trained": 4},
    }
    assert row_facts([])["advantage"] == {"abs_mean": None, "zero_share": None}


def _row(advantages: list[float]) -> Row:
    tokens = len(advantages)
    return Row(
        group_id="g",
        trajectory_id="g/0",
        lag=0,
        token_ids=np.zeros(tokens, dtype=np.int32),
        loss_mask=np.arange(tokens) > 0,
        behavior_logprobs=np.zeros(tokens, dtype=np.float32),
        advantages=np.asarray(advantages, dtype=np.float32),
    )


def test_an_undeclared_sum_is_refused() -> None:
    with pytest.raises(KeyError):
        Sums(lags=[0]).add("lag.1.kl", 1.0)


def test_responses_of_valid_members_only() -> None:
    cut = trajectory("g", 0, 1.0, turns=2)
    cut = msgspec.structs.replace(cut, turns=(cut.turns[0], msgspec.structs.replace(cut.turns[1], cut=True)))
    found = response_metrics([cut, trajectory("g", 1, 0.0, turns=6), trajectory("g", 2, 0.0, error="crashed")])
    assert found == {"response": {"tokens_mean": 8.0, "tokens_max": 12}, "cut_share": 1 / 8}
    assert response_metrics([]) == {"response": {"tokens_mean": None, "tokens_max": 0}, "cut_share": None}
