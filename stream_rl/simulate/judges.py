"""Judge endpoints as one queue with several places. No clock: the model says when a question comes."""

from __future__ import annotations

from heapq import heapreplace

from stream_rl.config import Config
from stream_rl.simulate.profile import JudgeTimes


class Judges:
    """First come, first served. Questions must come in order of time.

    >>> judges = Judges(places=1, answer_s=2.0)
    >>> [judges.ask(0.0), judges.ask(1.0)]
    [2.0, 4.0]
    """

    def __init__(self, *, places: int, answer_s: float, interval_s: float = 0.0) -> None:
        """`places` questions are answered at once, each in `answer_s`; two begin `interval_s` apart at least."""
        self.places = places
        self.busy_s = 0.0  # summed over places
        self._answer_s = answer_s
        self._interval_s = interval_s
        self._free_s = [0.0] * places
        self._begun_s = -interval_s

    def ask(self, now_s: float, questions: int = 1) -> float:
        """Ask so many questions at once; when the last answer is there."""
        free_s, answer_s = self._free_s, self._answer_s
        end = now_s
        for _ in range(questions):
            begin = max(now_s, free_s[0])
            if self._interval_s:
                begin = max(begin, self._begun_s + self._interval_s)
                self._begun_s = begin
            end = begin + answer_s
            heapreplace(free_s, end)
        self.busy_s += questions * answer_s
        return end


def judges_of(config: Config, times: JudgeTimes) -> Judges | None:
    """The endpoints of a configuration; None: nobody is asked.

    A limit of requests a minute holds where every endpoint has one. Hedging, retries and second opinions are left out.
    """
    endpoints = config.judge.endpoints
    if not endpoints:
        return None
    per_minute = [e.requests_per_minute for e in endpoints]
    interval_s = 60.0 * times.requests / sum(per_minute) if all(per_minute) else 0.0
    return Judges(places=sum(e.concurrency for e in endpoints), answer_s=times.answer_s, interval_s=interval_s)
