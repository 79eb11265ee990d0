"""Episodes recorded from the upstream program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.webshop.check import replay_transcripts
from stream_rl.errors import UsageError
from tests.unit.envs.webshop.builders import RECORDED, needs_recordings


@needs_recordings
def test_every_recorded_step_is_matched() -> None:
    recorded = RECORDED / "golden_transcripts.json"
    steps = sum(len(episode["steps"]) for episode in json.loads(recorded.read_text()))
    assert steps > 0
    assert replay_transcripts(RECORDED, recorded) == {"steps": steps, "mismatches": 0}


@needs_recordings
@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("reward", 0.123, "reward"),
        ("done", False, "done"),
        ("obs", "x", "observation"),
        ("rich", "x", "rich observation"),
        ("av", {"has_search_bar": True, "clickables": []}, "clickables"),
    ],
)
def test_a_difference_is_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: object, told: str
) -> None:
    episode = json.loads((RECORDED / "golden_transcripts.json").read_text())[0]
    episode["steps"][-1][key] = value
    changed = tmp_path / "transcripts.json"
    changed.write_text(json.dumps([episode]))
    steps = len(episode["steps"])
    assert replay_transcripts(RECORDED, changed) == {"steps": steps, "mismatches": 1}
    assert f"goal 0, step {steps - 1} differs in {told}" in caplog.text


@needs_recordings
def test_a_goal_that_the_data_does_not_have_is_a_mismatch(tmp_path: Path) -> None:
    episode = json.loads((RECORDED / "golden_transcripts.json").read_text())[0]
    (tmp_path / "t.json").write_text(json.dumps([episode | {"goal_idx": 5000}]))
    assert replay_transcripts(RECORDED, tmp_path / "t.json")["mismatches"] == 1


@pytest.mark.parametrize("text", [None, "", "{}", '[{"goal_idx": 0}]'])
def test_a_file_without_recordings_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "transcripts.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=r"transcripts\.json holds no recorded episodes"):
        replay_transcripts(tmp_path, path)
