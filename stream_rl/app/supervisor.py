"""`up`: starts every role, watches them, restarts what may be restarted, stops them in order.

consumes: board events and ends of role processes, Ctrl-C. waits for: any of them. produces: one exit code.
unblocked by: a role ending, an event, a signal.
"""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from stream_rl.app.process import RoleProcess
from stream_rl.app.restarts import Restarts
from stream_rl.observe.rundir import RunDirectory, append_json

_TOLD_S = 5.0  # between the end of the orchestrator and SIGTERM for what is left
_GRACE_S = 25.0  # between SIGTERM and SIGKILL
_BURIED_S = 5.0  # between SIGKILL and our own end, where the system is slow

Board = Callable[[dict[str, Any]], None]


class RolePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to start one role, and what its end means."""

    name: str  # "learner-0"; also its log's name
    arguments: tuple[str, ...]  # of `stream-rl role`
    environment: Mapping[str, str] = {}  # added to this process's
    restart: bool = False  # it may die and come back; otherwise its death ends the run
    guest: bool = False  # attached while the run went on: when it cannot come back, the run goes on without it


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `up` starts, in order: services first, then the orchestrator, then who connects to it."""

    policy: RolePlan  # prepares the model folder and ends
    services: tuple[RolePlan, ...]  # embedded judges
    orchestrator: Callable[[Mapping[str, str]], RolePlan]  # given the services' addresses
    workers: Callable[[str, str], tuple[RolePlan, ...]]  # given the orchestrator's address and the model folder
    guest: Callable[[str, str, int, str, str], RolePlan]  # a producer: the same, its number, its server, the key's name


