from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stream_rl.errors import LedgerError
from stream_rl.link.codec import pack
from stream_rl.observe.archive import Archive
from stream_rl.types import Tag, Verdict
from tests.unit.judge.builders import CLEAN
from tests.unit.ledgers import Group, clean_and_lost, rollouts, rule_verdict, write_run


def test_groups_carry_their_walk(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [*clean_and_lost(), Group(id="g3", episodes=(CLEAN,), state="leased")])
    with Archive(run.ledger) as archive:
        groups = archive.groups()
        assert archive.sizes() == {"g0": 2, "g1": 2, "g2": 2, "g3": 1}
    assert [(g.group_id, g.candidate, g.selected) for g in groups] == [
        ("g0", True, True),
        ("g1", True, True),
        ("g2", True, False),
        ("g3", False, False),
    ]


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    groups = clean_and_lost()
    run = write_run(tmp_path / "r", groups)
    with Archive(run.ledger) as archive:
        assert [t.id for t in archive.trajectories("g1")] == ["g1/0", "g1/1"]
        assert archive.trajectories("g1")[0].turns == rollouts(groups[1])[0].turns
        assert archive.verdicts("g0")[0] == rule_verdict(rollouts(groups[0])[0])
        assert sorted(v.trajectory_id for _, v in archive.all_verdicts()) == [
            f"g{group}/{member}" for group in range(3) for member in range(2)
        ]
        assert list(archive.judged_twice()) == []


def test_second_verdicts_are_paired_with_the_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", clean_and_lost())
    second = Verdict(trajectory_id="g1/0", tags=(Tag(rubric="a.b", value="positive"),))
    writer = sqlite3.connect(run.ledger)
    writer.execute("CREATE TABLE IF NOT EXISTS second_verdicts (trajectory_id TEXT PRIMARY KEY, record BLOB NOT NULL)")
    writer.execute("INSERT INTO second_verdicts VALUES (?, ?)", ("g1/0", pack(second)))
    writer.commit()
    writer.close()
    with Archive(run.ledger) as archive:
        ((first, again),) = archive.judged_twice()
    assert first.trajectory_id == "g1/0"
    assert again == second


def test_it_cannot_write(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", clean_and_lost())
    with Archive(run.ledger) as archive, pytest.raises(sqlite3.OperationalError, match="readonly"):
        archive._db.execute("DELETE FROM groups")


def test_what_is_no_ledger_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "ledger.sqlite"
    bad.write_bytes(b"certainly no database" * 100)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be read as a ledger"), Archive(bad):
        pass
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with Archive(tmp_path / "empty.sqlite") as archive, pytest.raises(LedgerError, match="no such table"):
        archive.groups()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", clean_and_lost())
    writer = sqlite3.connect(run.ledger)
    writer.execute("UPDATE verdicts SET record = x'00ff'")
    writer.commit()
    writer.close()
    with Archive(run.ledger) as archive, pytest.raises(LedgerError, match="holds a record that cannot be read"):
        list(archive.all_verdicts())
