from __future__ import annotations

from typing import Any

import pytest

from stream_rl.observe.advice import Facts, advise


def test_a_healthy_run_gets_none() -> None:
    facts = Facts(
        learner={"rollout_wait": 0.1, "train": 0.9},
        producers={"producer-0": {"generate": 0.9, "environment": 0.1}},
        all_pass=0.2,
        all_fail=0.3,
        abstained=0.0,
    )
    assert advise(facts) == ()
    assert advise(Facts()) == ()


def test_waiting_for_rollouts_says_how_much_and_what_to_change() -> None:
    (line,) = advise(Facts(learner={"rollout_wait": 0.41}))
    assert "41%" in line
    assert "generate.producers" in line
    assert "async_depth" in line


def test_a_busy_generator_asks_for_a_producer_and_an_idle_one_for_depth() -> None:
    known: dict[str, Any] = {
        "learner": {"rollout_wait": 0.41},
        "producers": {"producer-0": {}, "producer-1": {}},
        "async_depth": 2,
    }
    (busy,) = advise(Facts(**known, generators={"generate": 0.9, "idle": 0.1}))
    assert "add a producer (generate.producers = 3); async_depth = 3 would not help" in busy
    (idle,) = advise(Facts(**known, generators={"generate": 0.3, "idle": 0.7}))
    assert "busy 30% of theirs only, so run further ahead (async_depth = 3)" in idle


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        (Facts(learner={"judge_wait": 0.2}), "judge endpoint"),
        (Facts(learner={"publish": 0.2}), "weights.directory"),
        (Facts(learner={"teacher": 0.4}), "hint_support"),
        (Facts(producers={"producer-1": {"wait_for_lease": 0.5}}), "producer-1 had nothing to do"),
        (Facts(producers={"producer-1": {"paused_for_sync": 0.2}}), "groups.per_update"),
        (Facts(producers={"producer-1": {"environment": 0.5}}), "workers"),
        (Facts(producers={"producer-1": {"wait_for_credit": 0.2}}), "loop_lag"),
        (Facts(orchestrator={"ledger": 0.5, "idle": 0.5}), "faster disk"),
        (Facts(lost={"stale": 0.1}), "max_lag"),
        (Facts(lost={"too_few_valid": 0.1}), "events.jsonl"),
        (Facts(lost={"other_reason": 0.1}), "other reason"),
        (Facts(all_fail=0.7), "easier tasks"),
        (Facts(all_pass=0.7), "harder tasks"),
        (Facts(abstained=0.3), "judge"),
        (Facts(gain_unclear=True), "eval.tasks"),
    ],
)
def test_each_rule_names_the_key_to_change(facts: Facts, key: str) -> None:
    (line,) = advise(facts)
    assert key in line
