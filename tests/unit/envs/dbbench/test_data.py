"""Files in upstream's form: what becomes a task, what is skipped, and who is held out."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.dbbench.data import draw, load, select
from envs.dbbench.fingerprint import row_hash, table_hash, tables_hash
from envs.dbbench.records import Record, Skipped, read_record
from stream_rl.errors import ConfigError

HASH = "0123456789abcdef0123456789abcdef"


def row(**changes: Any) -> dict[str, Any]:
    """A row as upstream writes them; `columns` and `rows` go into its table."""
    columns, rows = changes.pop("columns", ["a", "b"]), changes.pop("rows", [["1", "x"]])
    table = {"table_name": "t", "table_info": {"columns": [{"name": c, "type": "INT"} for c in columns], "rows": rows}}
    made = {"description": "What is a?", "label": ["1"], "type": ["other"], "table": table, "add_description": "about"}
    return {**made, **changes}


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(name: str, *rows: Any) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")
        return path

    return to


def test_a_question() -> None:
    record = read_record("dev:3", row(type=["aggregation-MAX"], sql={"query": "SELECT a", "length": 8}))
    assert isinstance(record, Record)
    assert (record.kind, record.answers, record.gold, record.changes) == ("SELECT", ("1",), "SELECT a", False)
    assert record.tables[0].columns == ("a", "b")


def test_a_change() -> None:
    record = read_record(
        "x:0", row(type=["INSERT"], label=["INSERT INTO t"], answer_md5=f"[('{HASH}',)]", rows=[[1, None]])
    )
    assert isinstance(record, Record)
    assert (record.kind, record.gold, record.expected, record.answers) == ("INSERT", "INSERT INTO t", HASH, ())
    assert record.tables[0].rows == (("1", "None"),)  # as upstream turns values into text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"columns": ["", "b"]}, "empty column name"),
        ({"columns": ["A", "a"]}, "two columns"),
        ({"columns": ["a ", "b"]}, "ending in a space"),
        ({"rows": [["1"]]}, "not as long"),
        ({"columns": [], "rows": []}, "no columns"),
        ({"label": []}, "no answer"),
        ({"type": ["UPDATE"], "label": []}, "how to get there"),
        ({"user_sqlite": True}, "SQLite file"),
        ({"table": []}, "no table"),
    ],
)
def test_rows_that_cannot_be_tasks(changes: dict[str, Any], reason: str) -> None:
    skipped = read_record("dev:0", row(**changes))
    assert isinstance(skipped, Skipped)
    assert reason in skipped.reason


def test_a_folder_is_all_its_files_and_skipped_rows_are_warned_of(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write("dev.jsonl", row(), row(columns=["", "b"]), row())
    path = write("standard.jsonl", row(description="Other?"))
    (path.parent / "notes.txt").write_text("no data")
    with caplog.at_level(logging.WARNING):
        data = load(str(path.parent))
    assert [record.id for record in data.records] == ["dev:0", "dev:2", "standard:0"]
    assert [skipped.id for skipped in data.skipped] == ["dev:1"]
    assert "row 1 of" in caplog.text
    assert "empty column name" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.jsonl", "{", "row 0: not JSON"),
        ("x.jsonl", '{"description": 1}', "row 0: not a DBBench task"),
        ("x.jsonl", "", "no usable"),
        ("x.json", "{}", "expected a list"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str, content: str, problem: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        load(str(path))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a file nor a folder"):
        load(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no"):
        load(str(tmp_path / "empty"))


def test_splits_share_no_table_and_lose_none(write: Write) -> None:
    rows = [row(description=f"{i} {kind}?", rows=[[str(i), "x"]]) for i in range(100) for kind in "ab"]
    records = load(str(write("many.jsonl", *rows))).records
    train, held_out = select(records, "train", "tables"), select(records, "held_out", "tables")
    assert {record.id for record in train} | {record.id for record in held_out} == {record.id for record in records}
    assert not {record.tables for record in train} & {record.tables for record in held_out}
    assert 20 <= len(held_out) <= 64  # about one in five of 200

    elsewhere = load(str(write("other.jsonl", *rows[::-1]))).records
    assert {r.question for r in select(elsewhere, "held_out", "tables")} == {r.question for r in held_out}


def test_upstreams_files_are_a_split(write: Write) -> None:
    write("dev.jsonl", row())
    records = load(str(write("standard.jsonl", row(), row()).parent)).records
    assert [record.id for record in select(records, "train", "files")] == ["dev:0"]
    assert [record.id for record in select(records, "held_out", "files")] == ["standard:0", "standard:1"]


def test_every_pass_draws_every_task_once_in_an_order_of_its_own(write: Write) -> None:
    records = load(str(write("d.jsonl", *[row(description=f"{i}?") for i in range(20)]))).records
    passes = [[draw(records, "train", 20 * turn + i).id for i in range(20)] for turn in range(2)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(record.id for record in records)
    assert passes[0] != passes[1]
    assert [draw(records, "train", i).id for i in range(20)] == passes[0]


def test_hashes_worked_by_hand() -> None:
    """Md5sum of "a" begins 0cc17, of "b" 92eb5; of "0cc17,92eb5" it is as below."""
    assert row_hash(["a"]) == "0cc17"
    assert row_hash([None, "a", None]) == "0cc17"
    assert table_hash(["92eb5", "0cc17"]) == TWO_ROWS
    assert tables_hash(["b", "a"]) == "a_b"


TWO_ROWS = "cc7f7ee521807dc90b2c940ace622608"
