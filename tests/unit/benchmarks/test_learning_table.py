from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.embedded_learning import write
from benchmarks.learning_table import Curve, plain_curve, render, stream_curve, summarise_curve
from tests.unit.observe.samples import eval_record, metrics_line


def stream(seed: int, *successes: float) -> Curve:
    """Evaluated every 100 training seconds; updates of 4 s, half of which trains."""
    lines = [metrics_line(i, train_s=4.0 * (i + 1)) for i in range(100)]
    evals = [eval_record(i, train_s=100.0 * i, success=success) for i, success in enumerate(successes)]
    return stream_curve("rised", seed, lines, evals)


def plain(seed: int, *successes: float) -> Curve:
    records: list[dict[str, Any]] = [
        {"type": "eval", "update": i, "train_s": 100.0 * i, "success": success, "stderr": 0.02}
        for i, success in enumerate(successes)
    ]
    records += [
        {"type": "update", "update": i, "train_s": 5.0 * (i + 1), "parts": {"generate_s": 3.0, "train_s": 2.0}}
        for i in range(80)
    ]
    return plain_curve("rised", seed, records)


def test_a_stream_run_is_judged_within_300_training_seconds() -> None:
    # 0.2, 0.4, 0.7 at 0, 100, 200 s; the evaluation at 400 s is too late. 60 % is two thirds of the way to 200 s.
    curve = stream(0, 0.2, 0.4, 0.7, 0.75, 0.9)
    row = summarise_curve(curve)
    assert row is not None
    assert (row.start, row.end) == (0.2, 0.75)
    assert row.gain == pytest.approx(0.55)
    assert row.to_threshold_s == pytest.approx(100 + 100 * 2 / 3)
    assert row.updates == 75
    assert row.update_s == pytest.approx(4.0)
    assert curve.update_s["train"] == 2.0


def test_the_plain_loop_is_judged_the_same_way() -> None:
    row = summarise_curve(plain(0, 0.2, 0.3, 0.5, 0.7))
    assert row is not None
    assert row.to_threshold_s == pytest.approx(250.0)
    assert row.updates == 60
    assert row.update_s == 5.0


def test_a_run_that_was_never_evaluated_has_no_line() -> None:
    assert summarise_curve(stream(0)) is None


def table_rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]


def test_the_table_has_a_line_a_seed_and_means_with_spread() -> None:
    page = render([stream(0, 0.2, 0.5, 0.6, 0.7), stream(1, 0.2, 0.4, 0.6, 0.8), plain(0, 0.2, 0.3, 0.5, 0.7)])
    header, _, first, second, mean = table_rows(page)
    assert header[4] == "s to 60%"
    assert first == ["0", "0.200", "0.700", "+0.500", "200", "75", "4.00", "0.700", "250", "5.00"]
    assert second == ["1", "0.200", "0.800", "+0.600", "200", "75", "4.00", "-", "-", "-"]
    # Standard deviation of 0.7 and 0.8 is 0.0707.
    assert mean[2] == "0.750 +- 0.071"
    assert mean[4] == "200 +- 0"
    assert mean[7] == "0.700"
    assert "rollout wait 1.00 s" in page
    assert "generate 3.00 s, train 2.00 s" in page


def test_seconds_are_averaged_only_when_every_seed_got_there() -> None:
    page = render([stream(0, 0.2, 0.7), stream(1, 0.2, 0.3)])
    *_, second, mean = table_rows(page)
    assert second[4] == "never"
    assert mean[4] == "1 of 2"


def test_results_are_page_picture_and_numbers(tmp_path: Path) -> None:
    curves = [stream(0, 0.2, 0.7), plain(0, 0.2, 0.6)]
    write(curves, tmp_path)
    assert "embedded_learning.png" in (tmp_path / "embedded_learning.md").read_text()
    assert (tmp_path / "embedded_learning.png").read_bytes()[:4] == b"\x89PNG"
    stored = json.loads((tmp_path / "embedded_learning.json").read_text())
    assert [c["system"] for c in stored] == ["stream", "plain"]


def test_nothing_finished_gives_a_page_without_tables(tmp_path: Path) -> None:
    write([], tmp_path)
    assert table_rows((tmp_path / "embedded_learning.md").read_text()) == []
