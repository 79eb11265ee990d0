"""Which task comes next: a seeded, endless, resumable order over all environments. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from stream_rl.types import Split, Task

_TASKS_A_SEED = 1_000_000  # indices between the first tasks of two neighbouring run seeds
_SPARE = _TASKS_A_SEED // 2  # indices that far from the first are for tasks that stand for others


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the order of training tasks."""

    position: int  # 0, 1, 2, ... over the whole run; whoever stands for a discarded group has that one's
    task: Task  # what to attempt
    seed: int  # for the world and the sampler, 0 .. 2**31 - 1


class TaskStream:
    """Hands out training tasks. Environments alternate by share (smooth weighted round robin); within one, tasks
    come in index order from an offset that depends on the run's seed, so runs with other seeds see other tasks.

    Shares are kept exactly, as the decimal numbers they are written as: with 0.1 and 0.3 every four tasks that follow
    each other hold one and three. The order depends on `shares` and `seed` only; `skip` makes a resumed run go on
    where it was.
    """

    def __init__(self, shares: Mapping[str, float], seed: int) -> None:
        """`shares`: relative weight of each environment, > 0."""
        if not shares or any(share <= 0 for share in shares.values()):
            raise ValueError(f"every environment needs a positive share: {dict(shares)}")
        self._shares = {name: Fraction(repr(share)) for name, share in shares.items()}
        self._total = sum(self._shares.values())
        self._credit = dict.fromkeys(shares, Fraction(0))
        self._count = dict.fromkeys(shares, 0)
        self._seed = seed
        self._position = 0

    def take(self) -> Ticket:
        """The next task."""
        for name, share in self._shares.items():
            self._credit[name] += share
        name = max(self._credit, key=lambda n: self._credit[n])
        self._credit[name] -= self._total
        index = task_offset(self._seed) + self._count[name]
        self._count[name] += 1
        ticket = Ticket(
            position=self._position,
            task=Task(environment=name, split="train", index=index),
            seed=stable_seed(self._seed, name, "train", index),
        )
        self._position += 1
        return ticket

    def skip(self, positions: int) -> None:
        """Leave out that many tickets (they were handed out before a restart)."""
        for _ in range(positions):
            self.take()


def evaluation_tasks(environments: tuple[str, ...], tasks: int, counts: Mapping[str, int] | None = None) -> list[Task]:
    """The same `tasks` held-out tasks of every environment, whatever the run's seed.

    An environment whose world has fewer, as `counts` says by name, has each of them once.
    """
    sizes = {name: min(tasks, (counts or {}).get(name, tasks)) for name in environments}
    return [Task(environment=name, split="held_out", index=i) for name in environments for i in range(sizes[name])]


def task_offset(seed: int) -> int:
    """Where a run's seed starts in a split's order; seeds a million tasks apart do not overlap in practice."""
    return seed * _TASKS_A_SEED


def spare_task(environment: str, seed: int, number: int) -> Task:
    """Training task `number` among those that stand for others: `TaskStream` comes to none of them in practice."""
    return Task(environment=environment, split="train", index=task_offset(seed) + _SPARE + number % _SPARE)


def stable_seed(seed: int, environment: str, split: Split, index: int, *, again: int = 0) -> int:
    """A seed for one task that does not change between processes or Python versions. `again`: other ones for it."""
    text = f"{seed}/{environment}/{split}/{index}" + (f"/{again}" if again else "")
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") >> 1
