"""What fills the place of a discarded group."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.group_row import GroupRow
from stream_rl.orchestrator.rerolls import Reroll, Rerolls, reroll
from stream_rl.orchestrator.tasks import TaskStream, spare_task
from stream_rl.types import Task
from tests.unit.records import row


def _discarded_again(before: GroupRow, again: Reroll) -> GroupRow:
    """The re-roll's own row, discarded in its turn."""
    ticket = again.ticket
    return msgspec.structs.replace(
        before, group_id=f"g7r{again.number}", task=ticket.task, seed=ticket.seed, reroll=again.number
    )


def test_a_task_gets_a_second_group_and_then_makes_way_for_a_fresh_one_of_its_world() -> None:
    """Run seed 3: its tasks begin at 3,000,000, those that stand for others at 3,500,000; the place is the seventh."""
    first = msgspec.structs.replace(
        row("g7", position=7, environment="shop"), task=Task(environment="shop", split="train", index=3_000_002)
    )
    found, before = [], first
    for _ in range(5):
        again = reroll(before, seed=3)
        found.append((again.number, again.ticket.task.id))
        assert again.ticket.position == 7
        before = _discarded_again(before, again)
    assert found == [
        (1, "shop/train/3000002"),
        (2, "shop/train/3500007"),
        (3, "shop/train/3500007"),
        (4, "shop/train/3500008"),
        (5, "shop/train/3500008"),
    ]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 50), position=st.integers(0, 10**6), rolls=st.integers(1, 12))
def test_no_group_of_a_place_has_the_seed_of_another_and_a_resumed_run_rolls_the_same(
    seed: int, position: int, rolls: int
) -> None:
    before = row("g", position=position)
    drawn = [(before.task, before.seed)]
    for _ in range(rolls):
        again = reroll(before, seed)
        assert again == reroll(before, seed)
        drawn.append((again.ticket.task, again.ticket.seed))
        before = _discarded_again(before, again)
    assert len(set(drawn)) == rolls + 1
    assert {task.environment for task, _ in drawn} == {"household"}


def test_tasks_that_stand_for_others_are_none_of_the_order() -> None:
    stream = TaskStream({"a": 1.0}, seed=2)
    order = {stream.take().task.id for _ in range(200)}
    assert not order & {spare_task("a", 2, number).id for number in range(200)}


def test_a_debt_is_paid_once_and_in_its_own_round() -> None:
    rerolls = Rerolls()
    for name, round_ in (("a", 1), ("b", 0), ("c", 1)):
        rerolls.owe(row(name, round_=round_))
    taken = [rerolls.take(round_) for round_ in (0, 0, 1, 2, 1, 1)]
    assert [found and found.group_id for found in taken] == ["b", None, "a", None, "c", None]
