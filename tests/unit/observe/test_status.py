from __future__ import annotations

from stream_rl.observe.status import render_status
from tests.unit.observe.samples import ALARM, eval_record

STATUS = {
    "run": "night",
    "phase": "training",
    "wall_s": 200.0,
    "train_s": 150.0,
    "version": 12,
    "updates": 40,
    "async_depth": 1,
    "permits": {"taken": 30, "free": 2, "capacity": 32},
    "groups": {"candidate": 4, "leased": 20},
    "success": {"train": 0.5, "by_env": {}},
    "lag": {"max": 1},
    "eval": eval_record(10, train_s=120, success=0.4, stderr=0.025),
    "judge": {"waiting": 3, "problem": None},
    "producers": [{"name": "producer-0", "engine": "vllm", "version": 12, "rollouts": 160, "capacity": 256}],
    "learner": {"version": 12, "waiting": True},
    "alarms": [ALARM],
}


def test_one_line_for_each_role() -> None:
    lines = {line.split()[0]: line for line in render_status(STATUS).splitlines()}
    assert "version 12 of 40" in lines["run"]
    assert "30 of 32 permits taken" in lines["orchestrator"]
    assert "160 of 256 rollouts" in lines["producer-0"]
    assert "waits for groups" in lines["learner"]
    assert "3 transcripts wait" in lines["judge"]
    assert "0.400 +- 0.025 at version 10" in lines["held-out"]
    assert "ALARM at update 9" in lines["alarm"]


def test_what_is_missing_is_said() -> None:
    text = render_status(STATUS | {"producers": [], "learner": None, "judge": {"waiting": 0, "problem": "no answer"}})
    assert "none is connected" in text
    assert "not connected" in text
    assert "no answer" in text


def test_a_run_that_is_over_shows_no_roles_but_what_happened_last() -> None:
    over = {"run": "night", "phase": "not running", "version": 40, "last_event": {"type": "finished", "version": 40}}
    text = render_status(over)
    assert "finished at version 40" in text
    assert "producers" not in text
    assert render_status({})
