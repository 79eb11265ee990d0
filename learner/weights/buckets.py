"""Which parameters are gathered together: enough for few collectives, little enough for memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def buckets(sizes: Sequence[int], limit: int) -> Iterator[range]:
    """Split items of these sizes, in order, into runs of at most `limit` in sum; a larger item is a run by itself.

    >>> list(buckets([3, 4, 4, 9, 1], limit=8))
    [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    """
    begin = total = 0
    for i, size in enumerate(sizes):
        if i > begin and total + size > limit:
            yield range(begin, i)
            begin, total = i, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))
