"""The judge as the rest of the stream sees it: trajectories in, verdicts and scores out, never an error of a judge's
making.
"""

from __future__ import annotations

import difflib
import logging
import os
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TypeVar

import aiohttp
import anyio

from judge.ask import Ask, total
from judge.courier import Courier
from judge.endpoint import Endpoint
from judge.parse import ParsedTag, parse_reply
from judge.pool import EndpointPool
from judge.prompt import subset
from judge.request import Prompt
from judge.score_parse import parse_scores
from judge.score_prompt import NumberedCriterion, number
from judge.score_prompt import render as render_scoring
from judge.session import MAX_CONNECTIONS, check_address, new_session
from judge.standing import EndpointStanding
from judge.transcript import DEFAULT_BUDGET, from_trajectory, quote
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError, JudgeFailed
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Scores, Tag, Trajectory, Verdict

_REPAIRS = 1  # further requests for what is missing from a reply

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LOG = logging.getLogger(__name__)


class OpenAIJudge:
    """Tags and scores trajectories through any number of OpenAI-compatible endpoints. An async context manager.

    Consumes trajectories. Waits for places within the limits of the endpoints, then for answers, with retries, at most
    the longest `deadline_s` of the endpoints from the first place on. Produces verdicts in which every rubric that got
    no usable answer is abstained, and scores in which every criterion without one is None. Unblocked by an answer, by
    the deadline, or by the last endpoint leaving: with none attached, all is abstained at once.

    Time in the queue does not count against the deadline as long as answers come in: a long queue must not turn into
    abstentions. The caller bounds how much it submits.

    hedge_share: second requests for late answers, as a share of all others; see `judge.hedge`
    """

    def __init__(
        self,
        endpoints: Sequence[JudgeEndpoint],
        vocabulary: Vocabulary,
        *,
        chunk: int = 64,
        transcript_chars: int = DEFAULT_BUDGET,
        hedge_share: float = 0.05,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        for i, endpoint in enumerate(endpoints):
            check_address(endpoint.url, i)
        self._configs = tuple(endpoints)
        self._vocabulary = vocabulary
        self._chunk = chunk
        self._transcript_chars = transcript_chars
        self._environ = environ
        self._clock = clock
        self._rng = rng or random.Random()
        self._pool = EndpointPool(clock)
        self._courier = Courier(self._pool, hedge_share=hedge_share, clock=clock)
        self._session: aiohttp.ClientSession | None = None
        self._attached = 0

    async def __aenter__(self) -> OpenAIJudge:
        """Open the session and attach the configured endpoints. Raises `ConfigError` as `attach` does."""
        self._session = new_session()
        try:
            for config in self._configs:
                self.attach(config)
        except ConfigError:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        await self._close()

    async def _close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            with anyio.CancelScope(shield=True):
                await session.close()

    def attach(self, config: JudgeEndpoint) -> None:
        """Ask this endpoint too, from now on.

        Raises `ConfigError` for an address that cannot be used, a key that is not there, an endpoint that is attached
        already, and more requests at once than one process may have connections.
        """
        if self._session is None:
            raise RuntimeError("OpenAIJudge: attach() outside of `async with`")
        path = f"judge.endpoints.{self._attached}"
        check_address(config.url, self._attached)
        if self._pool.serves(config.url, config.model):
            raise ConfigError(f"{path}.url", f"{config.url} with model {config.model!r} is attached already.")
        together = self._pool.configured + config.concurrency
        if together > MAX_CONNECTIONS:
            raise ConfigError(
                f"{path}.concurrency",
                f"{config.concurrency} makes {together} requests at once over all endpoints, "
                f"more than the {MAX_CONNECTIONS} one process may have.",
            )
        self._pool.attach(Endpoint(config, self._session, index=self._attached, environ=self._environ))
        self._attached += 1

    def detach(self, url: str) -> None:
        """Send nothing more to this address, under any model. What is in flight ends in order; then it is gone.

        Raises `ConfigError` for an address that is not attached.
        """
        if not self._pool.detach(url):
            attached = sorted({s.url for s in self.standing() if s.state != "draining"})
            raise ConfigError(
                "judge.endpoints",
                f"{url} is not attached; attached: {', '.join(attached) or 'none'}.",
                nearest=next(iter(difflib.get_close_matches(url, attached, n=1)), None),
            )

    def standing(self) -> tuple[EndpointStanding, ...]:
        """How each endpoint is doing, in the order they were attached."""
        return self._pool.standing()

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """Every rubric of the vocabulary on this trajectory, in its order."""
        started = self._clock()
        asks = self._asks(trajectory, self._vocabulary.ids, render=partial(subset, self._vocabulary), read=_read_tags)
        await self._run_all(asks)
        spent = total(ask.spent for ask in asks)
        return Verdict(
            trajectory_id=trajectory.id,
            tags=tuple(_tag(rubric, ask.answers.get(rubric), ask.problem) for ask in asks for rubric in ask.keys),
            endpoint=spent.endpoint,
            model=spent.model,
            prompt_tokens=spent.prompt_tokens,
            completion_tokens=spent.completion_tokens,
            seconds=self._clock() - started,
        )

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        """How far this trajectory satisfies each criterion, 0 to 1.

        None where the judge cannot tell from the transcript, and where it gave no usable answer.
        """
        started = self._clock()
        numbered = number(criteria)
        asks = self._asks(trajectory, numbered, render=render_scoring, read=_read_scores)
        await self._run_all(asks)
        for ask in asks:
            if ask.missing:
                unscored, asked = len(ask.missing), len(ask.keys)
                _LOG.debug("%s: %d of %d criteria not scored: %s", trajectory.id, unscored, asked, ask.problem)
        spent = total(ask.spent for ask in asks)
        return Scores(
            trajectory_id=trajectory.id,
            scores=tuple(ask.answers.get(criterion) for ask in asks for criterion in ask.keys),
            endpoint=spent.endpoint,
            model=spent.model,
            prompt_tokens=spent.prompt_tokens,
            completion_tokens=spent.completion_tokens,
            seconds=self._clock() - started,
        )

    def _asks(
        self,
        trajectory: Trajectory,
        keys: Sequence[K],
        *,
        render: Callable[[tuple[K, ...]], Prompt],
        read: Callable[[str, tuple[K, ...]], Mapping[K, V]],
    ) -> list[Ask[K, V]]:
        """Questions about a trajectory, in chunks."""
        quotation = quote(from_trajectory(trajectory), self._transcript_chars)
        starts = range(0, len(keys), self._chunk)
        return [Ask(keys[i : i + self._chunk], quotation, render=render, read=read) for i in starts]

    async def _run_all(self, asks: Sequence[Ask[K, V]]) -> None:
        if len(asks) == 1:  # the usual case needs no further task
            await self._run(asks[0])
            return
        async with anyio.create_task_group() as group:
            for ask in asks:
                group.start_soon(self._run, ask)

    async def _run(self, ask: Ask[K, V]) -> None:
        """Ask, and once more for what is missing from the reply."""
        errand = self._pool.errand(self._rng)
        try:
            for _ in range(1 + _REPAIRS):
                answer, member = await self._courier.fetch(errand, ask.prompt(), ask.quotation)
                asked = len(ask.missing)
                ask.accept(answer, member.config.url)
                member.judged(asked, asked - len(ask.missing))
                if not ask.missing:
                    break
                errand.answered_unusably(member.index)
        except JudgeFailed as error:
            ask.problem = str(error)


def _read_tags(reply: str, asked: tuple[str, ...]) -> Mapping[str, ParsedTag]:
    return parse_reply(reply, asked).tags


def _read_scores(reply: str, asked: tuple[NumberedCriterion, ...]) -> Mapping[NumberedCriterion, float | None]:
    scores = parse_scores(reply, [criterion.id for criterion in asked]).scores
    return {criterion: scores[criterion.id] for criterion in asked if criterion.id in scores}


def _tag(rubric: str, found: ParsedTag | None, problem: str) -> Tag:
    if found is None:
        return Tag(rubric=rubric, value="abstained", reason=problem)
    return Tag(rubric=rubric, value=found.value, reason=found.reason)
