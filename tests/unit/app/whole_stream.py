"""A whole run in virtual time: the real orchestrator, producer and learner role over in-memory links.

Only what they wait for is scripted, and takes as long as a `Pace` says: the generator, the world, the judge, the
trainer, the ledger's file. So every second that a role accounts for can be worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
import msgspec
import pytest

from learner import service as learner_service
from learner import version_writer
from learner.distributed import Command, TrainRound, World
from learner.trainer import Trainer, UpdateEnd
from stream_rl.config import Config, from_dict
from stream_rl.link.codec import Decoder
from stream_rl.link.memory import MemoryHub, open_memory_hub
from stream_rl.messages import ToLearner, ToProducer
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.service import Orchestrator
from stream_rl.orchestrator.writer import LedgerWriter
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.service import Producer
from stream_rl.types import (
    Observation,
    Scores,
    StepResult,
    Tag,
    Task,
    Trajectory,
    Verdict,
    VersionSpan,
    WeightsManifest,
)
from tests.unit.orchestrator.virtual import clock
from tests.unit.producer.twins import LetterRenderer, ScriptedGenerator, sampled, vocabulary

P = ParamSpec("P")
T = TypeVar("T")

TURNS = 3  # of every episode
GROUPS, ROLLOUTS = 4, 2  # of a round, of a group
_CAPACITY = 32
_LONGEST_S = 100_000.0  # virtual


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that things take."""

    turn_s: float = 1.0  # one generation
    step_s: float = 0.25  # one answer of the world
    judge_s: float = 0.5  # one verdict
    prox_s: float = 0.5  # of an update
    train_s: float = 2.0  # of an update
    publish_s: float = 0.25  # to write a version
    load_s: float = 0.125  # pause of the generator for new weights
    ledger_s: float = 0.0  # one call


class Worker:
    """Stands for a thread: what runs in it spends time on its own clock, and then the loop's goes on by as much."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def clock(self) -> float:
        return clock.running_loop().time() + self._ahead_s

    def spend(self, seconds: float) -> None:
        self._ahead_s += seconds

    async def run_sync(self, call: Callable[..., T], *args: Any) -> T:
        result = call(*args)
        await anyio.sleep(self._ahead_s)
        self._ahead_s = 0.0
        return result


class PacedTrainer:
    """Says what it does and spends the time for it."""

    def __init__(self, pace: Pace, worker: Worker, writer: Worker) -> None:
        self.version = 0
        self._pace = pace
        self._worker = worker
        self._writer = writer
        self._taken = 0

    def publish(self) -> WeightsManifest:
        return _manifest(self.version)

    def update(self, command: TrainRound, enter: Callable[[str], None]) -> dict[str, Any]:
        for state, seconds in {"prox": self._pace.prox_s, "train": self._pace.train_s}.items():
            enter(state)
            self._worker.spend(seconds)
        self.version += 1
        return {}

    def take(self) -> None:
        self._taken = self.version

    def write(self) -> WeightsManifest:
        self._writer.spend(self._pace.publish_s)
        return _manifest(self._taken)

    def end_update(self, enter: Callable[[str], None]) -> UpdateEnd:
        enter("other")
        return UpdateEnd(checkpoint=None, cpu_s=0.0)

    def save(self) -> Path:
        return Path(f"checkpoints/{self.version}")


def _manifest(version: int) -> WeightsManifest:
    return WeightsManifest(run_id="r", version=version, path="p", fingerprint="f", num_bytes=1)


class _Alone:
    def tell(self, command: Command) -> None:
        pass


class PacedWorld:
    """Every episode has `TURNS` turns; outcomes do not matter here."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def open(self, environment: str) -> PacedSession:
        return PacedSession(self._pace)


class PacedSession:
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._turns = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(text="hi")

    async def step(self, action: str) -> StepResult:
        await anyio.sleep(self._pace.step_s)
        self._turns += 1
        return StepResult(text="", done=self._turns == TURNS)

    async def aclose(self) -> None:
        pass


