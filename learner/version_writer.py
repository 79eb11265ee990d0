"""The version that is on its way out of the learner, beside whatever it computes.

consumes: versions taken. waits for: the disk. produces: `Published`. unblocked by: the write, which ends or fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic  # the event loop's own clock counts whole milliseconds

from anyio import Event, create_task_group, to_thread
from anyio.abc import TaskGroup

from stream_rl.causes import cause
from stream_rl.messages import FromLearner, Published, ToLearner
from stream_rl.observe.states import StateClock
from stream_rl.ports import Link
from stream_rl.types import WeightsManifest


class VersionWriter:
    """Writes one version at a time. Keeps the learner's account while nothing else does.

    A learner that has nothing to do but write is publishing; only one that does not even write waits for rollouts.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        link: Link[FromLearner, ToLearner],
        write: Callable[[], WeightsManifest],
        states: StateClock,
    ) -> None:
        """`write` is called in a thread of its own."""
        self._tasks = tasks
        self._link = link
        self._write = write
        self._states = states
        self._over = Event()
        self._over.set()
        self._computing = False
        self.wanted = True  # whether somebody still listens to what is written

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The learner computes for the length of the block, which names its own states."""
        self._computing = True
        try:
            yield
        finally:
            self._computing = False
            self._name_state()

    async def over(self) -> None:
        """Wait until nothing is being written."""
        await self._over.wait()

    def begin(self) -> None:
        """Write what was taken, and tell. The version before is written."""
        self._over = Event()
        self._tasks.start_soon(self._publish)

    async def _publish(self) -> None:
        begun = monotonic()
        try:
            manifest = await to_thread.run_sync(self._write)
        finally:
            self._over.set()
            self._name_state()
        if self.wanted:
            await self._link.send(Published(manifest=manifest, write_s=monotonic() - begun))

    def _name_state(self) -> None:
        if not self._computing:
            self._states.enter("rollout_wait" if self._over.is_set() else "publish")


@asynccontextmanager
async def open_version_writer(
    link: Link[FromLearner, ToLearner], write: Callable[[], WeightsManifest], states: StateClock
) -> AsyncIterator[VersionWriter]:
    """A writer for the length of the block; leaving it waits for the version that is being written.

    What the block or a write raises leaves as it is, not wrapped in a group.
    """
    try:
        async with create_task_group() as tasks:
            writer = VersionWriter(tasks, link, write, states)
            yield writer
            writer.wanted = False
    except ExceptionGroup as group:
        raise cause(group) from None