class Supervisor:
    """Runs one run. `run` returns the exit code: 0 complete or stopped in order, 1 failed, 130 stopped at once."""

    def __init__(self, *, run: RunDirectory, plans: Plans, scratch: Sequence[Path], board: Board) -> None:
        """`scratch`: folders of this run outside its directory, removed at the end."""
        self._run_dir = run
        self._plans = plans
        self._scratch = scratch
        self._board = board
        self._live: dict[str, RoleProcess] = {}
        self._orchestrator: RoleProcess | None = None
        self._failure: str | None = None
        self._exit_code = 1
        self._said: dict[str, tuple[str, int]] = {}  # last words of roles, with the exit code they ask for
        self._stopping = False
        self._restarts: dict[str, Restarts] = {}  # of every role that was started
        self._invited: list[tuple[int, str, str]] = []  # number, server, name of the key: before workers can be started
        self._join: tuple[str, str] | None = None  # the orchestrator's address and the model folder
        self._retired: set[str] = set()
        self._tasks: anyio.abc.TaskGroup
        self._killed = False

    async def run(self) -> int:
        """Start, watch, stop."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await tasks.start(self._watch_signals)
                await self._serve()
                tasks.cancel_scope.cancel()
        finally:
            await self._bury()
            for folder in self._scratch:
                shutil.rmtree(folder, ignore_errors=True)
            self._run_dir.address.unlink(missing_ok=True)
        if self._killed:
            return 130
        if self._failure:
            self._board({"type": "failed", "error": self._failure})
            return self._exit_code
        return 0

    async def _serve(self) -> None:
        plans = self._plans
        policy = await self._finished(plans.policy)
        if policy is None:
            return
        addresses: dict[str, str] = {}
        for plan in plans.services:
            ready = await self._ready(plan)
            if ready is None or self._stopping:
                return
            addresses[plan.name] = ready["address"]
        plan = plans.orchestrator(addresses)
        ready = await self._ready(plan)
        if ready is None or plan.name not in self._live:
            return
        self._orchestrator = self._live[plan.name]
        if self._stopping:
            self._orchestrator.terminate()
        for worker in plans.workers(ready["address"], policy["path"]):
            self._tasks.start_soon(self._keep, worker)
        self._join = (ready["address"], policy["path"])
        self._welcome()
        await self._orchestrator.wait()
        await self._drain()

    async def _finished(self, plan: RolePlan) -> dict[str, Any] | None:
        """Run a role to its end; its "ready" event, or None after a failure."""
        process = await self._start(plan)
        ready: dict[str, Any] | None = None
        async for event in process.events():
            if event["type"] == "ready":
                ready = event
            else:
                self._heard(plan, event)
        code = await process.wait()
        self._ended(plan, process)
        if (code or ready is None) and not self._stopping:
            self._fail(plan, process, code)
            return None
        return None if self._stopping else ready

    async def _ready(self, plan: RolePlan) -> dict[str, Any] | None:
        """Start a role, keep watching it, and return its "ready" event; None if it ended before."""
        send, receive = anyio.create_memory_object_stream[dict[str, Any] | None](math.inf)
        self._tasks.start_soon(self._keep, plan, send)
        async with receive:
            return await receive.receive()

    async def _keep(
        self, plan: RolePlan, ready: anyio.abc.ObjectSendStream[dict[str, Any] | None] | None = None
    ) -> None:
        """One role's whole life, restarts included."""
        restarts = self._restarts[plan.name] = Restarts(guest=plan.guest)
        while True:
            process = await self._start(plan)
            async for event in process.events():
                if event["type"] != "ready":
                    self._heard(plan, event)
                elif ready is not None:
                    await ready.send(event)
                    ready = None
                else:
                    restarts.served()
            code = await process.wait()
            self._ended(plan, process)
            if plan.name in self._retired or (code == 0 and ready is None):
                return  # it was told to finish
            wait_s = restarts.after(code)
            if ready is not None:
                await ready.send(None)
                wait_s = None
            if self._is_ending():
                if code and plan.name == "orchestrator" and self._orchestrator:
                    self._fail(plan, process, code)
                return
            if wait_s is None and plan.guest:
                self._say("generator_dropped", name=plan.name, reason=self._reason(plan, code))
                return
            if wait_s is None or not plan.restart:
                self._fail(plan, process, code)
                return
            reason = self._reason(plan, code)
            self._say("role_restarted", name=plan.name, exit_code=code, wait_s=wait_s, reason=reason)
            await anyio.sleep(wait_s)
            if self._is_ending() or plan.name in self._retired:
                return

    def _is_ending(self) -> bool:
        ended = self._orchestrator is not None and self._orchestrator.returncode is not None
        return self._stopping or ended

    def _reason(self, plan: RolePlan, code: int) -> str:
        """The role's last words, or how it ended where it had none."""
        return self._said[plan.name][0] if plan.name in self._said else f"it ended with {_how(code)}"

    async def _start(self, plan: RolePlan) -> RoleProcess:
        self._said.pop(plan.name, None)  # of the process before
        log = self._run_dir.logs / f"{plan.name}.log"
        process = await RoleProcess.start(plan.name, plan.arguments, log=log, environment=plan.environment)
        self._live[plan.name] = process
        if self._stopping:  # asked to stop while it was being started
            process.kill()
        return process

    def _ended(self, plan: RolePlan, process: RoleProcess) -> None:
        process.kill()  # what it may have started and left behind
        if self._live.get(plan.name) is process:
            del self._live[plan.name]

    def _heard(self, plan: RolePlan, event: dict[str, Any]) -> None:
        match event["type"]:
            case "failed":
                self._said[plan.name] = (event["error"], int(event["exit_code"]))
            case "start_producer":
                self._invited.append((event["index"], event["server"], event["key_env"]))
                self._welcome()
            case "retire_producer":
                self._retired.add(event["name"])
                if process := self._live.get(event["name"]):
                    process.terminate()
            case "restart":
                if process := self._live.get(event["name"]):
                    process.kill()
            case _:
                if event["type"] == "update":
                    for restarts in self._restarts.values():
                        restarts.trained()
                self._board(event)

    def _welcome(self) -> None:
        """Start producers for servers that were attached, once there is something to connect them to."""
        while self._join is not None and self._invited and not self._stopping:
            index, server, key_env = self._invited.pop(0)
            plan = self._plans.guest(*self._join, index, server, key_env)
            self._tasks.start_soon(self._keep, plan)

    def _fail(self, plan: RolePlan, process: RoleProcess, code: int | None) -> None:
        """The run cannot go on. The first reason is the one that is told."""
        if self._failure is None:
            tail = f"ended with {_how(code)}; the end of {process.log}:\n{process.last_words()}"
            said, self._exit_code = self._said.get(plan.name, (tail, 1))
            self._failure = f"{plan.name}: {said}"
        self._say("failing", role=plan.name, exit_code=code)
        if not self._stopping:
            self._stopping = True
            self._tasks.start_soon(self._give_up)

    async def _give_up(self) -> None:
        """After a failure: let the orchestrator end in order if it can, then end the rest."""
        if self._orchestrator:
            self._orchestrator.terminate()
        await anyio.sleep(_GRACE_S / 3)
        self._kill_all()

    async def _drain(self) -> None:
        """The orchestrator has ended: those it knew were told, and get a moment; then everybody is asked to stop."""
        self._stopping = True
        for wait_s in (_TOLD_S, _GRACE_S):
            with anyio.move_on_after(wait_s):
                for process in list(self._live.values()):
                    await process.wait()
            for process in self._live.values():
                process.terminate()
        self._kill_all()

    async def _watch_signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                if self._stopping:
                    self._killed = True
                    self._say("killed", reason="stopped at once; go on with --resume from the last checkpoint")
                    self._kill_all()
                    self._tasks.cancel_scope.cancel()
                    return
                self._stopping = True
                self._say("stopping", reason="finishing the update, saving a checkpoint; Ctrl-C again stops at once")
                if self._orchestrator:
                    self._orchestrator.terminate()
                else:
                    self._kill_all()

    def _kill_all(self) -> None:
        for process in list(self._live.values()):
            process.kill()

    async def _bury(self) -> None:
        """End what is left, and hear of its end: that must not come after the event loop is closed."""
        self._kill_all()
        with anyio.move_on_after(_BURIED_S, shield=True):
            for process in list(self._live.values()):
                await process.wait()
                await process.aclose()

    def _say(self, kind: str, **data: Any) -> None:
        record = {"type": kind, "at": time.time(), **data}
        append_json(self._run_dir.events, record)
        self._board(record)


def _how(code: int | None) -> str:
    return f"signal {-code}" if code and code < 0 else f"exit code {code}"
