"""Looking at processes."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def children(process: int) -> list[int]:
    """Process ids, the youngest last."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@contextmanager
def ended(*processes: int) -> Iterator[None]:
    """Leaves once all of these have ended, which were alive when it was entered."""
    ends = [os.pidfd_open(pid) for pid in processes]
    yield
    for end in ends:
        assert select.select([end], [], [], 30)[0]
        os.close(end)
