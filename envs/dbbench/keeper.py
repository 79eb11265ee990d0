"""Keeps a private MariaDB server alive exactly as long as the process that asked for it.

Run as `python -m envs.dbbench.keeper INSTALL SERVER`, the paths of mariadb-install-db and mariadbd. Makes a data
directory, starts the server on a socket in it, writes "ready <socket>" or "failed <why>" to standard output, and waits.
When standard input closes, because its owner closed it or died however suddenly, the server is killed and the
directory removed. It also ends, with its server's last words on standard error, when the server does.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_READY = b"ready for connections"
_MEMORY_DISK = Path("/dev/shm")
_MEMORY_DISK_BYTES = 512 << 20  # free space that is asked of it
_LAST_WORDS_BYTES = 4000
_SMALL = ("--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--sync-frm=OFF")
_OPTIONS = (
    "--skip-networking",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--skip-symbolic-links",
    "--performance-schema=OFF",
    "--event-scheduler=OFF",
    "--local-infile=OFF",
    "--max-connections=2000",
    "--max-allowed-packet=4M",
    "--tmp-memory-table-size=16M",
    "--innodb-buffer-pool-size=32M",
    "--character-set-server=utf8mb4",
)


def main() -> int:
    """Entry point of the keeper process."""
    install, server = sys.argv[1:3]
    directory = tempfile.mkdtemp(prefix="stream-rl-mariadb-", dir=_place())
    try:
        return _keep(install, server, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _keep(install: str, server: str, directory: str) -> int:
    common = ["--no-defaults", f"--datadir={directory}/data", *_SMALL]
    if os.geteuid() == 0:
        common.append("--user=root")
    made = subprocess.run(
        [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent,
        check=False,
    )
    if made.returncode:
        _say(f"failed {install} ended with exit code {made.returncode}: {_one_line(made.stdout)}")
        return 1
    socket = f"{directory}/socket"
    files = Path(directory, "files")
    files.mkdir()
    process = subprocess.Popen(
        [server, *common, *_OPTIONS, f"--socket={socket}", f"--secure-file-priv={files}", f"--tmpdir={directory}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_die_with_parent,
    )
    assert process.stderr is not None
    try:
        return _watch(process.stderr, server, socket)
    finally:
        process.kill()
        process.wait()


def _watch(log: IO[bytes], server: str, socket: str) -> int:
    """Until the owner is gone, or the server."""
    ready, words = False, b""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(log, selectors.EVENT_READ)
        while True:
            files = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in files and not os.read(sys.stdin.fileno(), 1 << 12):
                return 0
            if log not in files:
                continue
            chunk = os.read(log.fileno(), 1 << 16)
            words = (words + chunk)[-_LAST_WORDS_BYTES:]
            if not chunk:
                _say(f"failed {server} ended: {_one_line(words)}")
                sys.stderr.write(f"a private {server} ended: {_one_line(words)}\n")
                return 1
            if not ready and _READY in words:
                ready = True
                _say(f"ready {socket}")


def _place() -> str | None:
    """A disk in memory where there is one with room: a database's files are made and dropped every episode."""
    try:
        free = shutil.disk_usage(_MEMORY_DISK).free
    except OSError:
        return None
    return str(_MEMORY_DISK) if free >= _MEMORY_DISK_BYTES and os.access(_MEMORY_DISK, os.W_OK) else None


def _say(line: str) -> None:
    """To the owner, who may be gone already."""
    try:
        os.write(sys.stdout.fileno(), f"{line}\n".encode())
    except BrokenPipeError:
        sys.stderr.write(f"{line}\n")


def _one_line(output: bytes) -> str:
    return " | ".join(output.decode(errors="replace").split("\n")[-8:]).strip()


def _die_with_parent() -> None:
    """The keeper itself may be killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
