"""One endpoint in use: what it was given, how it did, and when it may be asked again."""

from __future__ import annotations

import logging

import msgspec

from judge.breaker import Breaker
from judge.concurrency import ConcurrencyLimit
from judge.endpoint import Answer, AttemptFailed, Endpoint, FailureKind
from judge.latency import Latency
from judge.limits import RateBudget, Spending
from judge.router import EndpointLoad
from judge.share import RecentShare
from judge.standing import EndpointStanding
from judge.tokens import RequestSize, TokenEstimate

_OVERLOAD: frozenset[FailureKind] = frozenset({"busy", "slow", "server", "unreachable"})
LONGEST_RETRY_AFTER_S = 3600.0  # a server may ask for more; it is asked again after this
_CAUTION = 5  # good requests assumed before the first, when shares are used for choosing
_WARN_EVERY_S = 60.0  # one endpoint's failures, in the log

_LOG = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The right to send one request to one endpoint. It must be given back, once, to the pool it came from."""

    member: AttachedEndpoint  # which endpoint
    sent_s: float  # when it was given
    size: RequestSize  # of the request
    spending: Spending  # on the endpoint's rate budget
    epoch: int  # of its concurrency limit
    probe: bool  # its outcome decides about the breaker


class AttachedEndpoint:
    """Keeps the books of one endpoint. Decides nothing but what its own limits are; the caller brings the clock."""

    def __init__(self, endpoint: Endpoint, index: int) -> None:
        config = endpoint.config
        self.endpoint = endpoint
        self.config = config
        self.index = index
        self.draining = False
        self._breaker = Breaker()
        self._limit = ConcurrencyLimit(config.concurrency)
        self._latency = Latency()
        self._budget = RateBudget(config.requests_per_minute, config.tokens_per_minute)
        self._estimate = TokenEstimate()
        self._errors = RecentShare()
        self._abstained = RecentShare()
        self._not_before_s = 0.0
        self._answered = 0
        self._failed = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self.problem = ""  # of the last failure; empty while the last request was answered
        self._warned_s: float | None = None

    @property
    def in_flight(self) -> int:
        """Requests out now."""
        return self._latency.in_flight

    @property
    def p95_s(self) -> float | None:
        """95th percentile of the service time; None while little is known."""
        return self._latency.quantile_s(0.95)

    def load(self, now_s: float, size: RequestSize) -> EndpointLoad:
        """What the router wants to know, for a request of this size."""
        tokens = self._estimate.of(size)
        state = self._breaker.state
        latency_s = self._latency.expected_s(now_s)
        if latency_s is not None:
            # On average so many attempts bring one usable answer.
            latency_s /= (1.0 - self._errors.cautious(_CAUTION)) * (1.0 - self._abstained.cautious(_CAUTION))
        return EndpointLoad(
            index=self.index,
            tier=self.config.tier,
            limit=self._limit.limit if state == "up" else 1,
            in_flight=self.in_flight if state == "up" else int(state == "probing"),
            latency_s=latency_s,
            interval_s=self._budget.interval_s(tokens),
            ready_s=max(self._not_before_s, self._breaker.ready_s, now_s + self._budget.wait_s(now_s, tokens)),
            down=state != "up",
        )

    def take(self, now_s: float, size: RequestSize) -> Place:
        """Give one place out."""
        self._latency.sent(now_s)
        return Place(
            member=self,
            sent_s=now_s,
            size=size,
            spending=self._budget.take(now_s, self._estimate.of(size)),
            epoch=self._limit.epoch,
            probe=self._breaker.sent(),
        )

    def answered(self, place: Place, answer: Answer, now_s: float) -> None:
        """The request of this place was answered."""
        self._limit.record(overloaded=False, in_flight=self.in_flight, epoch=place.epoch)
        self._latency.answered(place.sent_s, now_s)
        self._errors.push(0.0)
        self._answered += 1
        self._prompt_tokens += answer.prompt_tokens
        self._completion_tokens += answer.completion_tokens
        if answer.prompt_tokens:
            self._budget.correct(place.spending, answer.prompt_tokens + answer.completion_tokens)
            self._estimate.learn(place.size, answer.prompt_tokens, answer.completion_tokens)
        self.problem = ""
        if self._breaker.succeeded(now_s):
            self._limit.reset()
            _LOG.info("judge %s answers again", self.config.url)

    def failed(self, place: Place, failure: AttemptFailed, now_s: float) -> None:
        """The request of this place failed."""
        if failure.kind == "schema":  # it will be asked otherwise; nothing is wrong with it
            self._latency.failed(place.sent_s, now_s)
            self._breaker.abandoned(probe=place.probe)
            return
        p95_s = self.p95_s
        if failure.kind == "slow" and p95_s is not None and now_s - place.sent_s < p95_s:
            self.abandoned(place, now_s)  # it was given less time than it usually needs
            return
        self._limit.record(overloaded=failure.kind in _OVERLOAD, in_flight=self.in_flight, epoch=place.epoch)
        if failure.kind == "slow":
            self._latency.gave_up(place.sent_s, now_s)
        else:
            self._latency.failed(place.sent_s, now_s)
        self._errors.push(1.0)
        self._failed += 1
        self.problem = str(failure)
        if failure.retry_after_s is not None:
            self._not_before_s = max(self._not_before_s, now_s + min(failure.retry_after_s, LONGEST_RETRY_AFTER_S))
        if failure.kind == "busy":  # it lives
            if self._breaker.succeeded(now_s):
                self._limit.reset()
        elif self._breaker.failed(place.sent_s, now_s, probe=place.probe):
            _LOG.warning("judge %s is down and will be probed: %s", self.config.url, failure)
            self._warned_s = now_s
        if self._warned_s is None or now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _LOG.warning("judge %s: %s", self.config.url, failure)

    def abandoned(self, place: Place, now_s: float) -> None:
        """Nobody waits for the request of this place any more."""
        self._latency.gave_up(place.sent_s, now_s)
        self._breaker.abandoned(probe=place.probe)

    def judged(self, asked: int, answered: int) -> None:
        """Of the questions in one request, so many were answered usably."""
        self._abstained.push(1.0 - answered / asked)

    def standing(self) -> EndpointStanding:
        """How it is doing."""
        prompt_price = self._prompt_tokens * self.config.price_in
        completion_price = self._completion_tokens * self.config.price_out
        return EndpointStanding(
            url=self.config.url,
            model=self.config.model,
            state="draining" if self.draining else self._breaker.state,
            in_flight=self.in_flight,
            limit=self._limit.limit,
            p50_s=self._latency.quantile_s(0.5),
            p95_s=self.p95_s,
            error_share=self._errors.value,
            abstain_share=self._abstained.value,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            price=1e-6 * (prompt_price + completion_price),
            answered=self._answered,
            failed=self._failed,
            problem=self.problem,
        )
