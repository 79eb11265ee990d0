"""What a run is doing at this moment, as plain data for people and scripts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stream_rl.orchestrator.state import RunState


def standing(
    state: RunState,
    *,
    line: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
    alarms: Sequence[Mapping[str, Any]],
    judge_waiting: int,
    judge_problem: str | None,
    judges: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The answer to `status`. `line` is the last metrics line, `evaluation` the last eval line."""
    gate, learner = state.gate, state.learner
    return {
        "run": state.run.root.name,
        "phase": state.phase.state,
        "doing": doing(state),
        **state.times(),
        "version": gate.version,
        "updates": state.config.updates,
        "async_depth": state.depth,
        "paused": state.paused,
        "permits": {"taken": gate.taken, "free": gate.free, "capacity": gate.capacity},
        "levels": state.accounts.levels,
        "groups": dict(sorted(Counter(f.stage for f in state.flights.values()).items())),
        "success": line.get("success"),
        "lag": line.get("lag"),
        "eval": evaluation,
        "judge": {"waiting": judge_waiting, "problem": judge_problem, "endpoints": list(judges)},
        "producers": [
            {
                "name": p.name,
                "engine": p.engine,
                "version": p.version,
                "rollouts": sum(p.leases.values()),
                "capacity": p.capacity,
            }
            for p in state.fleet.by_peer.values()
        ],
        "learner": {"version": learner.version, "waiting": not learner.complete} if learner else None,
        "alarms": list(alarms[-5:]),
    }


def doing(state: RunState) -> str:
    """The phase, and why nothing new is rolled out where that is on purpose."""
    phase, running = state.phase.state, state.fleet.running
    if state.paused and state.stopping is None:
        return f"paused, {running} rollouts end first" if running else "paused"
    if phase == "training" and state.gate.filled:
        return "training the last rounds, nothing more to roll out" if not running else "rolling out the last rounds"
    return phase


def in_words(status: Mapping[str, Any]) -> str:
    """One sentence for an error message: who waits for whom."""
    learner = status["learner"]
    does = "no learner" if learner is None else f"the learner {'waits' if learner['waiting'] else 'works'}"
    return (
        f"phase {status['phase']}, version {status['version']}, permits {status['permits']}, "
        f"groups {status['groups']}, {len(status['producers'])} producers, {does}, "
        f"judge: {status['judge']['problem'] or 'no trouble'}"
    )
