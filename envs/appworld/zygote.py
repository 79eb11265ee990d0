"""Loads AppWorld once and forks a server of it for each episode. Runs in AppWorld's venv, so imports nothing of ours.

Run as `PYTHON -P zygote.py TASK MEMORY_MIB`, with APPWORLD_ROOT in the environment and a session of its own. It speaks
in lines: writes "ready" or "failed <why>" once AppWorld is warm; answers "fork" with "forked PID PORT", and "end PID"
with "ended PID CODE" once that server is no more (CODE < 0: by that signal). When standard input closes, because its
owner closed it or died however suddenly, all servers are killed and APPWORLD_ROOT is removed. Servers die with it.

Importing AppWorld and initialising its first world take about ten seconds and 250 MiB; a fork takes milliseconds and
shares most of the memory. A server that has run an agent's code is never used for another episode.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import resource
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ERROR_CHARACTERS = 1000
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Entry point of the zygote."""
    task, memory_mib = sys.argv[1], int(sys.argv[2])
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what AppWorld prints belongs into the log
    try:
        app = warm(task)
    except Exception as error:
        say(answers, f"failed {type(error).__name__}: {' '.join(str(error).split())[:_ERROR_CHARACTERS]}")
        raise
    gc.collect()
    gc.freeze()  # collections in servers would touch, and so copy, every page
    for number in _SIGNALS:  # end as if the owner had gone
        signal.signal(number, lambda *_: sys.exit())
    servers: set[int] = set()
    say(answers, "ready")
    try:
        while line := sys.stdin.readline():
            match line.split():
                case ["fork"]:
                    pid, port = fork(app, memory_mib, answers)
                    servers.add(pid)
                    say(answers, f"forked {pid} {port}")
                case ["end", which] if int(which) in servers:
                    pid = int(which)
                    servers.remove(pid)
                    say(answers, f"ended {pid} {end(pid)}")
                case _:
                    raise ValueError(f"the owner said {line!r}")
    finally:
        for pid in servers:
            end(pid)
        shutil.rmtree(os.environ["APPWORLD_ROOT"], ignore_errors=True)
    return 0


def warm(task: str) -> Any:
    """AppWorld's application, with everything loaded that a first episode would load."""
    module = importlib.import_module("appworld.serve.environment")
    importlib.import_module("uvicorn")
    world = importlib.import_module("appworld.environment").AppWorld(task_id=task, experiment_name="warm")
    world.execute("apis.supervisor.show_active_task()")
    world.close()
    return module.app


def fork(app: Any, memory_mib: int, answers: int) -> tuple[int, int]:
    """Process id and port of a new server. The socket listens before it runs, so that a first call just waits."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(answers)
                serve(app, listening, memory_mib, parent)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        port: int = listening.getsockname()[1]
        return pid, port


def serve(app: Any, listening: socket.socket, memory_mib: int, parent: int) -> None:
    """The life of one server."""
    os.setsid()  # what an agent's code starts is killed with it
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this was asked for
        return
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    if memory_mib:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mib << 20, hard))
    uvicorn = importlib.import_module("uvicorn")
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


def end(pid: int) -> int:
    """Kill a server and what it started, and remove its files; how it ended, also when it had done so before."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not made its session yet
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    outputs = Path(os.environ["APPWORLD_ROOT"], "experiments", "outputs", f"server-{pid}")
    shutil.rmtree(outputs, ignore_errors=True)
    return code


def say(answers: int, line: str) -> None:
    """To the owner, who may be gone already."""
    try:
        os.write(answers, f"{line}\n".encode())
    except BrokenPipeError:
        sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # what AppWorld would still do at exit wants the folder that is gone
