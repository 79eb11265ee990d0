"""What a file system refuses on any machine at any time. It is no bug of ours, and its owner can do something."""

from __future__ import annotations

import errno

_RIGHTS = "take the right to it, or work in a folder of your own"
_ROOM = "free some space there, or work in another place"
_OF_A_PLACE = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "work in a folder that can be written",
    errno.ENOTDIR: "a file stands where a folder is needed; name another place",
    errno.EISDIR: "a folder stands where a file is needed; name another place",
    errno.ENAMETOOLONG: "choose a shorter name",
}
# A write that finds no room does not say where: the file was opened before.
_ANYWHERE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "allow more open files with `ulimit -n`",
}
_UNNAMED = {
    errno.ENOSPC: "free some space under the run's folder, `weights.directory` and /dev/shm",
    errno.EDQUOT: "free some space under the run's folder and `weights.directory`",
}


def machine_fault(error: BaseException) -> str | None:
    """One sentence of what was refused and what to do; None for every other error, which is told as what it is."""
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.filename is not None and (advice := _OF_A_PLACE.get(error.errno) or _ANYWHERE.get(error.errno)):
        return f"{error.filename}: {error.strerror}; {advice}."
    if advice := _UNNAMED.get(error.errno) or _ANYWHERE.get(error.errno):
        return f"{error.strerror}; {advice}."
    return None
