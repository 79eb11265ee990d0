"""A role that is started for one answer, outside a run: an evaluation, a parity check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stream_rl.app.plans import engine_variables
from stream_rl.app.process import RoleProcess
from stream_rl.errors import RoleDied
from stream_rl.observe.rundir import RunDirectory


async def answer_of(
    role: str, run_dir: RunDirectory, model: str, progress: Callable[[dict[str, Any]], None] = lambda event: None
) -> dict[str, Any]:
    """Start `role` over the configuration in `run_dir` and the folder `model`; the fields of its "ready" event.

    Raises `RoleDied` with what went wrong, and the exit code the role asks for.
    """
    arguments = [role, "--run", str(run_dir.root), "--model", model]
    sockets = engine_variables(run_dir.root / "s")
    process = await RoleProcess.start(role, arguments, log=run_dir.logs / f"{role}.log", environment=sockets)
    result: dict[str, Any] | None = None
    problem, exit_code = "", 1
    try:
        async for event in process.events():
            if event["type"] == "ready":
                result = event
            elif event["type"] == "failed":
                problem, exit_code = event["error"], int(event["exit_code"])
            elif event["type"] == "progress":
                progress(event)
        await process.wait()
    finally:
        process.kill()
        await process.aclose()
    if result is None:
        failure = RoleDied(problem or f"{role} ended without a result:\n{process.last_words()}")
        failure.exit_code = exit_code
        raise failure
    return {key: value for key, value in result.items() if key != "type"}
