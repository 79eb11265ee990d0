"""Episodes over worker processes: worlds block and crash, so none of them runs in the producer's own process.

Consumes: calls of episodes. Waits for: a worker that is up. Produces: answers, or `EnvironmentFailed` with the cause.
Unblocked by: workers, each restarted whenever it dies.
"""

from __future__ import annotations

import difflib
import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

import anyio
from anyio.abc import TaskGroup

from envs.memory import resident_bytes
from envs.process import WorkerProcess
from envs.quarantine import Quarantine
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import ConfigError, EnvironmentFailed, EnvironmentLost
from stream_rl.types import Observation, Split, StepResult, Task

log = logging.getLogger(__name__)


class Backoff:
    """How long to wait before the next restart: doubles with every life that was short, starts over after a long one.

    >>> backoff = Backoff(first_s=1.0, longest_s=3.0, steady_s=60.0)
    >>> [backoff.after(life_s) for life_s in (0.1, 0.1, 0.1, 100.0)]
    [1.0, 2.0, 3.0, 1.0]
    """

    def __init__(self, first_s: float = 0.1, longest_s: float = 30.0, steady_s: float = 2.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._steady_s = steady_s
        self._short_lives = 0

    def after(self, life_s: float) -> float:
        """Seconds to wait after a life of `life_s` seconds."""
        self._short_lives = 1 if life_s >= self._steady_s else self._short_lives + 1
        return float(min(self._longest_s, self._first_s * 2 ** min(self._short_lives - 1, 30)))


class WorkerSession:
    """One episode in one life of one worker. Implements `stream_rl.ports.EnvironmentSession`."""

    def __init__(
        self, worker: WorkerProcess, episode: int, quarantine: Quarantine, on_place: Callable[[], None]
    ) -> None:
        self._worker = worker
        self._on_place = on_place  # called when the place given back is one that others may wait for
        self._episode = episode
        self._quarantine = quarantine
        self._closed = False
        worker.enter()

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the episode. Raises `EnvironmentFailed`, also for a task that is refused for the rest of the run."""
        if (why := self._quarantine.refusal(task)) is not None:
            self._quarantine.num_refusals += 1
            raise EnvironmentFailed(why)
        return await self._worker.reset(self._episode, task, seed)

    async def step(self, action: str) -> StepResult:
        """Act. Raises `EnvironmentFailed`."""
        return await self._worker.step(self._episode, action)

    async def aclose(self) -> None:
        """Give the place back. Never waits; may be called twice."""
        if not self._closed:
            self._closed = True
            was_full = self._worker.full
            self._worker.leave(self._episode)
            if was_full:
                self._on_place()


class _Slot:
    """The place of one worker, which is filled again whenever its process dies."""

    def __init__(self, config: EnvironmentConfig, path: str, number: int) -> None:
        self.config = config
        self.path = path
        self.label = f"{config.name}: worker {number}"
        self.worker: WorkerProcess | None = None
        self.trouble: Exception | None = None  # why the last start failed


class WorkerPool:
    """Worker processes of all configured worlds. Implements `stream_rl.ports.EnvironmentPool`.

    `async with WorkerPool(configs) as pool` starts every worker and returns once all can make their world; it raises
    `ConfigError` or `EnvironmentFailed` if one cannot. Leaving the block ends them all.

    A worker that dies, stalls or sends garbage fails the episodes it held and is started again; the task whose call
    ran is blamed, and refused once it has brought down two. A worker that holds more than `worker_memory_mib` takes no
    new episode and is replaced when its last one ends.
    """

    def __init__(
        self, configs: Sequence[EnvironmentConfig], *, start_deadline_s: float = 120.0, first_backoff_s: float = 0.1
    ) -> None:
        self._start_deadline_s = start_deadline_s
        self._first_backoff_s = first_backoff_s
        self._configs = configs
        self._slots: dict[str, list[_Slot]] = {}
        self._episodes = itertools.count()
        self._group: TaskGroup | None = None
        self._news = anyio.Event()  # set, and replaced, whenever a slot changes or a full worker has a place again
        self._num_tasks: dict[str, dict[Split, int | None]] = {}
        self.quarantine = Quarantine()  # tasks that bring workers down
        self.restarts = 0  # workers that ended before the pool did

    async def __aenter__(self) -> WorkerPool:
        for i, config in enumerate(self._configs):
            self._slots[config.name] = [_Slot(config, f"environments.{i}", n) for n in range(config.workers)]
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        try:
            await self._start(self._group)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        # An ordinary exception of the block is the caller's own: it must not come out wrapped in a group.
        if isinstance(error, Exception):
            kind, error, traceback = None, None, None
        await self._group.__aexit__(kind, error, traceback)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return [slot.worker.pid for slots in self._slots.values() for slot in slots if slot.worker is not None]

    @property
    def memory_bytes(self) -> dict[int, int]:
        """Resident memory of the workers that are up, by process id; empty where the system does not say."""
        held = {pid: resident_bytes(pid) for pid in self.pids}
        return {pid: size for pid, size in held.items() if size is not None}

    def num_tasks(self, environment: str, split: Split) -> int | None:
        """Tasks of the split as the world counts them; None when it does not."""
        self._of(environment)
        return self._num_tasks[environment].get(split)

    async def open(self, environment: str) -> WorkerSession:
        """A place on the least loaded worker of `environment`; waits while none takes new episodes.

        Raises `EnvironmentLost` when a restart that was waited for fails.
        """
        slots = self._of(environment)
        while True:
            up = [slot.worker for slot in slots if slot.worker is not None and slot.worker.accepting]
            if up:
                least = min(up, key=lambda worker: worker.episodes)
                return WorkerSession(least, next(self._episodes), self.quarantine, self._tell)
            old = [slot.trouble for slot in slots]
            await self._news.wait()
            for slot, known in zip(slots, old, strict=True):
                if slot.trouble is not None and slot.trouble is not known:
                    raise EnvironmentLost(f"no worker of {environment} is up: {slot.trouble}")

    async def changed(self) -> None:
        """Wait until a worker came up or went down, or a place on a full one is free."""
        await self._news.wait()

    def _of(self, environment: str) -> list[_Slot]:
        slots = self._slots.get(environment)
        if slots is None:
            near = difflib.get_close_matches(environment, list(self._slots), n=1)
            raise ConfigError(
                "environments",
                f"no entry is called {environment!r}; there are {', '.join(self._slots)}.",
                nearest=near[0] if near else None,
            )
        return slots

    async def _start(self, group: TaskGroup) -> None:
        slots = [slot for slots in self._slots.values() for slot in slots]
        for slot in slots:
            group.start_soon(self._keep, slot)
        while any(slot.worker is None for slot in slots):
            await self._news.wait()
            for slot in slots:
                if slot.trouble is not None:
                    raise slot.trouble

    async def _keep(self, slot: _Slot) -> None:
        """Keep one worker up until the pool closes."""
        backoff = Backoff(self._first_backoff_s)
        while True:
            born = anyio.current_time()
            try:
                worker = await WorkerProcess.start(slot.config, slot.path, slot.label, self._start_deadline_s)
            except (ConfigError, EnvironmentFailed) as error:
                log.error("%s", error)
                self._change(slot, None, error)
            else:
                self._num_tasks[slot.config.name] = worker.num_tasks
                self._change(slot, worker)
                try:
                    cause = await worker.serve(partial(self._lose, worker))
                finally:
                    self._change(slot, None)
                    await worker.end()
                log.warning("%s; it is started again", cause)
            await anyio.sleep(backoff.after(anyio.current_time() - born))

    def _lose(self, worker: WorkerProcess, cause: str) -> None:
        self.restarts += 1
        if worker.culprit is not None and self.quarantine.blame(worker.culprit, cause):
            log.error("%s", self.quarantine.refusal(worker.culprit))

    def _change(self, slot: _Slot, worker: WorkerProcess | None, trouble: Exception | None = None) -> None:
        slot.worker, slot.trouble = worker, trouble
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()
