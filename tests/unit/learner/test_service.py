from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from learner.distributed import Command, Stop, TrainRound, World, WriteCheckpoint
from learner.metrics import Sums, update_metrics
from learner.rows import Rows
from learner.service import run
from learner.trainer import Trainer, UpdateEnd
from stream_rl.errors import LinkError
from stream_rl.messages import (
    CheckpointSaved,
    Finish,
    FromLearner,
    GroupRefused,
    LearnerReady,
    Published,
    RoundStart,
    SaveCheckpoint,
    ToLearner,
    Trained,
)
from stream_rl.ports import Delivery
from stream_rl.types import WeightsManifest
from tests.unit.learner.builders import group


class Script:
    """A link that plays messages and keeps what is sent. A type among them: play on once the last sent is of it."""

    def __init__(self, *script: ToLearner | type[FromLearner]) -> None:
        self.script = script
        self.messages = [message for message in script if not isinstance(message, type)]
        self.changed = anyio.Event()
        self.sent: list[FromLearner] = []
        self.acked: list[ToLearner] = []
        self.on_ack: Callable[[ToLearner], object] = lambda message: None

    async def send(self, message: FromLearner) -> None:
        self.sent.append(message)
        self.changed.set()

    async def __aiter__(self) -> AsyncIterator[Delivery[ToLearner]]:
        for message in self.script:
            await anyio.lowlevel.checkpoint()
            if isinstance(message, type):
                while not isinstance(self.sent[-1], message):
                    self.changed = anyio.Event()
                    with anyio.fail_after(10):
                        await self.changed.wait()
                continue
            yield Delivery(message=message, ack=self._acknowledge(message))

    def _acknowledge(self, message: ToLearner) -> Callable[[], None]:
        def acknowledge() -> None:
            self.acked.append(message)
            self.on_ack(message)

        return acknowledge


class RecordingTrainer:
    """Counts versions instead of training."""

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.trained: list[TrainRound] = []
        self.taken: list[int] = []
        self.writing = False
        self.disk_full = False
        self.may_train: threading.Event | None = None
        self.may_write: threading.Event | None = None

    def publish(self) -> WeightsManifest:
        return _manifest(self.version)

    def update(self, command: TrainRound, enter: Callable[[str], None]) -> dict[str, Any]:
        if self.may_train is not None:
            assert self.may_train.wait(10), "the event loop stood still while the learner trained"
        enter("train")
        self.trained.append(command)
        self.version += 1
        return update_metrics(Sums([]).reduced(list), [], Rows(rows=()), [])

    def take(self) -> None:
        assert not self.writing, "a version is taken while the one before is being written"
        self.taken.append(self.version)

    def write(self) -> WeightsManifest:
        self.writing = True
        if self.may_write is not None:
            assert self.may_write.wait(10), "the learner waited for what it writes beside its training"
        if self.disk_full:
            raise OSError("no space left")
        self.writing = False
        return _manifest(self.taken[-1])

    def end_update(self, enter: Callable[[str], None]) -> UpdateEnd:
        return UpdateEnd(checkpoint=None, cpu_s=1.0)

    def save(self) -> Path:
        return Path(f"checkpoints/{self.version}")


def _manifest(version: int) -> WeightsManifest:
    return WeightsManifest(run_id="r", version=version, path="p", fingerprint="f", num_bytes=1)


class RecordingWorld:
    def __init__(self) -> None:
        self.told: list[Command] = []

    def tell(self, command: Command) -> None:
        self.told.append(command)


async def serve(link: Script, trainer: RecordingTrainer) -> Sequence[Command]:
    world = RecordingWorld()
    await run(link, cast(Trainer, trainer), cast(World, world), max_lag=0)
    return world.told


async def test_rounds_are_trained_when_complete_and_other_ranks_told() -> None:
    a, b = group("a", [1, 0]), group("b", [1, 0])
    first_round, second_round = RoundStart(update=0, num_groups=2), RoundStart(update=1, num_groups=0)
    link = Script(first_round, b, a, Published, SaveCheckpoint(), second_round, Published)
    trainer = RecordingTrainer()
    told = await serve(link, trainer)
    assert [type(m) for m in link.sent] == [LearnerReady, Trained, Published, CheckpointSaved, Trained, Published]
    first = link.sent[1]
    assert isinstance(first, Trained)
    assert (first.update, first.version, first.group_ids) == (0, 1, ("a", "b"))
    assert [m.manifest.version for m in link.sent if isinstance(m, Published)] == [1, 2]
    assert trainer.trained[0].groups == (a, b)
    assert [type(c) for c in told] == [TrainRound, WriteCheckpoint, TrainRound, Stop]
    assert link.acked == list(link.messages)