class PacedJudge:
    """Every verdict takes the same time; any number at once."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def tag(self, trajectory: Trajectory) -> Verdict:
        await anyio.sleep(self._pace.judge_s)
        tags = tuple(Tag(rubric=rubric, value="positive") for rubric in vocabulary().ids)
        return Verdict(trajectory_id=trajectory.id, tags=tags, endpoint="e")

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        raise AssertionError("nothing is written in these runs")


class PacedWriter(LedgerWriter):
    """The ledger in the loop's own thread; a call takes as long as it is told."""

    def __init__(self, ledger: Ledger, seconds: float) -> None:
        super().__init__(ledger)
        self._own = ledger
        self._call_s = seconds
        self.calls = 0

    def account_to(self, service: Orchestrator) -> None:
        self._account = service._state.accounts.actor
        service._state.ledger = self

    async def do(self, call: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        with self._account.during("ledger") if self._account else nullcontext():
            await anyio.sleep(self._call_s)
            return call(self._own, *args, **kwargs)


def config(*, depth: int, updates: int) -> Config:
    """Rounds of four groups, all of them trained."""
    return from_dict(
        {
            "updates": updates,
            "async_depth": depth,
            "groups": {"per_update": GROUPS, "candidates": GROUPS, "size": ROLLOUTS, "deadline_s": 1e3},
            "algorithm": {"selection": "all"},
            "judge": {"endpoints": [{"url": "http://judge"}], "second_share": 0.0},
            "eval": {"every": 0},
            "stall_s": 5e4,
        }
    )


def play(folder: Path, pace: Pace, *, depth: int = 0, updates: int = 6) -> list[dict[str, Any]]:
    """The metrics lines of a run at this pace."""
    run = RunDirectory.create(folder)
    with pytest.MonkeyPatch.context() as patch:
        clock.run(lambda: _live(run, pace, config(depth=depth, updates=updates), patch))
    return list(read_json_lines(run.metrics))


async def _live(run: RunDirectory, pace: Pace, settings: Config, patch: pytest.MonkeyPatch) -> None:
    worker, writer = Worker(), Worker()
    patch.setattr(learner_service, "to_thread", worker)
    patch.setattr(version_writer, "to_thread", writer)
    patch.setattr(version_writer, "monotonic", anyio.current_time)
    async with open_memory_hub() as hub, anyio.create_task_group() as tasks:
        service = Orchestrator(
            config=settings,
            run=run,
            hub=hub,
            ledger=cast(Ledger, None),
            judge=PacedJudge(pace),
            judge_workers=64,
            vocabulary=vocabulary(),
            board=lambda event: None,
            clock=anyio.current_time,
            wall=anyio.current_time,
        )
        PacedWriter(Ledger(run.ledger, run.run_id), pace.ledger_s).account_to(service)
        tasks.start_soon(_produce, hub, pace)
        tasks.start_soon(_learn, hub, pace, worker, writer)
        with anyio.fail_after(_LONGEST_S):
            await service.run(anyio.Event())
        tasks.cancel_scope.cancel()


async def _produce(hub: MemoryHub, pace: Pace) -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        await anyio.sleep(pace.turn_s)
        said = sampled("go")
        span = VersionSpan(version=generator.version, num_tokens=len(said.token_ids))
        return msgspec.structs.replace(said, spans=(span,))

    async def load(manifest: WeightsManifest) -> None:
        await anyio.sleep(pace.load_s)

    generator = ScriptedGenerator(script)
    generator.update_with, generator.pause_s = load, pace.load_s
    receive: Decoder[ToProducer] = Decoder(ToProducer)
    async with hub.connect(role="producer", name="producer-0", receive=receive) as link:
        producer = Producer(
            link,
            generator,
            PacedWorld(pace),
            LetterRenderer(),
            vocabulary(),
            capacity=_CAPACITY,
            max_model_len=1000,
            stats_every_s=0.125,
            clock=anyio.current_time,
        )
        await producer.run()


async def _learn(hub: MemoryHub, pace: Pace, worker: Worker, writer: Worker) -> None:
    receive: Decoder[ToLearner] = Decoder(ToLearner)
    async with hub.connect(role="learner", name="learner", receive=receive) as link:
        trainer = cast(Trainer, PacedTrainer(pace, worker, writer))
        await learner_service.run(link, trainer, cast(World, _Alone()), worker.clock, max_lag=99)
