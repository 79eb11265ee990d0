"""A player through many tasks of one world in the worker pool: is it fast, does it hold, does it understand?"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import anyio
import msgspec

from envs.players import MakePlayer
from envs.pool import WorkerPool
from stream_rl.errors import EnvironmentFailed
from stream_rl.types import Split, Task

_MIB = 1 << 20


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory of the largest worker, MiB."""

    start: float  # before the first episode
    end: float  # after the last
    peak: float  # largest seen after an episode


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial found."""

    world: str  # name of the entry
    split: Split  # tasks 0 to `tasks` - 1 of it
    tasks: int  # tried, one episode each
    episodes: int  # that went on to their end, or to the turn limit
    solved: int  # of them
    score_mean: float | None  # the world's own graded score at the end of these; None without any
    steps: int  # answered
    invalid_share: float | None  # of these steps, that the world did not understand; None without any
    seconds: float  # wall time of all
    steps_per_s: float  # over all workers
    memory_mib: Memory | None  # None where the system does not say
    faults: dict[str, int]  # cause: how many episodes it ended
    restarts: int  # workers that ended before their time
    refused: tuple[str, ...]  # tasks that brought down workers

    @property
    def flawless(self) -> bool:
        """Whether every episode was played as it should be."""
        return not self.faults and not self.restarts and not self.refused


class _Tally:
    def __init__(self) -> None:
        self.episodes = self.solved = self.steps = self.invalid = 0
        self.score = 0.0
        self.faults: Counter[str] = Counter()
        self.peak = 0


async def run_trial(
    pool: WorkerPool,
    world: str,
    player: MakePlayer,
    *,
    tasks: int,
    split: Split = "train",
    parallel: int = 8,
    max_turns: int = 50,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> TrialReport:
    """Play `tasks` tasks, or as many as the split has, `parallel` at once, each for at most `max_turns` steps."""
    available = pool.num_tasks(world, split)
    tasks = tasks if available is None else min(tasks, available)
    waiting = iter(range(tasks))
    tally = _Tally()
    held = _largest(pool)
    tally.peak = held
    began = clock()
    async with anyio.create_task_group() as group:
        for _ in range(parallel):
            group.start_soon(_play_all, pool, world, split, waiting, player, max_turns, seed, tally)
    seconds = clock() - began
    memory = Memory(start=held / _MIB, end=_largest(pool) / _MIB, peak=tally.peak / _MIB) if held else None
    return TrialReport(
        world=world,
        split=split,
        tasks=tasks,
        episodes=tally.episodes,
        solved=tally.solved,
        score_mean=tally.score / tally.episodes if tally.episodes else None,
        steps=tally.steps,
        invalid_share=tally.invalid / tally.steps if tally.steps else None,
        seconds=seconds,
        steps_per_s=tally.steps / seconds if seconds else 0.0,
        memory_mib=memory,
        faults=dict(tally.faults.most_common()),
        restarts=pool.restarts,
        refused=pool.quarantine.tasks,
    )


async def _play_all(
    pool: WorkerPool,
    world: str,
    split: Split,
    waiting: Iterator[int],
    player: MakePlayer,
    max_turns: int,
    seed: int,
    tally: _Tally,
) -> None:
    for index in waiting:
        task = Task(environment=world, split=split, index=index)
        try:
            await _play(pool, task, player, max_turns, seed, tally)
        except EnvironmentFailed as error:
            tally.faults[str(error)] += 1
        tally.peak = max(tally.peak, _largest(pool))


async def _play(
    pool: WorkerPool, task: Task, make_player: MakePlayer, max_turns: int, seed: int, tally: _Tally
) -> None:
    session = await pool.open(task.environment)
    try:
        first = await session.reset(task, seed)
        player = make_player(first.text, random.Random(f"{seed} {task.id}"))
        admissible, score, solved = first.admissible, 0.0, False
        for _ in range(max_turns):
            action = player.act(admissible)
            result = await session.step(action)
            player.observe(action, result.text)
            admissible, score, solved = result.admissible, result.score, result.success
            tally.steps += 1
            tally.invalid += not result.valid
            if result.done:
                break
        tally.episodes += 1
        tally.solved += solved
        tally.score += score
    finally:
        await session.aclose()


def _largest(pool: WorkerPool) -> int:
    return max(pool.memory_bytes.values(), default=0)
