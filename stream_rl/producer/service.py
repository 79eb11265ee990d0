"""The producer role: leases in, trajectories out, new weights in between.

Consumes: leases, weight updates, `Finish`. Waits for: its link, the generator, its worlds. Produces: trajectories, a
`GroupClosed` for each lease (with rubric bundles if it asks for them), a report for each update, time accounts.
Unblocked by: the orchestrator's leases.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from stream_rl.errors import WeightsRejected
from stream_rl.messages import (
    EvalLease,
    Finish,
    FromProducer,
    GroupClosed,
    ProducerReady,
    ProducerStats,
    ToProducer,
    TrainLease,
    TrajectoryDone,
    UpdateWeights,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.ports import EnvironmentPool, Generator, Link
from stream_rl.producer.account import ProducerAccount
from stream_rl.producer.gate import DrainGate, OpenGate
from stream_rl.producer.group import run_group
from stream_rl.producer.history import TurnRenderer, Window
from stream_rl.producer.rollout import Means
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.rubrics.writing import WritingOptions

log = logging.getLogger(__name__)

_GOODBYE_S = 5.0  # for the last account to find credit
ProducerLink: TypeAlias = Link[FromProducer, ToProducer]
Ack: TypeAlias = Callable[[], None]


def producer_activities(clock: Callable[[], float] = time.monotonic, capacity: int = 0) -> ProducerAccount:
    """The account of a producer that is to hold `capacity` rollouts at once."""
    return ProducerAccount(capacity=capacity, clock=clock)


class Producer:
    """Serves one link until `Finish`, or until the other side closes it. Owns neither link, generator nor pool.

    `mode` "in_flight" hands an update to the generator at once, which pauses and resumes its requests; "drain" lets
    running groups finish first and holds new ones back until the update is live. `writing` must be given if leases may
    ask for rubric bundles. `windows` names the environments whose prompts are windows, `num_held_out` those that count
    their held-out tasks. `cpu` tells the CPU seconds used since it was last asked, by role.
    """

    def __init__(
        self,
        link: ProducerLink,
        generator: Generator,
        environments: EnvironmentPool,
        renderer: TurnRenderer,
        vocabulary: Vocabulary,
        *,
        capacity: int,
        max_model_len: int,
        windows: Mapping[str, Window] | None = None,
        num_held_out: Mapping[str, int] | None = None,
        writing: WritingOptions | None = None,
        mode: Literal["in_flight", "drain"] = "in_flight",
        deterministic: bool = False,
        stats_every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        self._link = link
        self._generator = generator
        self._capacity = capacity
        self._num_held_out = dict(num_held_out or {})
        self._stats_every_s = stats_every_s
        self._activities = producer_activities(clock, capacity)
        self._cpu = cpu
        self._drains = mode == "drain"
        self._means = Means(
            generator=generator,
            environments=environments,
            renderer=renderer,
            vocabulary=vocabulary,
            activities=self._activities,
            max_model_len=max_model_len,
            windows=windows or {},
            writing=writing,
            deterministic=deterministic,
            clock=clock,
        )
        self._generated_tokens = 0
        self._gate = DrainGate() if self._drains else OpenGate()
        self._rejected: WeightsRejected | None = None
        self._over = anyio.Event()

    async def run(self) -> None:
        """Serve. Raises `WeightsRejected` after telling the orchestrator; any other exception is a bug."""
        await self._send(
            ProducerReady(
                engine=self._generator.engine,
                version=self._generator.version,
                capacity=self._capacity,
                num_held_out=self._num_held_out,
            )
        )
        async with anyio.create_task_group() as group:
            group.start_soon(self._report)
            finished = await self._work()
            self._over.set()
            group.cancel_scope.deadline = anyio.current_time() + (_GOODBYE_S if finished else 0.0)
        if self._rejected is not None:
            raise self._rejected

    async def _work(self) -> bool:
        """Groups and updates until the end; whether it was an orderly `Finish`. Groups still running are cancelled."""
        finished = False
        updates, pending = anyio.create_memory_object_stream[tuple[UpdateWeights, Ack]](float("inf"))
        async with updates, pending, anyio.create_task_group() as group:
            group.start_soon(self._update_in_order, pending, group.cancel_scope)
            async for delivery in self._link:
                match delivery.message:
                    case TrainLease() | EvalLease() as lease:
                        group.start_soon(self._roll_out, lease, delivery.ack)
                    case UpdateWeights() as update:
                        updates.send_nowait((update, delivery.ack))
                    case Finish(reason=reason):
                        log.info("finishing: %s", reason or "no reason given")
                        delivery.ack()
                        finished = True
                        break
            group.cancel_scope.cancel()
        return finished

    async def _roll_out(self, lease: TrainLease | EvalLease, ack: Ack) -> None:
        async with self._gate.group():
            await run_group(lease, self._means, self._send)
        ack()

    async def _update_in_order(
        self, pending: MemoryObjectReceiveStream[tuple[UpdateWeights, Ack]], work: anyio.CancelScope
    ) -> None:
        async for update, ack in pending:
            try:
                async with self._gate.update():
                    with self._activities.updating(drained=self._drains) as pause:
                        report = await self._generator.update(update.manifest)
                        pause.seconds = report.pause_s
            except WeightsRejected as error:
                log.error("version %d was rejected: %s", update.manifest.version, error)
                await self._send(WeightsFailed(version=update.manifest.version, error=str(error)))
                ack()
                self._rejected = error
                work.cancel()
                return
            await self._send(WeightsLive(report=report))
            await self._send(self._stats())  # so that the account of an update is there even when it was a short one
            ack()

    async def _report(self) -> None:
        """An account every so often and a last one at the end."""
        while not self._over.is_set():
            with anyio.move_on_after(self._stats_every_s):
                await self._over.wait()
            await self._send(self._stats())

    def _stats(self) -> ProducerStats:
        """What is new since the last account."""
        states = self._activities.lap()
        tokens, self._generated_tokens = self._generated_tokens, 0
        return ProducerStats(
            states=states,
            total_s=sum(states.values()),
            generated_tokens=tokens,
            slots=self._activities.slots_lap(),
            parts=self._activities.parts_lap(),
            cpu_s=self._cpu() if self._cpu else {},
        )

    async def _send(self, message: FromProducer) -> None:
        match message:
            case TrajectoryDone(trajectory=trajectory):
                self._generated_tokens += trajectory.num_sampled_tokens
            case GroupClosed(written=written, rerolled_tokens=tokens):
                self._generated_tokens += tokens + (written.sampled_tokens if written else 0)
        with self._activities.sending():
            await self._link.send(message)
