"""Resident memory of a process, and the bound on what one call may take."""

from __future__ import annotations

import os
import sys

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | None = None) -> int | None:
    """Memory that a process (default: this one) holds in RAM; None where the system does not say, or it has ended."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return None


def bound_data(limit_bytes: int) -> None:
    """From now on an allocation that takes this process's data past `limit_bytes` raises `MemoryError`.

    Linux counts private writable memory (heap, arrays, stacks), touched or not. A tighter bound that is set already
    stays; other systems have no such count, and there this does nothing.
    """
    if sys.platform != "linux":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (soft, hard, limit_bytes) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
