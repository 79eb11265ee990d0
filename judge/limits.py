"""An endpoint's own limits on requests and tokens a minute, kept on our side. Pure: the caller brings the clock."""

from __future__ import annotations

import math
from collections import deque

import msgspec

BURST_S = 5.0  # how much unused allowance may be spent at once
MINUTE_S = 61.0  # a limit "a minute" holds in every span of this length; a second for clocks and networks


class Spending(msgspec.Struct, kw_only=True):
    """One request on the account."""

    at_s: float  # when it was sent
    tokens: int  # estimated, then corrected
    counted: bool = True  # still within the last minute


class RateBudget:
    """Allowance that flows in steadily, with a minute's total that is never exceeded.

    Both are needed: the flow alone, with its burst, allows more than the limit within some minutes; the total alone
    allows a minute's requests in its first second. A request of more tokens than a whole minute allows goes out alone.

    requests_per_minute, tokens_per_minute: 0 means no limit
    """

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self._max_requests = requests_per_minute
        self._max_tokens = tokens_per_minute
        self._request_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_s = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        # The moments up to which the allowances are spent.
        self._requests_until_s = -math.inf
        self._tokens_until_s = -math.inf
        self._minute: deque[Spending] = deque()
        self._minute_tokens = 0

    def interval_s(self, tokens: int) -> float:
        """Seconds between requests of this many tokens in the long run."""
        return max(self._request_s, tokens * self._token_s)

    def wait_s(self, now_s: float, tokens: int) -> float:
        """Seconds until the next request, of about this many tokens, may go out."""
        self._forget(now_s)
        return max(
            0.0,
            self._requests_until_s - now_s,
            self._tokens_until_s - now_s,
            self._room_s(tokens) - now_s,
        )

    def take(self, now_s: float, tokens: int) -> Spending:
        """Spend one request of about this many tokens."""
        spending = Spending(at_s=now_s, tokens=tokens)
        if self._request_s:
            self._requests_until_s = max(self._requests_until_s, now_s - BURST_S) + self._request_s
        if self._token_s:
            self._tokens_until_s = max(self._tokens_until_s, now_s - BURST_S) + tokens * self._token_s
        if self._request_s or self._token_s:
            self._minute.append(spending)
            self._minute_tokens += tokens
        return spending

    def correct(self, spending: Spending, tokens: int) -> None:
        """The request took this many tokens in truth."""
        more = tokens - spending.tokens
        spending.tokens = tokens
        self._tokens_until_s += more * self._token_s
        if spending.counted and (self._request_s or self._token_s):
            self._minute_tokens += more

    def _forget(self, now_s: float) -> None:
        while self._minute and self._minute[0].at_s <= now_s - MINUTE_S:
            past = self._minute.popleft()
            past.counted = False
            self._minute_tokens -= past.tokens

    def _room_s(self, tokens: int) -> float:
        """The moment from which the last minute has room for one more request."""
        ready_s = -math.inf
        if self._max_requests and len(self._minute) >= self._max_requests:
            ready_s = self._minute[len(self._minute) - self._max_requests].at_s + MINUTE_S
        if self._max_tokens:
            excess = self._minute_tokens + tokens - self._max_tokens
            for past in self._minute:
                if excess <= 0:
                    break
                excess -= past.tokens
                ready_s = max(ready_s, past.at_s + MINUTE_S)
        return ready_s
