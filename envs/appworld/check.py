"""Proves a data folder: upstream's own solutions must pass upstream's own tests on our servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from envs.appworld.client import ServerTrouble
from envs.appworld.fleet import Fleet
from envs.appworld.fleets import FleetKey, fleet_for
from envs.appworld.session import Session
from envs.appworld.tasks import data_folder, task_ids
from envs.appworld.venv import find_python

_CALL_S = 120.0
_CALL = "\nsolution(apis, requester)"


class GoldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What replaying the solutions found."""

    tasks: int  # of the dataset
    solved: int  # by their own solution
    failed: int  # that their own solution does not solve
    without_solution: int  # tasks that upstream gives out without one
    failures: dict[str, tuple[str, ...]]  # task: failed tests, or what went wrong


def replay_gold(data: Path, *, dataset: str = "train", python: str = "", urls: list[str] | None = None) -> GoldReport:
    """Run every `ground_truth/compiled_solution.py` of a dataset. Raises `ConfigError`, `EnvironmentFailed`."""
    folder = data_folder(str(data))
    ids = task_ids(folder, dataset, "dataset")
    given = tuple(urls or ())
    fleet = fleet_for(
        FleetKey(
            urls=given,
            servers=1,
            python=None if given else find_python(python),
            data=folder,
            task=ids[0],
            memory_mib=0,
        )
    )
    fleet.prepare()
    solved, without = 0, 0
    failures: dict[str, tuple[str, ...]] = {}
    for task_id in ids:
        try:
            code = (folder / "tasks" / task_id / "ground_truth" / "compiled_solution.py").read_text(encoding="utf-8")
        except FileNotFoundError:
            without += 1
            continue
        failed = _failed(fleet, task_id, code)
        if failed is None:
            solved += 1
        else:
            failures[task_id] = failed
    return GoldReport(tasks=len(ids), solved=solved, failed=len(failures), without_solution=without, failures=failures)


def _failed(fleet: Fleet, task_id: str, code: str) -> tuple[str, ...] | None:
    """The failed tests; None when none failed."""
    lease = fleet.lease(_CALL_S)
    try:
        session = Session(lease.client, task_id, lease.experiment)
        settings: dict[str, Any] = {"raise_on_failure": False, "timeout_seconds": int(_CALL_S)}
        session.begin(_CALL_S, **settings)  # as upstream's own verification does
        output = session.execute(code + _CALL, 2 * _CALL_S)
        evaluation = session.evaluate(_CALL_S)
    except ServerTrouble as error:
        return (str(error),)
    finally:
        lease.end()
    if evaluation.success:
        return None
    return (*evaluation.failed, *([output] if output.startswith("Execution failed") else []))
