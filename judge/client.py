"""The judge as the rest of the stream sees it: trajectories in, verdicts out, never an error of a judge's making."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import aiohttp
import anyio

from judge.endpoint import Answer, AttemptFailed, Endpoint, EndpointStats
from judge.parse import ParsedTag, parse_reply
from judge.prompt import TagPrompt, chunks, subset
from judge.retry import attempt_s, backoff_s
from judge.router import JudgeRouter
from judge.session import new_session
from judge.transcript import DEFAULT_BUDGET, from_trajectory, quote
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError, JudgeFailed
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Tag, Trajectory, Verdict


class OpenAIJudge:
    """Tags trajectories through any number of OpenAI-compatible endpoints. An async context manager.

    Consumes trajectories. Waits for a free place among the endpoints' `concurrency`, then for answers, with retries,
    at most `deadline_s` (the longest of the endpoints'). Produces verdicts in which every rubric that got no usable
    answer is abstained. Unblocked by an answer or by the deadline.

    Time spent waiting for a free place does not count against the deadline: a long queue must not turn into
    abstentions. The caller bounds how much it submits.
    """

    def __init__(
        self,
        endpoints: Sequence[JudgeEndpoint],
        vocabulary: Vocabulary,
        *,
        chunk: int = 64,
        transcript_chars: int = DEFAULT_BUDGET,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        if not endpoints:
            raise ConfigError("judge.endpoints", "no endpoint to ask; add a [[judge.endpoints]] entry.")
        for i, endpoint in enumerate(endpoints):
            if not endpoint.url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"judge.endpoints.{i}.url",
                    f"{endpoint.url!r} is not an http(s) address; an embedded judge has to be started and its "
                    "address put in its place.",
                )
        self._configs = tuple(endpoints)
        self._vocabulary = vocabulary
        self._prompts = chunks(vocabulary, chunk)
        self._transcript_chars = transcript_chars
        self._environ = environ
        self._clock = clock
        self._rng = rng or random.Random()
        self._router = JudgeRouter()
        self._deadline_s = max(e.deadline_s for e in endpoints)
        self._places = sum(e.concurrency for e in endpoints)
        self._session: aiohttp.ClientSession | None = None
        self._endpoints: list[Endpoint] = []

    async def __aenter__(self) -> OpenAIJudge:
        """Open the session. Raises `ConfigError` for a key that is not there."""
        session = new_session(self._places)
        try:
            self._endpoints = [
                Endpoint(config, session, index=i, clock=self._clock, environ=self._environ)
                for i, config in enumerate(self._configs)
            ]
        except ConfigError:
            await session.close()
            raise
        self._session = session
        self._limiter = anyio.CapacityLimiter(self._places)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        if self._session is not None:
            with anyio.CancelScope(shield=True):
                await self._session.close()
            self._session = None

    @property
    def stats(self) -> tuple[EndpointStats, ...]:
        """One entry for each endpoint, in the order of the configuration."""
        return tuple(e.stats for e in self._endpoints)

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """Every rubric of the vocabulary on this trajectory, in its order."""
        started = self._clock()
        quotation = quote(from_trajectory(trajectory), self._transcript_chars)
        asks = [_Ask(prompt, quotation) for prompt in self._prompts]
        if len(asks) == 1:
            await self._run(asks[0])
        else:
            async with anyio.create_task_group() as group:
                for ask in asks:
                    group.start_soon(self._run, ask)
        return Verdict(
            trajectory_id=trajectory.id,
            tags=tuple(tag for ask in asks for tag in ask.verdicts()),
            endpoint=next((a.endpoint for a in asks if a.endpoint), ""),
            model=next((a.model for a in asks if a.model), ""),
            prompt_tokens=sum(a.prompt_tokens for a in asks),
            completion_tokens=sum(a.completion_tokens for a in asks),
            seconds=self._clock() - started,
        )

    async def _run(self, ask: _Ask) -> None:
        """Ask, and once more for what is missing from the reply."""
        async with self._limiter:
            deadline = self._clock() + self._deadline_s
            with anyio.move_on_after(self._deadline_s) as scope:
                try:
                    missing = ask.accept(*await self._answer(ask.prompt, ask.quotation, deadline))
                    if missing:
                        repair = subset(self._vocabulary, missing)
                        ask.accept(*await self._answer(repair, ask.quotation, deadline))
                except JudgeFailed as error:
                    ask.problem = str(error)
            if scope.cancelled_caught:
                ask.problem = f"no answer within the deadline of {self._deadline_s:g} s"

    async def _answer(self, prompt: TagPrompt, quotation: str, deadline: float) -> tuple[Answer, Endpoint]:
        """The first usable answer of any endpoint before the deadline. Raises `JudgeFailed`."""
        ready_s = [0.0] * len(self._endpoints)  # by endpoint: when this request may try it (again)
        failures = 0
        problem = "the rate limits leave no room for a request before the deadline"
        hopeless: set[int] = set()
        while True:
            loads = [e.load(ready_s[e.index]) for e in self._endpoints if e.index not in hopeless]
            choice = self._router.choose(loads)
            remaining_s = deadline - self._clock()
            if choice is None or choice.wait_s >= remaining_s:
                raise JudgeFailed(problem)
            if choice.wait_s > 0.0:
                await anyio.sleep(choice.wait_s)
                continue
            endpoint = self._endpoints[choice.index]
            try:
                timeout_s = min(attempt_s(remaining_s), endpoint.config.deadline_s)
                return await endpoint.complete(prompt, quotation, timeout_s), endpoint
            except AttemptFailed as failure:
                problem = f"{endpoint.config.url}: {failure}"
                failures += 1
                if failure.retryable:
                    ready_s[choice.index] = self._clock() + backoff_s(failures, failure.retry_after_s, self._rng)
                else:
                    hopeless.add(choice.index)


class _Ask:
    """One prompt about one transcript, and what came back so far."""

    def __init__(self, prompt: TagPrompt, quotation: str) -> None:
        self.prompt = prompt
        self.quotation = quotation
        self.tags: dict[str, ParsedTag] = {}
        self.endpoint = ""
        self.model = ""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.problem = "no usable answer"  # why rubrics are abstained, if any are

    def accept(self, answer: Answer, endpoint: Endpoint) -> tuple[str, ...]:
        """Take in a reply. Returns the rubrics that still have no tag."""
        asked = [r for r in self.prompt.rubric_ids if r not in self.tags]
        reply = parse_reply(answer.content, asked)
        self.tags.update(reply.tags)
        self.endpoint = endpoint.config.url
        self.model = answer.model
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        return reply.missing

    def verdicts(self) -> list[Tag]:
        """A tag for each asked rubric, in order; abstained where there is none."""
        return [
            Tag(rubric=rubric, value=found.value, reason=found.reason)
            if (found := self.tags.get(rubric)) is not None
            else Tag(rubric=rubric, value="abstained", reason=self.problem)
            for rubric in self.prompt.rubric_ids
        ]
