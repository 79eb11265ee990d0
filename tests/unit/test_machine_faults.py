"""Files and folders that refuse."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stream_rl.machine_faults import machine_fault


def test_a_folder_in_the_way_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        tmp_path.read_text()
    told = machine_fault(caught.value)
    assert told == f"{tmp_path}: Is a directory; a folder stands where a file is needed; name another place."


def test_a_write_without_room_says_where_room_is_needed() -> None:
    told = machine_fault(OSError(errno.ENOSPC, "No space left on device"))
    assert told is not None
    assert told.startswith("No space left on device; free some space")
    assert "/dev/shm" in told


@pytest.mark.parametrize("error", [ValueError("bug"), FileNotFoundError(errno.ENOENT, "no", "f"), OSError("words")])
def test_every_other_error_stays_what_it_is(error: Exception) -> None:
    assert machine_fault(error) is None
