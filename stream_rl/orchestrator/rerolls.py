"""Which group fills the place of a discarded one. Pure."""

from __future__ import annotations

import msgspec

from stream_rl.orchestrator.group_row import GroupRow
from stream_rl.orchestrator.tasks import Ticket, spare_task, stable_seed

TRIES = 2  # groups that may attempt one task; as many worker processes may a task bring down before it is refused


class Rerolls:
    """Discarded groups whose re-roll is owed. Each is taken once, for the place it left in its own round."""

    def __init__(self) -> None:
        self._owed: list[GroupRow] = []  # in the order they were discarded

    def owe(self, row: GroupRow) -> None:
        """A group was discarded."""
        self._owed.append(row)

    def take(self, round_: int) -> GroupRow | None:
        """The group whose place in `round_` is to be filled now; None: the place is the next task's."""
        found = next((row for row in self._owed if row.round == round_), None)
        if found is not None:
            self._owed.remove(found)
        return found


class Reroll(msgspec.Struct, frozen=True, kw_only=True):
    """What is rolled instead of a discarded group."""

    ticket: Ticket  # the discarded group's place in the order, with the task and the seed to use
    number: int  # groups of this place that were discarded before: 1, 2, ...


def reroll(row: GroupRow, seed: int) -> Reroll:
    """The same task with another seed, until `TRIES` groups of it were discarded; then a fresh one of its world.

    The same task, since to leave out what fails or takes long would leave the hard tasks out of training. A fresh one
    in the end, since a task that can never be played would be rolled for ever. Depends on the group and the run's
    `seed` alone: a resumed run rolls the same.
    """
    number = row.reroll + 1
    task = row.task
    if number % TRIES == 0:
        task = spare_task(task.environment, seed, row.position + number // TRIES - 1)
    return Reroll(
        ticket=Ticket(
            position=row.position,
            task=task,
            seed=stable_seed(seed, task.environment, task.split, task.index, again=number),
        ),
        number=number,
    )
