from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream_rl.cli import main
from stream_rl.observe.rundir import RunDirectory, append_json
from tests.unit.observe.samples import eval_record, metrics_line


def run(root: Path, config: str, end: float) -> Path:
    made = RunDirectory.create(root)
    made.config.write_text(config, encoding="utf-8")
    append_json(made.eval, eval_record(0, train_s=0.0, success=0.25))
    for step in range(2):
        append_json(made.metrics, metrics_line(step, train_s=4.0 * (step + 1)))
    append_json(made.eval, eval_record(2, train_s=8.0, success=end))
    return root


def test_table_page_picture_and_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that is left out and one that is written with its default are one setting."""
    runs = [run(tmp_path / f"a-{i}", f"seed = {i}\n" + i * "async_depth = 1\n", 0.5 + 0.1 * i) for i in range(2)]
    runs.append(run(tmp_path / "b-0", "async_depth = 2\n", 0.6))
    assert main(["compare", *map(str, runs), "--to", str(tmp_path / "c")]) == 0
    text = capsys.readouterr().out
    assert "async_depth = 1" in text.splitlines()[0]
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["comparison.json", "comparison.md", "comparison.png"]
    assert (tmp_path / "c" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert main(["compare", *map(str, runs), "--to", str(tmp_path / "c"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((tmp_path / "c" / "comparison.json").read_text(encoding="utf-8"))
    assert [group["runs"] for group in facts["groups"]] == [["a-0", "a-1"], ["b-0"]]
    assert facts["groups"][0]["cells"]["final"]["mean"] == pytest.approx(0.55)


def test_wrong_usage_says_what_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path / "a", "", 0.5)
    assert main(["compare", str(one), str(one)]) == 2
    assert "named twice" in capsys.readouterr().err
    empty = RunDirectory.create(tmp_path / "empty")
    empty.config.write_text("", encoding="utf-8")
    assert main(["compare", str(one), str(empty.root)]) == 2
    assert "nothing yet" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "nowhere")]) == 2
    assert "no run" in capsys.readouterr().err
