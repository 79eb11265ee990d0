"""Which depth to take, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stream_rl.app.depth.comparison import Row

WITHIN = 0.05  # of the best throughput: less is not worth older data
BUSY = 0.90  # of its time the learner computes: it is what limits the run
WAITS = 0.10  # of its time the learner waits: whoever it waits for limits the run


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    depth: int
    reason: str  # sentences


def recommend(rows: Sequence[Row]) -> Recommendation | None:
    """The smallest depth whose measured throughput is nearly the best. `rows` by depth; None without any."""
    if not rows:
        return None
    best = max(rows, key=lambda row: row.measured.updates_per_min)
    chosen = next(r for r in rows if r.measured.updates_per_min >= (1 - WITHIN) * best.measured.updates_per_min)
    return Recommendation(depth=chosen.depth, reason=" ".join(_reasons(rows, chosen, best)))


def _reasons(rows: Sequence[Row], chosen: Row, best: Row) -> Iterator[str]:
    if len(rows) == 1:
        yield f"Depth {chosen.depth} is the only one that was measured."
    elif chosen is best:
        yield f"Depth {chosen.depth} is the fastest, and none smaller comes within {WITHIN:.0%} of it."
    else:
        lost = 1 - chosen.measured.updates_per_min / best.measured.updates_per_min
        yield (
            f"Depth {chosen.depth} is the smallest within {WITHIN:.0%} of the fastest, which is depth {best.depth} "
            f"({lost:.1%} faster)."
        )
    m = chosen.measured
    if m.lag_max:
        yield f"It trains on data {m.lag_mean or 0.0:.1f} updates old on average, {m.lag_max} at most."
    elif m.lag_max == 0:
        yield "It trains on data of the newest policy alone."
    if m.speed_up_low is not None and chosen.depth > rows[0].depth and m.speed_up_low <= 1:
        yield f"Not every repeat was faster than depth {rows[0].depth}: repeat more often before relying on it."
    yield from _limit(rows, chosen)


def _limit(rows: Sequence[Row], chosen: Row) -> Iterator[str]:
    """What the run is bound by at that depth, and whether depth can help."""
    m = chosen.measured
    busy = 1 - m.rollout_wait_share - m.judge_wait_share
    if busy >= BUSY:
        yield (
            f"The learner is busy {busy:.0%} of its time there, so no depth makes the run faster: give it more "
            "(learner.ranks, learner.threads, cores that generation does not use), or train less of what is generated "
            "(groups.per_update)."
        )
        return
    before = [row for row in rows if row.depth < chosen.depth]
    if chosen.depth == rows[-1].depth and before:
        yield (
            f"The learner still waits {1 - busy:.0%} of its time there, and no deeper run was made: "
            f"try --depths {chosen.depth},{2 * chosen.depth}."
        )
        return
    if not before and len(rows) == 1:
        yield f"The learner waits {1 - busy:.0%} of its time there: measure deeper ones as well."
        return
    if m.rollout_wait_share >= WAITS:
        yield (
            f"The learner waits {m.rollout_wait_share:.0%} of its time for rollouts, and more depth does not shorten "
            "that: generators, worlds or the cores they share with the learner are the limit "
            "(generate.producers, generate.concurrency, workers of the worlds)."
        )
    if m.judge_wait_share >= WAITS:
        yield (
            f"It waits {m.judge_wait_share:.0%} of its time for verdicts alone, and more depth does not shorten that: "
            "attach another judge endpoint, or raise its concurrency."
        )
