from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stream_rl.observe.rundir import append_json, keep_json_lines
from stream_rl.page.follow import DamagedRecords, Follower


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(path)
    assert follower.read(10) == ([], False)
    append_json(path, {"step": 0})
    append_json(path, {"step": 1})
    assert follower.read(10) == ([{"step": 0}, {"step": 1}], False)
    append_json(path, {"step": 2})
    assert follower.read(10) == ([{"step": 2}], False)
    assert follower.read(10) == ([], False)
    assert follower.generation == 0


def test_a_limit_leaves_the_rest_for_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in range(5):
        append_json(path, {"step": step})
    follower = Follower(path)
    assert follower.read(3) == ([{"step": 0}, {"step": 1}, {"step": 2}], True)
    assert follower.read(3) == ([{"step": 3}, {"step": 4}], False)


def test_a_torn_line_is_left_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":0}\n{"ste', encoding="utf-8")
    follower = Follower(path)
    assert follower.read(10) == ([{"step": 0}], False)
    with path.open("a", encoding="utf-8") as file:
        file.write('p":1}\n')
    assert follower.read(10) == ([{"step": 1}], False)


def test_a_resumed_run_is_read_again_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in range(4):
        append_json(path, {"step": step})
    follower = Follower(path)
    follower.read(10)
    keep_json_lines(path, 2, "step")
    append_json(path, {"step": 2, "again": True})
    assert follower.read(10) == ([{"step": 0}, {"step": 1}, {"step": 2, "again": True}], False)
    assert follower.generation == 1


def test_a_file_cut_short_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_json(path, {"step": 0})
    append_json(path, {"step": 1})
    follower = Follower(path)
    follower.read(10)
    os.truncate(path, len(json.dumps({"step": 0}, separators=(",", ":"))) + 1)
    assert follower.read(10) == ([{"step": 0}], False)
    assert follower.generation == 1


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":0}\nnonsense\n', encoding="utf-8")
    with pytest.raises(DamagedRecords, match=r"metrics\.jsonl, line 2"):
        Follower(path).read(10)
