from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.sinks.points import point_of
from stream_rl.sinks.port import RunFacts
from stream_rl.sinks.prometheus import FILE, PrometheusSink, prometheus_text
from tests.unit.observe.samples import eval_record, metrics_line

STATUS: dict[str, Any] = {
    "run": 'a "run"',
    "phase": "training",
    "wall_s": 12.5,
    "train_s": 8.0,
    "version": 2,
    "updates": 40,
    "async_depth": 1,
    "paused": False,
    "permits": {"taken": 24, "free": 8, "capacity": 32},
    "groups": {"leased": 20, "candidate": 4},
    "eval": eval_record(0, train_s=0.0, success=0.25),
    "judge": {
        "waiting": 3,
        "problem": None,
        "endpoints": [{"url": "http://judge/v1", "model": "back\\slash", "in_flight": 2, "p95_s": 0.5, "p50_s": None}],
    },
    "producers": [{"name": "producer-0", "engine": "vllm", "version": 2, "rollouts": 160, "capacity": 256}],
    "learner": {"version": 2, "waiting": True},
}
LABELLED = ('stream_rl_update_learner_seconds{part="rollout_wait"} 1.0', 'stream_rl_update_lag_groups{lag="1"} 8.0')


def parsed(text: str) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By the parser of Prometheus' own client. Skips where it is missing."""
    try:
        parser = importlib.import_module("prometheus_client.parser")
    except ModuleNotFoundError:
        pytest.skip("prometheus_client is not installed")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_format_is_that_of_the_specification() -> None:
    """Families stand together, each with HELP and TYPE before its samples; quotes and backslashes escaped."""
    lines = prometheus_text(STATUS, metrics_line(1, train_s=8.0)).splitlines()
    assert r'stream_rl_info{run="a \"run\"",phase="training"} 1.0' in lines
    assert r'stream_rl_judge_endpoint_in_flight{url="http://judge/v1",model="back\\slash"} 2.0' in lines
    assert lines.index("# TYPE stream_rl_permits gauge") == lines.index('stream_rl_permits{state="taken"} 24.0') - 1
    assert (
        lines.index('stream_rl_permits{state="free"} 8.0') == lines.index('stream_rl_permits{state="taken"} 24.0') + 1
    )
    for line in LABELLED:
        assert line in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert prometheus_text(STATUS, None).endswith("\n")


def test_the_reference_parser_reads_back_what_was_measured() -> None:
    found = parsed(prometheus_text(STATUS, metrics_line(1, train_s=8.0)))
    assert found["stream_rl_info", (("phase", "training"), ("run", 'a "run"'))] == 1
    assert found["stream_rl_running", ()] == 1
    assert found["stream_rl_version", ()] == 2
    assert found["stream_rl_update", ()] == 1
    assert found["stream_rl_update_loss", ()] == 0.01
    assert found["stream_rl_groups", (("stage", "leased"),)] == 20
    assert found["stream_rl_eval_success", (("environment", "overall"),)] == 0.25
    assert found["stream_rl_eval_success", (("environment", "household"),)] == 0.25
    assert found["stream_rl_update_success_by_env", (("environment", "household"),)] == 0.25
    assert found["stream_rl_update_role_seconds", (("role", "producer-0"), ("state", "generate"))] == 3
    assert found["stream_rl_update_tokens", (("kind", "generated"),)] == 8000
    assert found["stream_rl_producer_rollouts", (("producer", "producer-0"),)] == 160
    assert found["stream_rl_judge_up", ()] == 1
    assert found["stream_rl_learner_waiting", ()] == 1
    endpoint = (("model", "back\\slash"), ("url", "http://judge/v1"))
    assert found["stream_rl_judge_endpoint_p95_seconds", endpoint] == 0.5
    assert ("stream_rl_judge_endpoint_p50_seconds", endpoint) not in found, "it was not measured"


def test_a_run_that_nobody_answers_for_is_told_from_one_without_updates() -> None:
    assert parsed(prometheus_text(None, None)) == {("stream_rl_running", ()): 0.0}
    assert parsed(prometheus_text({"permits": {}}, None)) == {("stream_rl_running", ()): 1.0}


TEXT = st.text(max_size=8)
TREE = st.recursive(
    st.one_of(st.floats(), st.integers(), st.none(), st.booleans(), TEXT),
    lambda inner: st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=80)
@given(st.dictionaries(st.one_of(TEXT, st.sampled_from(["roles", "lag", "by_env", "learner", "tokens"])), TREE))
def test_no_line_breaks_the_format(line: dict[str, Any]) -> None:
    """Worlds and roles may be called anything."""
    parsed(prometheus_text(None, line))


def test_the_file_holds_the_newest_update_and_evaluation(tmp_path: Path) -> None:
    sink = PrometheusSink(RunFacts(name="r", run_id="id", folder=tmp_path, config={}))
    for event in (
        {"type": "eval", **eval_record(0, train_s=0.0, success=0.25)},
        {"type": "update", **metrics_line(0, train_s=4.0)},
        {"type": "update", **metrics_line(1, train_s=8.0)},
    ):
        point = point_of(event)
        assert point is not None
        sink.write(point)
    sink.close()
    found = parsed((tmp_path / FILE).read_text(encoding="utf-8"))
    assert found["stream_rl_update", ()] == 1
    assert found["stream_rl_train_seconds", ()] == 8
    assert found["stream_rl_eval_success", (("environment", "overall"),)] == 0.25
    assert [p.name for p in tmp_path.iterdir()] == [FILE]
