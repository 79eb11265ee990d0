"""When to try again: pure decisions about waiting.

Full jitter (a uniform draw up to an exponentially growing bound) keeps many callers that failed together from coming
back together.
"""

from __future__ import annotations

import math
import random
from datetime import UTC
from email.utils import parsedate_to_datetime

BASE_S = 0.25  # bound of the first wait
CAP_S = 8.0  # bound of any wait that the server did not ask for
SHORTEST_ATTEMPT_S = 0.5  # an attempt is not cut shorter than this while there is time


def backoff_s(
    failures: int, retry_after_s: float | None, rng: random.Random, *, remaining_s: float = math.inf
) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 is the first).

    A server's Retry-After is a lower bound, with a little jitter on top. A wait that nobody asked for takes at most a
    quarter of `remaining_s`, the time left for an answer.
    """
    if retry_after_s is not None:
        return retry_after_s + rng.uniform(0.0, BASE_S)
    bound = min(CAP_S, BASE_S * 2.0 ** min(failures - 1, 16), max(0.0, remaining_s) / 4)
    return rng.uniform(0.0, bound)


def attempt_s(remaining_s: float) -> float:
    """Seconds one attempt may take: half of what is left, so that a stalled request leaves time for another."""
    return max(remaining_s / 2, min(remaining_s, SHORTEST_ATTEMPT_S))


def parse_retry_after(value: str | None, now_unix_s: float) -> float | None:
    """Seconds asked for by a Retry-After header (RFC 9110 §10.2.3): a number or a date; None if absent or garbled."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            if date.tzinfo is None:  # "-0000": the header's dates are GMT
                date = date.replace(tzinfo=UTC)
            seconds = date.timestamp() - now_unix_s
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds < math.inf else None
