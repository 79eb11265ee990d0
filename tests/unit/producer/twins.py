"""In-memory twins of the producer's ports, small enough to work numbers by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
import numpy as np

from stream_rl.messages import FromProducer, ToProducer
from stream_rl.ports import Delivery, GenerateRequest, GenerateResult
from stream_rl.producer.account import ProducerAccount
from stream_rl.producer.episode import Plan
from stream_rl.producer.history import Window
from stream_rl.producer.rollout import Means
from stream_rl.producer.service import producer_activities
from stream_rl.rubrics.vocabulary import Rubric, Vocabulary
from stream_rl.rubrics.writing import WritingOptions
from stream_rl.types import (
    Message,
    Observation,
    StepResult,
    Task,
    UpdateReport,
    VersionSpan,
    WeightsManifest,
)

END, USER, ASK, SYSTEM, THINK = 1, 2, 3, 4, 5
TASK = Task(environment="toy", split="train", index=0)


class LetterRenderer:
    """One id a character; a message is its role, its text and END; ASK asks for an answer, THINK for thoughts first."""

    stop_token_ids: tuple[int, ...] = (END,)

    def head(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [SYSTEM if message.role == "system" else USER, *map(ord, message.content), END]
        return [*ids, ASK, *([THINK] if thinking else [])]

    def prompt(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        return self.head(messages, thinking)

    def after_action(self, observation: str, ended: bool) -> list[int]:
        return [*([] if ended else [END]), USER, *map(ord, observation), END, ASK]

    def ends_turn(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[-1] == END

    def decode_action(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in ids if i != END).strip()


def sampled(text: str, *, version: int = 0, ended: bool = True) -> GenerateResult:
    """`text` with log-probabilities -1, -2, ..."""
    ids = [*map(ord, text), *([END] if ended else [])]
    return GenerateResult(
        token_ids=np.array(ids, dtype=np.int32),
        logprobs=-np.arange(1, len(ids) + 1, dtype=np.float32),
        spans=(VersionSpan(version=version, num_tokens=len(ids)),) if ids else (),
        cut=not ended,
    )


Script = Callable[[GenerateRequest], Awaitable[GenerateResult]]


async def always_go(request: GenerateRequest) -> GenerateResult:
    return sampled("go")


class ScriptedGenerator:
    engine = "scripted"

    def __init__(self, script: Script = always_go) -> None:
        self.script = script
        self.version = 0
        self.requests: list[GenerateRequest] = []
        self.update_with: Callable[[WeightsManifest], Awaitable[None]] | None = None
        self.pause_s = 0.0  # what an update says of itself

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self.requests.append(request)
        return await self.script(request)

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        if self.update_with is not None:
            await self.update_with(manifest)
        self.version = manifest.version
        return UpdateReport(
            version=manifest.version, fingerprint=manifest.fingerprint, pause_s=self.pause_s, load_s=0.0
        )

    async def aclose(self) -> None:
        pass


def lines(*results: GenerateResult) -> Script:
    """One result after another."""
    left = iter(results)

    async def script(request: GenerateRequest) -> GenerateResult:
        return next(left)

    return script


class ToyWorld:
    """Answers from a list; an exception in it is raised."""

    def __init__(
        self,
        answers: Sequence[StepResult | Exception],
        first: str | Exception = "hi",
        spend: Callable[[], Any] = int,
        admissible: tuple[str, ...] = (),
    ) -> None:
        self._answers = answers
        self._first = first
        self._admissible = admissible
        self._spend = spend
        self.opened = 0
        self.closed = 0
        self.actions: list[str] = []
        self.seeds: list[int] = []

    async def open(self, environment: str) -> ToySession:
        self.opened += 1
        return ToySession(self)

    def begin(self, seed: int) -> Observation:
        self._spend()
        self.seeds.append(seed)
        if isinstance(self._first, Exception):
            raise self._first
        return Observation(text=self._first, admissible=self._admissible)

    def answer(self, turn: int, action: str) -> StepResult:
        self._spend()
        self.actions.append(action)
        answer = self._answers[min(turn, len(self._answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        return answer


class ToySession:
    def __init__(self, world: ToyWorld) -> None:
        self._world = world
        self._turn = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        return self._world.begin(seed)

    async def step(self, action: str) -> StepResult:
        self._turn += 1
        return self._world.answer(self._turn - 1, action)

    async def aclose(self) -> None:
        self._world.closed += 1


class MemoryLink:
    """The producer's end of a link; the test is the other end."""

    def __init__(self) -> None:
        self._give, self._take = anyio.create_memory_object_stream[ToProducer](100)
        self._out, self.sent = anyio.create_memory_object_stream[FromProducer](10_000)
        self.acked: list[ToProducer] = []

    def deliver(self, message: ToProducer) -> None:
        self._give.send_nowait(message)

    def close(self) -> None:
        for stream in (self._give, self._take, self._out, self.sent):
            stream.close()

    def hang_up(self) -> None:
        """The other side closes in order."""
        self._give.close()

    async def send(self, message: FromProducer) -> None:
        await self._out.send(message)

    async def __aiter__(self) -> AsyncIterator[Delivery[ToProducer]]:
        async for message in self._take:
            yield Delivery(message=message, ack=partial(self.acked.append, message))


def vocabulary() -> Vocabulary:
    rubric = Rubric(
        id="search.once",
        skill="search",
        name="search once",
        applies="always",
        positive="searches once",
        violation="searches twice",
        hint="search once",
        avoid="avoid searching twice",
    )
    return Vocabulary(rubrics=(rubric,), digest="0")


def means(
    generator: ScriptedGenerator,
    world: ToyWorld,
    *,
    activities: ProducerAccount | None = None,
    max_model_len: int = 1000,
    window: Window | None = None,
    writing: WritingOptions | None = None,
    deterministic: bool = False,
    clock: Callable[[], float] = lambda: 0.0,
) -> Means:
    return Means(
        generator=generator,
        environments=world,
        renderer=LetterRenderer(),
        vocabulary=vocabulary(),
        activities=activities or producer_activities(clock),
        max_model_len=max_model_len,
        windows={} if window is None else {TASK.environment: window},
        writing=writing,
        deterministic=deterministic,
        clock=clock,
    )


def plan(**fields: Any) -> Plan:
    defaults: dict[str, Any] = {
        "group_id": "g", "member": 2, "task": TASK, "seed": 9, "temperature": 0.7, "max_tokens": 8, "max_turns": 5
    }  # fmt: skip
    return Plan(**{**defaults, **fields})
