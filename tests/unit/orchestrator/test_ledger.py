from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream_rl.errors import LedgerError
from stream_rl.orchestrator.ledger import GroupRow, Ledger
from tests.unit.records import row, trajectory, verdict


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", "r")


def _walk(ledger: Ledger, *states: str) -> None:
    for state in states:
        ledger.advance("g000000", state, 0.0)  # type: ignore[arg-type]


def _again(group_id: str, before: str) -> GroupRow:
    return msgspec.structs.replace(row(group_id), reroll_of=before, reroll=1)


def test_a_group_walks_the_whole_way_once(ledger: Ledger) -> None:
    ledger.lease(row(), 0.0)
    _walk(ledger, "produced", "judged", "candidate")
    ledger.select(0, {"g000000": ("a.one",)}, [], 0.0)
    ledger.train(0, ["g000000"], 0.0)
    assert ledger.counts() == {"trained": 1}
    with pytest.raises(LedgerError, match=r"cannot become 'trained'.*it is 'trained'"):
        ledger.train(0, ["g000000"], 0.0)


def test_a_step_out_of_order_is_refused_and_changes_nothing(ledger: Ledger) -> None:
    ledger.lease(row(), 0.0)
    with pytest.raises(LedgerError, match=r"cannot become 'candidate'.*it is 'leased'"):
        ledger.advance("g000000", "candidate", 0.0)
    with pytest.raises(LedgerError, match="does not know it"):
        ledger.advance("g999999", "produced", 0.0)
    assert ledger.counts() == {"leased": 1}


def test_groups_take_each_others_rounds_and_keep_the_one_they_were_admitted_to(ledger: Ledger) -> None:
    ledger.lease(row("late", round_=0), 0.0)
    ledger.lease(row("ready", round_=1, position=1), 0.0)
    ledger.advance_all("ready", ("produced", "judged", "candidate"), 0.0)
    ledger.move({"late": 1, "ready": 0}, 0.0)
    assert {r.group_id: (r.round, r.admitted) for r in ledger.groups()} == {"late": (1, 0), "ready": (0, 1)}


def test_a_selected_group_keeps_its_round(ledger: Ledger) -> None:
    for i in range(2):
        ledger.lease(row(f"g{i}", position=i, round_=i), 0.0)
    ledger.advance_all("g1", ("produced", "judged", "candidate"), 0.0)
    ledger.select(1, {"g1": None}, [], 0.0)
    with pytest.raises(LedgerError, match="g1 cannot go to round 0: it is selected already"):
        ledger.move({"g0": 1, "g1": 0}, 0.0)
    assert [r.round for r in ledger.groups()] == [0, 1]


def test_a_ledger_from_before_windows_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    ledger = Ledger(path, "r")
    ledger.lease(row(round_=3), 0.0)
    ledger.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE groups DROP COLUMN admitted")
    (found,) = Ledger(path, "r").groups()
    assert (found.round, found.admitted) == (3, 3)


def test_a_selection_is_all_or_nothing(ledger: Ledger) -> None:
    for i in range(2):
        ledger.lease(row(f"g{i}", position=i), 0.0)
    ledger.advance_all("g0", ("produced", "judged", "candidate"), 0.0)
    with pytest.raises(LedgerError):
        ledger.select(0, {"g0": None}, ["missing"], 0.0)
    assert ledger.counts() == {"candidate": 1, "leased": 1}


def test_records_survive_equal_and_duplicates_are_recognised(ledger: Ledger) -> None:
    ledger.lease(row(), 0.0)
    t = trajectory(versions=(3, 4))
    assert ledger.add_trajectory(t, "train")
    assert not ledger.add_trajectory(t, "train")
    ledger.add_verdict(verdict(t.id, {"a.one": "positive"}))
    (back,) = ledger.trajectories("g000000")
    assert back.turns == t.turns
    assert back.oldest_version == 3
    assert np.array_equal(back.samples[0].token_ids, t.samples[0].token_ids)
    assert np.array_equal(back.samples[0].loss_mask, t.samples[0].loss_mask)
    assert np.array_equal(back.samples[0].behavior_logprobs, t.samples[0].behavior_logprobs)
    assert ledger.verdicts("g000000") == [verdict(t.id, {"a.one": "positive"})]


def test_leasing_again_drops_what_the_lost_producer_sent(ledger: Ledger) -> None:
    ledger.lease(row(), 0.0)
    ledger.add_trajectory(trajectory(), "train")
    ledger.lease_again("g000000", 1.0)
    assert ledger.trajectories("g000000") == []
    assert ledger.groups()[0].attempts == 2


def test_rewinding_puts_rounds_after_the_checkpoint_back_to_selected(ledger: Ledger) -> None:
    for i in range(3):
        ledger.lease(row(f"g{i}", position=i, round_=i), 0.0)
        ledger.advance_all(f"g{i}", ("produced", "judged", "candidate"), 0.0)
        ledger.select(i, {f"g{i}": ("a.one", "b.three") if i == 1 else None}, [], 0.0)
        ledger.train(i, [f"g{i}"], 0.0)
    assert ledger.rewind(1, 0.0) == 2
    again = ledger.groups(from_round=1)
    assert [(g.group_id, g.state, g.hint) for g in again] == [
        ("g1", "selected", ("a.one", "b.three")),
        ("g2", "selected", None),
    ]
    assert ledger.next_position() == 3