async def test_a_refused_group_is_told_at_once_and_another_trained_in_its_place() -> None:
    old = group("old", [1, 0], update=1, version=0)
    a, b = (group(name, [1, 0], update=1, version=1) for name in "ab")
    link = Script(RoundStart(update=1, num_groups=2), a, old, b)
    trainer = RecordingTrainer(version=1)
    await serve(link, trainer)
    reason = "stale: lag 1 (tokens of version 0) exceeds 0"
    assert link.sent[1] == GroupRefused(update=1, group_id="old", reason=reason)
    trained = link.sent[2]
    assert isinstance(trained, Trained)
    assert trained.group_ids == ("a", "b")
    assert trainer.trained[0].groups == (a, b)


async def test_finish_ends_the_role() -> None:
    link = Script(Finish(), RoundStart(update=0, num_groups=0))
    told = await serve(link, RecordingTrainer())
    assert [type(c) for c in told] == [Stop]
    assert len(link.sent) == 1


async def test_a_version_is_written_while_the_next_round_is_trained() -> None:
    written = threading.Event()

    class Slow(RecordingTrainer):
        def update(self, command: TrainRound, enter: Callable[[str], None]) -> dict[str, Any]:
            if command.update == 1:
                written.set()  # a learner that waits for the file before it trains waits in vain
            return super().update(command, enter)

    trainer = Slow()
    trainer.may_write = written
    link = Script(RoundStart(update=0, num_groups=0), RoundStart(update=1, num_groups=0), Trained, Published)
    await serve(link, trainer)
    assert trainer.taken == [1, 2]
    said = [m.manifest.version if isinstance(m, Published) else type(m) for m in link.sent]
    assert said == [LearnerReady, Trained, 1, Trained, 2], "one version at a time, each after its update was reported"


async def test_what_is_being_written_at_the_end_is_written_and_told_to_nobody() -> None:
    trainer = RecordingTrainer()
    may_write = trainer.may_write = threading.Event()
    link = Script(RoundStart(update=0, num_groups=0), Finish())
    link.on_ack = lambda message: may_write.set() if isinstance(message, Finish) else None
    await serve(link, trainer)
    assert [type(m) for m in link.sent] == [LearnerReady, Trained]
    assert trainer.taken == [1]
    assert not trainer.writing


async def test_a_version_that_cannot_be_written_ends_the_role_with_the_reason() -> None:
    trainer = RecordingTrainer()
    trainer.disk_full = True
    with pytest.raises(OSError, match="no space left"):
        await serve(Script(RoundStart(update=0, num_groups=0), Published), trainer)


async def test_a_resumed_learner_says_its_version() -> None:
    link = Script(RoundStart(update=7, num_groups=0))
    await serve(link, RecordingTrainer(version=7))
    ready = link.sent[0]
    assert isinstance(ready, LearnerReady)
    assert (ready.version, ready.manifest.version) == (7, 7)
    assert isinstance(link.sent[1], Trained)


async def test_a_round_announced_again_starts_again() -> None:
    a, b = group("a", [1, 0]), group("b", [1, 0])
    start = RoundStart(update=0, num_groups=2)
    trainer = RecordingTrainer()
    await serve(Script(start, a, start, a, b), trainer)
    assert [c.groups for c in trainer.trained] == [(a, b)]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([RoundStart(update=3, num_groups=1)], "round 3 was announced to a learner at version 0"),
        ([group("a", [1, 0])], "came outside a round"),
    ],
)
async def test_what_does_not_fit_is_a_link_error(messages: list[ToLearner], error: str) -> None:
    with pytest.raises(LinkError, match=error):
        await serve(Script(*messages), RecordingTrainer())


async def test_the_event_loop_runs_while_the_learner_trains() -> None:
    trainer = RecordingTrainer()
    trainer.may_train = threading.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, Script(RoundStart(update=0, num_groups=0)), trainer)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(anyio.to_thread.run_sync, trainer.may_train.set)
    assert len(trainer.trained) == 1
