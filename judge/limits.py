"""An endpoint's own limits on requests and tokens a minute, kept on our side. Pure: the caller brings the clock."""

from __future__ import annotations

BURST_S = 5.0  # how much unused allowance is kept


class RateBudget:
    """Allowance that flows in steadily; what is taken beyond it is a debt that has to be waited for.

    requests_per_minute, tokens_per_minute: 0 means no limit
    """

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self._request_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_s = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        # Each limit is the moment up to which its allowance is spent.
        self._requests_until_s = 0.0
        self._tokens_until_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next request may go out."""
        return max(0.0, self._requests_until_s - now_s, self._tokens_until_s - now_s)

    def take(self, now_s: float, tokens: int) -> None:
        """Spend one request of about this many tokens."""
        if self._request_s:
            self._requests_until_s = max(self._requests_until_s, now_s - BURST_S) + self._request_s
        if self._token_s:
            self._tokens_until_s = max(self._tokens_until_s, now_s - BURST_S) + tokens * self._token_s
