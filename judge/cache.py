"""Answers a judge has given before, given again without asking it.

An answer is kept under everything that decides it: kind and version of the prompt, the vocabulary or the criteria, how
many are asked at once, the models asked, and the transcript exactly as it is quoted. Members of a group often play the
same episode, and a run that is replayed or resumed asks the same questions again.

Where several endpoints serve, the key holds the sorted set of all their models, not the model that answered: which
endpoint a question goes to depends on load, so an answer of any of them is *the* answer of that set, and what another
set would say is not known from it.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
import msgspec

from judge import prompt, score_prompt
from judge.answer_store import AnswerStore
from judge.transcript import DEFAULT_BUDGET, from_trajectory, quote
from stream_rl.ports import Judge
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Scores, Trajectory, Verdict

MAX_ROWS = 100_000  # answers kept; one of 59 tags takes about 5 kB

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_ENCODER = msgspec.msgpack.Encoder()
_VERDICT = msgspec.msgpack.Decoder(Verdict)
_SCORES = msgspec.msgpack.Decoder(Scores)


class CacheStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, of both kinds of question."""

    hits: int  # answered from the file
    misses: int  # asked the judge


class CachedJudge:
    """A `Judge` over another one. An async context manager.

    Only whole answers are kept: one with an abstention or a missing score is asked for again next time. An answer from
    the file costs no tokens and no seconds, and names the endpoint that gave it. A file that cannot be used (damaged,
    locked, of another kind) is said once in the log, and the judge goes on without it.

    A second opinion is not to be had here: who wants one asks the judge underneath.
    """

    def __init__(
        self,
        inner: Judge,
        path: Path,
        *,
        vocabulary: Vocabulary,
        models: Callable[[], Iterable[str]],
        chunk: int,
        transcript_chars: int = DEFAULT_BUDGET,
        max_rows: int = MAX_ROWS,
    ) -> None:
        """`vocabulary`, `chunk` and `transcript_chars` as `inner` has them; `models()` names all it may ask now."""
        self._inner = inner
        self._path = path
        self._vocabulary = vocabulary
        self._models = models
        self._chunk = chunk
        self._transcript_chars = transcript_chars
        self._max_rows = max_rows
        self._store: AnswerStore | None = None
        self._usable = False
        self._limiter = anyio.CapacityLimiter(1)  # the store's one thread
        self._hits = 0
        self._misses = 0

    async def __aenter__(self) -> CachedJudge:
        """Open the file, or go on without."""
        self._usable = True
        self._store = await self._guarded(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file. The judge underneath is its owner's to close."""
        store, self._store = self._store, None
        if store is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(store.close, limiter=self._limiter)

    @property
    def stats(self) -> CacheStats:
        """Counts so far."""
        return CacheStats(hits=self._hits, misses=self._misses)

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """As the judge underneath would."""
        models = self._asked()
        key = self._key("tag", prompt.VERSION, self._vocabulary.digest, models, trajectory)
        found = self._read(await self._get(key), _VERDICT)
        if found is not None and self._is_whole(found):
            self._hits += 1
            return msgspec.structs.replace(
                found, trajectory_id=trajectory.id, prompt_tokens=0, completion_tokens=0, seconds=0.0
            )
        self._misses += 1
        verdict = await self._inner.tag(trajectory)
        if self._is_whole(verdict) and models == self._asked():
            await self._put(key, msgspec.structs.replace(verdict, trajectory_id=""))
        return verdict

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        """As the judge underneath would."""
        models = self._asked()
        key = self._key("score", score_prompt.VERSION, criteria, models, trajectory)
        found = self._read(await self._get(key), _SCORES)
        if found is not None and _all_scored(found, criteria):
            self._hits += 1
            return msgspec.structs.replace(
                found, trajectory_id=trajectory.id, prompt_tokens=0, completion_tokens=0, seconds=0.0
            )
        self._misses += 1
        scores = await self._inner.score(trajectory, criteria)
        if _all_scored(scores, criteria) and models == self._asked():
            await self._put(key, msgspec.structs.replace(scores, trajectory_id=""))
        return scores

    def _asked(self) -> tuple[str, ...]:
        """The models that may answer now. They change when endpoints come and go."""
        return tuple(sorted(set(self._models())))

    def _key(
        self,
        kind: Literal["tag", "score"],
        version: str,
        subject: str | tuple[str, ...],
        models: tuple[str, ...],
        trajectory: Trajectory,
    ) -> bytes:
        quotation = quote(from_trajectory(trajectory), self._transcript_chars)
        parts = _ENCODER.encode((kind, version, subject, self._chunk, models, quotation))
        return hashlib.blake2b(parts, digest_size=32).digest()

    def _is_whole(self, verdict: Verdict) -> bool:
        """Every rubric of the vocabulary decided. Also what a file of ours must hold to be believed."""
        tags = verdict.tags
        return tuple(tag.rubric for tag in tags) == self._vocabulary.ids and all(t.value != "abstained" for t in tags)

    def _read(self, record: bytes | None, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """A record of ours; None for none, and for a damaged one, which the next answer replaces."""
        if record is None:
            return None
        try:
            return decoder.decode(record)
        except msgspec.DecodeError as error:
            _LOG.warning("judge cache %s: a damaged answer is asked for again: %s", self._path, error)
            return None

    async def _get(self, key: bytes) -> bytes | None:
        store = self._store
        return None if store is None else await self._guarded(store.get, key)

    async def _put(self, key: bytes, answer: Verdict | Scores) -> None:
        store = self._store
        if store is not None:
            await self._guarded(store.put, key, _ENCODER.encode(answer))

    def _open(self) -> AnswerStore:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return AnswerStore(self._path, max_rows=self._max_rows)

    async def _guarded(self, call: Callable[..., T], *arguments: object) -> T | None:
        """`call` in the store's thread; None once the file has turned out not to be usable."""
        if not self._usable:
            return None
        try:
            return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)
        except (sqlite3.Error, OSError) as error:
            if self._usable:
                _LOG.warning("judge cache %s cannot be used (%s); judging goes on without it", self._path, error)
            self._usable = False
            return None


def _all_scored(scores: Scores, criteria: tuple[str, ...]) -> bool:
    return len(scores.scores) == len(criteria) and all(score is not None for score in scores.scores)
