"""What the orchestrator measures of itself and of the run between two metrics lines: time, levels, device-seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from stream_rl.config import Config
from stream_rl.observe.levels import Level, Levels
from stream_rl.observe.loop_lag import LoopLag
from stream_rl.observe.states import StateClock
from stream_rl.orchestrator.fleet import Fleet
from stream_rl.orchestrator.flight import Flight, Stage
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.judging import JudgingStage

IDLE, HANDLING, LEDGER = "idle", "handling", "ledger"
_STAGES: tuple[Stage, ...] = get_args(Stage)


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """What each process of a role keeps busy or idle: an accelerator where it has one, itself where it has none."""

    generator: int = 1  # of one producer
    environments: int = 1  # worker processes of one producer
    learner: int = 1  # ranks
    judges: int = 0  # embedded judges; others belong to somebody else, and are paid by the token


def devices_of(config: Config, *, embedded_judges: int = 0) -> Devices:
    """As the configuration starts them."""
    return Devices(
        environments=sum(entry.workers for entry in config.environments),
        learner=config.learner.ranks,
        judges=embedded_judges,
    )


class Accounts:
    """`observe` after every event, `merged` for every metrics line."""

    def __init__(
        self,
        devices: Devices,
        *,
        judging: JudgingStage | None = None,
        loop_lag: LoopLag | None = None,
        cpu: Callable[[], dict[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cpu`: CPU seconds since it was last asked, of this process and the judges the run started, by role."""
        self.actor = StateClock((IDLE, HANDLING, LEDGER), clock)  # of the orchestrator itself
        self._devices = devices
        self._judging = judging
        self._loop_lag = loop_lag
        self._cpu = cpu
        self._levels = Levels(clock)

    @property
    def levels(self) -> dict[str, float]:
        """Every level at this moment."""
        return self._levels.now

    def observe(
        self, *, gate: Gate, fleet: Fleet, flights: Mapping[str, Flight], learner: bool, inbox: int, outbox: int
    ) -> None:
        """The run's levels from now on.

        learner: whether one is connected
        inbox: events nobody has dealt with, each a message that holds its sender's credit
        outbox: messages that wait for a peer's credit
        """
        stages = Counter(flight.stage for flight in flights.values())
        self._levels.set(
            {
                "permits_taken": gate.taken,
                "permits_free": gate.free,
                **{f"groups_{stage}": stages[stage] for stage in _STAGES},
                "rollouts": fleet.running,
                "inbox": inbox,
                "outbox": outbox,
                "judge_queue": self._judging.waiting if self._judging else 0,
                "producers": len(fleet.ready),
                "learners": int(learner),
            }
        )

    def merged(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """A metrics line with what was measured since the last one."""
        roles = {**line.get("roles", {}), "orchestrator": self.actor.lap()}
        slots = dict(line.get("slots", {}))
        if self._judging:
            roles["judging"], slots["judging"] = self._judging.laps()
        levels = self._levels.lap()
        cpu_s = {**line.get("cost", {}).get("cpu_s", {}), **(self._cpu() if self._cpu else {})}
        return {
            **line,
            "roles": dict(sorted(roles.items())),
            "slots": dict(sorted(slots.items())),
            "levels": {name: {"mean": level.mean, "max": level.largest} for name, level in levels.items()},
            "cost": {"device_s": device_seconds(levels, self._devices), "cpu_s": dict(sorted(cpu_s.items()))},
            **({"loop_lag": self._loop_lag.lap()} if self._loop_lag else {}),
        }


def device_seconds(levels: Mapping[str, Level], devices: Devices) -> dict[str, float]:
    """Seconds that each role held its devices, whether it used them or not. Empty before anything was observed."""
    if not levels:
        return {}
    producers, learners = levels["producers"], levels["learners"]
    return {
        "orchestrator": producers.seconds,
        "generators": producers.integral * devices.generator,
        "environments": producers.integral * devices.environments,
        "learner": learners.integral * devices.learner,
        "judges": producers.seconds * devices.judges,
    }
