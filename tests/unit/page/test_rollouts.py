from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.errors import LedgerError
from stream_rl.observe.rundir import RunDirectory
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.page.rollouts import Rollouts
from tests.unit import records
from tests.unit.judge.builders import CLEAN
from tests.unit.ledgers import LOST, Group, clean_and_lost, write_run


def rollouts(run: RunDirectory) -> Rollouts:
    return Rollouts(run.ledger)


def test_groups_come_newest_first_with_their_members(tmp_path: Path) -> None:
    page = rollouts(write_run(tmp_path / "run", clean_and_lost())).training(before=None, limit=10)
    assert [group.id for group in page.groups] == ["g2", "g1", "g0"]
    assert page.before is None
    left_out = page.groups[0]
    assert (left_out.state, left_out.reason, left_out.environment) == ("discarded", "not_selected", "household")
    assert [member.id for member in left_out.members] == ["g2/0", "g2/1"]


def test_pages_follow_each_other_without_gap_or_repetition(tmp_path: Path) -> None:
    groups = [Group(id=f"g{i}", episodes=(CLEAN,), round=i) for i in range(7)]
    shelf = rollouts(write_run(tmp_path / "run", groups))
    seen: list[str] = []
    before: int | None = None
    for _ in range(4):
        page = shelf.training(before=before, limit=2)
        seen += [group.id for group in page.groups]
        if (before := page.before) is None:
            break
    assert seen == ["g6", "g5", "g4", "g3", "g2", "g1", "g0"]


def test_lists_are_narrowed_by_world_and_state(tmp_path: Path) -> None:
    groups = [
        Group(id="g0", episodes=(CLEAN,)),
        Group(id="g1", episodes=(CLEAN,), environment="shop"),
        Group(id="g2", episodes=(LOST,), environment="shop", state="unselected"),
    ]
    shelf = rollouts(write_run(tmp_path / "run", groups))
    found = shelf.training(before=None, limit=10, environment="shop", state="discarded")
    assert [group.id for group in found.groups] == ["g2"]
    assert shelf.training(before=None, limit=10, environment="'; DROP TABLE groups; --").groups == ()


def test_held_out_groups_are_listed_apart(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [Group(id="g0", episodes=(CLEAN,))])
    ledger = Ledger(run.ledger, run.run_id)
    for index in range(3):
        group_id = f"eval-00010-household/held_out/{index}"
        ledger.add_trajectory(records.trajectory(group_id, split="held_out"), "eval")
    ledger.close()
    shelf = rollouts(run)
    first = shelf.held_out(before=None, limit=2)
    assert [group.id for group in first.groups] == [
        "eval-00010-household/held_out/2",
        "eval-00010-household/held_out/1",
    ]
    assert first.groups[0].environment == "household"
    second = shelf.held_out(before=first.before, limit=2)
    assert [group.id for group in second.groups] == ["eval-00010-household/held_out/0"]
    assert second.before is None
    assert [group.id for group in shelf.training(before=None, limit=9).groups] == ["g0"]


def test_a_group_of_several_held_out_rollouts_is_on_one_page_only(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    ledger = Ledger(run.ledger, run.run_id)
    for index in range(2):
        for member in range(3):
            group_id = f"eval-00000-household/held_out/{index}"
            ledger.add_trajectory(records.trajectory(group_id, member, split="held_out"), "eval")
    ledger.close()
    shelf = rollouts(run)
    first = shelf.held_out(before=None, limit=1)
    second = shelf.held_out(before=first.before, limit=1)
    assert [len(group.members) for group in (*first.groups, *second.groups)] == [3, 3]
    assert first.groups[0].id != second.groups[0].id


def test_verdicts_are_read_from_a_place_on(tmp_path: Path) -> None:
    shelf = rollouts(write_run(tmp_path / "run", clean_and_lost()))
    first = shelf.verdicts(after=0, limit=4)
    rest = shelf.verdicts(after=first[-1][0], limit=99)
    assert [v.trajectory_id for _, _, v in (*first, *rest)] == ["g0/0", "g0/1", "g1/0", "g1/1", "g2/0", "g2/1"]
    assert {environment for _, environment, _ in first} == {"household"}
    assert shelf.num_verdicts() == rest[-1][0]


def test_a_run_that_has_no_ledger_yet_has_nothing_to_list(tmp_path: Path) -> None:
    shelf = Rollouts(tmp_path / "ledger.sqlite")
    assert shelf.training(before=None, limit=5).groups == ()
    assert shelf.held_out(before=None, limit=5).groups == ()
    assert shelf.group("g0") == []
    assert shelf.standing("g0") is None


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be read"):
        Rollouts(path).training(before=None, limit=5)
