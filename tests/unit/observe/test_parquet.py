from __future__ import annotations

import importlib
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rl.errors import UsageError
from stream_rl.observe import parquet
from stream_rl.observe.archive import Archive
from stream_rl.observe.parquet import COLUMNS, write_parquet
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.types import Scores
from tests.unit import records
from tests.unit.ledgers import clean_and_lost, rollouts, rule_verdict, write_run

DOCS = Path(__file__).parents[3] / "docs" / "sinks.md"


@pytest.fixture
def pq() -> Any:
    """Skips where Parquet cannot be read."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        pytest.skip("pyarrow is not installed: pip install 'stream-rl[parquet]'")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two groups trained, one left out; one rollout scored, one failed; one of an evaluation."""
    run = write_run(tmp_path / "run", clean_and_lost())
    writer = Ledger(run.ledger, run.run_id)
    writer.add_scores(
        Scores(trajectory_id="g0/0", scores=(1.0, None), endpoint="http://judge/v1", model="m", prompt_tokens=7)
    )
    writer.add_trajectory(records.trajectory("g1", 2, versions=(3, 2), error="the world is gone"), "train")
    writer.add_trajectory(records.trajectory("eval-00000-x", 0, success=True, split="held_out"), "eval")
    writer.close()
    return run.ledger


def test_every_rollout_is_a_row_with_all_that_was_said_about_it(pq: Any, ledger: Path, tmp_path: Path) -> None:
    with Archive(ledger) as archive:
        facts = write_parquet(archive.rollouts(page=3), tmp_path / "t.parquet")
    rows = {row["trajectory_id"]: row for row in pq.read_table(tmp_path / "t.parquet").to_pylist()}
    assert (facts.rows, len(rows), facts.row_groups) == (8, 8, 1)
    first = rollouts(clean_and_lost()[0])[0]
    row = rows["g0/0"]
    assert list(row) == list(COLUMNS)
    assert (row["purpose"], row["group_state"], row["round"], row["task_index"]) == ("train", "selected", 0, 0)
    assert (row["reward"], row["success"], row["first_prompt"]) == (first.reward, first.success, first.first_prompt)
    assert [turn["action"] for turn in row["turns"]] == [turn.action for turn in first.turns]
    assert row["turns"][0]["spans"] == [msgspec.to_builtins(span) for span in first.turns[0].spans]
    # Two turns of one token each, after two of the prompt.
    assert rows["g1/2"]["samples"] == [
        {
            "token_ids": [1, 2, 7, 1, 2, 7],
            "loss_mask": [False, False, True, False, False, True],
            "behavior_logprobs": [0.0, 0.0, -0.5, 0.0, 0.0, -0.5],
            "head": [{"role": "user", "content": "task"}],
            "head_tokens": 2,
            "thinking": False,
        }
    ]
    assert [(turn["start"], turn["stop"]) for turn in rows["g1/2"]["turns"]] == [(2, 3), (5, 6)]
    assert {tag["rubric"]: tag["value"] for tag in row["tags"]} == {
        tag.rubric: tag.value for tag in rule_verdict(first).tags
    }
    assert (row["criterion_scores"], row["judge_tokens"]) == ([1.0, None], 7)


def test_what_there_is_not_is_null_and_not_zero(pq: Any, ledger: Path, tmp_path: Path) -> None:
    with Archive(ledger) as archive:
        write_parquet(archive.rollouts(), tmp_path / "t.parquet")
    rows = {row["trajectory_id"]: row for row in pq.read_table(tmp_path / "t.parquet").to_pylist()}
    held_out = rows["eval-00000-x/0"]
    for name in ("round", "seed", "group_state", "tags", "criterion_scores", "judge_model", "judge_tokens", "hint"):
        assert held_out[name] is None, name
    assert (held_out["purpose"], held_out["split"], held_out["error"]) == ("eval", "held_out", None)
    failed = rows["g1/2"]
    assert (failed["error"], failed["oldest_version"], failed["sampled_tokens"]) == ("the world is gone", 2, 2)
    assert (rows["g2/0"]["group_state"], rows["g2/0"]["discard_reason"]) == ("discarded", "not_selected")
    assert rows["g0/1"]["criterion_scores"] is None


def test_memory_is_bounded_by_a_row_group(
    pq: Any, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 3)
    with Archive(ledger) as archive:
        facts = write_parquet(archive.rollouts(page=2), tmp_path / "t.parquet")
    file = pq.ParquetFile(tmp_path / "t.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [3, 3, 2]
    assert facts.row_groups == 3


def test_a_run_without_rollouts_gives_an_empty_table(pq: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    with Archive(run.ledger) as archive:
        assert write_parquet(archive.rollouts(), tmp_path / "t.parquet").rows == 0
    assert pq.read_table(tmp_path / "t.parquet").column_names == list(COLUMNS)


def test_a_ledger_from_before_scores_is_read(pq: Any, ledger: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(ledger)
    writer.execute("DROP TABLE scores")
    writer.commit()
    writer.close()
    with Archive(ledger) as archive:
        assert write_parquet(archive.rollouts(), tmp_path / "t.parquet").rows == 8


def test_columns_are_described_in_the_file_and_in_the_docs(pq: Any, ledger: Path, tmp_path: Path) -> None:
    with Archive(ledger) as archive:
        write_parquet(archive.rollouts(), tmp_path / "t.parquet")
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert {f.name: f.metadata[b"description"].decode() for f in schema} == COLUMNS
    documented = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [name for name in documented if name in COLUMNS] == list(COLUMNS)


def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'stream-rl\[parquet\]'"):
        parquet.check_installed()