def test_rewinding_leaves_discarded_what_was_refused_and_rolled_again(ledger: Ledger) -> None:
    """g1 was refused and g1r1 trained in its place: the round is whole, and is delivered again as it was trained."""
    for i in range(3):
        ledger.lease(row(f"g{i}", position=i), 0.0)
        ledger.advance_all(f"g{i}", ("produced", "judged", "candidate"), 0.0)
    ledger.select(0, {"g0": None, "g1": None}, ["g2"], 0.0)
    ledger.discard("g1", "stale: lag 3", 0.0)
    ledger.lease(_again("g1r1", "g1"), 0.0)
    ledger.advance_all("g1r1", ("produced", "judged", "candidate"), 0.0)
    ledger.select(0, {"g1r1": None}, [], 0.0)
    ledger.train(0, ["g0", "g1r1"], 0.0)
    assert ledger.rewind(0, 0.0) == 2
    assert [(g.group_id, g.state) for g in ledger.groups()] == [("g0", "selected"), ("g1r1", "selected")]
    assert ledger.owed() == []
    assert ledger.next_position() == 3


def test_a_discarded_group_owes_one_re_roll_and_one_only(ledger: Ledger) -> None:
    ledger.lease(row("g0", round_=2), 0.0)
    ledger.discard("g0", "too_few_valid", 0.0)
    assert [(g.group_id, g.round, g.state) for g in ledger.owed()] == [("g0", 2, "discarded")]
    ledger.lease(_again("g0r1", "g0"), 0.0)
    assert ledger.owed() == []
    with pytest.raises(LedgerError, match="g0r2 cannot be rolled for g0: it owes no re-roll"):
        ledger.lease(_again("g0r2", "g0"), 0.0)
    assert ledger.counts() == {"discarded:too_few_valid": 1, "leased": 1}
    (found,) = ledger.groups()
    assert (found.reroll_of, found.reroll, found.position) == ("g0", 1, 0)


def test_what_a_selection_leaves_out_owes_nothing_and_what_is_trained_does_not(ledger: Ledger) -> None:
    for i in range(2):
        ledger.lease(row(f"g{i}", position=i), 0.0)
        ledger.advance_all(f"g{i}", ("produced", "judged", "candidate"), 0.0)
    ledger.select(0, {"g0": None}, ["g1"], 0.0)
    ledger.train(0, ["g0"], 0.0)
    assert ledger.owed() == []
    for name in ("g0", "g1"):
        with pytest.raises(LedgerError, match=f"for {name}: it owes no re-roll"):
            ledger.lease(_again("again", name), 0.0)


def test_a_ledger_from_before_re_rolls_is_taken_over_and_owes_none(tmp_path: Path) -> None:
    """The places of its discarded groups went to the next tasks of the order, and its numbering of them goes on."""
    path = tmp_path / "old.sqlite"
    ledger = Ledger(path, "r")
    for i in range(3):
        ledger.lease(row(f"g{i}", position=i), 0.0)
    ledger.discard("g1", "too_few_valid", 0.0)
    ledger.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX groups_by_reroll")
        for column in ("reroll_of", "reroll", "owed"):
            db.execute(f"ALTER TABLE groups DROP COLUMN {column}")
    old = Ledger(path, "r")
    assert old.owed() == []
    assert [(g.group_id, g.reroll_of, g.reroll) for g in old.groups()] == [("g0", None, 0), ("g2", None, 0)]
    assert old.next_position() == 3
    old.discard("g2", "stale", 0.0)
    assert [g.group_id for g in old.owed()] == ["g2"]


def test_groups_come_back_in_the_order_they_were_admitted(ledger: Ledger) -> None:
    """A re-roll has the position of the group it stands for, and is younger than those between."""
    for i in range(2):
        ledger.lease(row(f"g{i}", position=i), 0.0)
    ledger.discard("g0", "stale", 0.0)
    ledger.lease(_again("g0r1", "g0"), 0.0)
    assert [g.group_id for g in ledger.groups()] == ["g1", "g0r1"]


def test_a_round_that_is_in_the_checkpoint_but_was_not_reported_counts_as_trained(ledger: Ledger) -> None:
    ledger.lease(row("g0"), 0.0)
    ledger.advance_all("g0", ("produced", "judged", "candidate"), 0.0)
    ledger.select(0, {"g0": None}, [], 0.0)
    assert ledger.rewind(1, 0.0) == 0
    assert ledger.counts() == {"trained": 1}


def test_unselected_groups_are_found_again_and_other_discards_are_not(ledger: Ledger) -> None:
    for i in range(3):
        ledger.lease(row(f"g{i}", position=i), 0.0)
    ledger.discard("g2", "stale", 0.0)
    for i in range(2):
        ledger.advance_all(f"g{i}", ("produced", "judged", "candidate"), 0.0)
    ledger.select(0, {"g0": None}, ["g1"], 0.0)
    assert [g.group_id for g in ledger.unselected(from_round=0)] == ["g1"]
    assert ledger.counts() == {"selected": 1, "discarded:not_selected": 1, "discarded:stale": 1}


def test_a_ledger_of_another_run_or_a_damaged_file_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "one.sqlite", "mine").close()
    with pytest.raises(LedgerError, match="belongs to run mine, not yours"):
        Ledger(tmp_path / "one.sqlite", "yours")
    (tmp_path / "bad.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(LedgerError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "bad.sqlite", "r")


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = Ledger(path, "r")
    first.lease(row(), 0.0)
    first.put("steering/household", "[1]")
    # not closed: as after kill -9
    second = Ledger(path, "r")
    assert second.counts() == {"leased": 1}
    assert second.get("steering/household") == "[1]"
    assert second.get("nothing") is None
