"""What the rows of an update say before any pass reads them: a ledger alone gives the same numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from learner.rows import Row


def row_facts(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts and advantages of one update, under the names of a metrics line. Means over no token are None.

    Sums are rounded once, so they do not depend on the order of rows.
    """
    sizes = [np.abs(row.advantages[row.loss_mask]).astype(np.float64) for row in rows]
    tokens = sum(len(size) for size in sizes)
    return {
        "rows": len(rows),
        "advantage": {
            "abs_mean": math.fsum(value for size in sizes for value in size.tolist()) / tokens if tokens else None,
            "zero_share": sum(int(np.count_nonzero(size == 0)) for size in sizes) / tokens if tokens else None,
        },
        "tokens": {"trained": tokens},
    }
