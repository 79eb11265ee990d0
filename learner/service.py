"""The learner as a role: rank 0 talks to the orchestrator, the other ranks do what rank 0 tells them.

Consumes: rounds of selected groups. Waits for: the groups of the round that is being filled (`rollout_wait`), and for
others in the place of those it refuses.
Produces: updates, published versions and checkpoints. Unblocked by: the orchestrator, whose closing of the link, or
`Finish`, ends the role.

A version is copied to the host after its update and written from there, while the next round is trained if its groups
are there already: generators need it only for rounds that are further ahead (docs/staleness.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from anyio import to_thread

from learner.distributed import Command, Stop, TrainRound, World, WriteCheckpoint
from learner.metrics import STATES, time_metrics
from learner.options import LearnerOptions
from learner.rounds import Round
from learner.trainer import Trainer
from learner.version_writer import VersionWriter, open_version_writer
from learner.weights.serving import serving
from stream_rl.errors import LinkError
from stream_rl.messages import (
    CheckpointSaved,
    Finish,
    FromLearner,
    GroupRefused,
    LearnerReady,
    RoundStart,
    SaveCheckpoint,
    SelectedGroup,
    ToLearner,
    Trained,
)
from stream_rl.observe.states import StateClock
from stream_rl.ports import Link

__all__ = ["LearnerOptions", "run", "run_rank"]


async def run_rank(options: LearnerOptions, link: Link[FromLearner, ToLearner] | None) -> None:
    """Live one rank's life. Needs the launcher's variables (`learner.distributed`); rank 0 needs `link`.

    Everything that computes runs in a worker thread, so that the link's heartbeats go on.
    """
    world = await to_thread.run_sync(World.join)
    if (world.rank == 0) != (link is not None):
        raise ValueError(f"rank {world.rank} of {world.size}: rank 0 and nobody else has a link")
    if link is not None:
        async with serving(options, world.device) as address:
            trainer = await to_thread.run_sync(Trainer, options, world, address)
            await run(link, trainer, world, max_lag=options.max_lag)
    else:
        trainer = await to_thread.run_sync(Trainer, options, world)
        # Abandoned on cancellation: a rank that waits for a command cannot be woken, and the process ends anyway.
        await to_thread.run_sync(follow, trainer, world, abandon_on_cancel=True)
    await to_thread.run_sync(trainer.close)


async def run(
    link: Link[FromLearner, ToLearner],
    trainer: Trainer,
    world: World,
    clock: Callable[[], float] = time.monotonic,
    *,
    max_lag: int,
) -> None:
    """Rank 0: publish the start weights, then train round after round until told to finish.

    max_lag: groups older than this many updates are refused, and others awaited in their place

    Raises `LinkError` when the orchestrator's rounds do not fit the version of the parameters.
    """
    manifest = await to_thread.run_sync(trainer.publish)
    assert manifest is not None, "rank 0 publishes"
    await link.send(LearnerReady(version=trainer.version, manifest=manifest))
    states = StateClock(STATES, clock, initial="rollout_wait")
    current: Round | None = None
    async with open_version_writer(link, trainer.write, states) as writer:
        async for delivery in link:
            match delivery.message:
                case RoundStart() as start:
                    # Announced again by an orchestrator that came back: its groups will all be sent again.
                    current = Round(start, max_lag=max_lag)
                    if start.update != trainer.version:
                        raise LinkError(f"round {start.update} was announced to a learner at version {trainer.version}")
                case SelectedGroup() as group:
                    if current is None:
                        raise LinkError(f"group {group.group_id} came outside a round")
                    if reason := current.add(group):
                        await link.send(GroupRefused(update=group.update, group_id=group.group_id, reason=reason))
                case SaveCheckpoint():
                    with writer.computing():
                        states.enter("checkpoint")
                        path = await to_thread.run_sync(_save, trainer, world)
                    await link.send(CheckpointSaved(version=trainer.version, path=path))
                case Finish():
                    delivery.ack()
                    break
            delivery.ack()  # the ledger keeps the round until it is trained, and delivers it again after a crash
            if current is not None and current.complete:
                with writer.computing():
                    trained = await _train(trainer, world, current, states, writer)
                    await link.send(trained)
                    current = None
                    writer.begin()
    await to_thread.run_sync(world.tell, Stop())


def follow(trainer: Trainer, world: World) -> None:
    """The other ranks: do as told until told to stop."""
    manifest_of_start = trainer.publish()
    assert manifest_of_start is None, "rank 0 alone publishes"
    while True:
        command: Command = world.next_command()
        match command:
            case TrainRound():
                trainer.update(command, _nowhere)
                trainer.take()
                trainer.end_update(_nowhere)
            case WriteCheckpoint():
                trainer.save()
            case Stop():
                return


def _save(trainer: Trainer, world: World) -> str:
    world.tell(WriteCheckpoint())
    return str(trainer.save())


async def _train(trainer: Trainer, world: World, round_: Round, states: StateClock, writer: VersionWriter) -> Trained:
    """Train a round and take its version, once the one before is out of the way."""
    command = TrainRound(update=round_.update, groups=round_.groups)
    metrics = await to_thread.run_sync(_update, trainer, world, command, states)
    states.enter("publish")
    await writer.over()
    await to_thread.run_sync(trainer.take)
    end = await to_thread.run_sync(trainer.end_update, states.enter)
    return Trained(
        update=round_.update,
        version=trainer.version,
        group_ids=tuple(group.group_id for group in command.groups),
        metrics=metrics | {"cpu_s": {"learner": end.cpu_s}} | time_metrics(states.lap()),
        checkpoint=end.checkpoint,
    )


def _update(trainer: Trainer, world: World, command: TrainRound, states: StateClock) -> dict[str, Any]:
    states.enter("unpack")
    world.tell(command)
    return trainer.update(command, states.enter)


def _nowhere(state: str) -> None:
    """The other ranks keep no account of states."""
