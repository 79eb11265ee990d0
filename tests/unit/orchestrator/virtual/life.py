"""One process of the orchestrator, with all its roles around it, from its start to its end."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any, Literal

import anyio
import msgspec

from stream_rl.errors import RoleDied
from stream_rl.link.limits import Limits
from stream_rl.link.memory import QUIET, MemoryHub, open_memory_hub
from stream_rl.observe.rundir import RunDirectory
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.rubrics.rubric import Rubric
from stream_rl.rubrics.vocabulary import Vocabulary
from tests.unit.orchestrator.virtual.checks import Onlooker, Violation, require
from tests.unit.orchestrator.virtual.history import History
from tests.unit.orchestrator.virtual.judge import ScriptedJudge
from tests.unit.orchestrator.virtual.learner import ScriptedLearner
from tests.unit.orchestrator.virtual.people import ScriptedPeople
from tests.unit.orchestrator.virtual.producer import ScriptedProducer
from tests.unit.orchestrator.virtual.schedule import Life, Schedule
from tests.unit.orchestrator.virtual.watched import Killed, MortalWriter, WatchedOrchestrator
from tests.unit.records import RUBRICS

End = Literal["complete", "stopped", "killed", "learner_died", "hopeless"]

_LONGEST_S = 6_000.0  # virtual; a process that takes longer hangs without standing still
_UNSTEADY_LIVES = 6  # after so many, connections hold: a run whose every process loses its learner never ends
_NOTICED_S = 2.0  # until the supervisor ends a run whose learner is gone
_GOODBYE_S = 30.0  # for a learner to hear that the run is over
_BREAKABLE = Limits(heartbeat_s=2.0, silence_s=20.0)
_WORDS = Vocabulary(
    rubrics=tuple(
        Rubric(id=r, skill=r[0], name=r, applies="always", positive="p", violation="v", hint="h", avoid="avoid it")
        for r in RUBRICS
    ),
    digest="three",
)


class Lived(msgspec.Struct, frozen=True, kw_only=True):
    """How one process ended and what it did."""

    end: End  # "hopeless": too many discards in a row, which ends a run with the reason
    events: int  # dealt with
    max_lag: int  # of groups sent to the learner
    bound: int  # on it, for honest generators
    counted: Counter[str]  # groups discarded since the last metrics line, by reason
    told: set[tuple[str, str]]  # group and reason of every discard people were told of


class Process:
    """Runs one life. `number` tells apart what the roles draw in each."""

    def __init__(
        self, schedule: Schedule, life: Life, number: int, run: RunDirectory, history: History, ledger: Ledger
    ) -> None:
        self._schedule = schedule
        self._weather = schedule.weather
        self._life = life
        self._number = number
        self._run = run
        self._history = history
        self._ledger = ledger
        self._cut_every_s = self._weather.cut_every_s if number < _UNSTEADY_LIVES else math.inf
        self._limits = _BREAKABLE if self._cut_every_s < math.inf else QUIET
        self._rng = random.Random(f"life/{number}/{schedule.seed}")
        self._producers: dict[str, ScriptedProducer] = {}
        self._told: set[tuple[str, str]] = set()
        self._complete = False
        self._stop = anyio.Event()
        self._onlooker = Onlooker(schedule, run.ledger, history)
        self._writer = MortalWriter(
            ledger,
            life,
            mean_s=self._weather.ledger_s,
            threaded=schedule.threaded,
            seed=f"ledger/{number}/{schedule.seed}",
        )

    async def live(self, evaluated: int) -> Lived:
        """Start everything, and see it end. `evaluated`: newest version whose evaluation is over."""
        end: End = "complete"
        events, counted, learns = 0, Counter[str](), False
        try:
            async with anyio.create_task_group() as tasks:
                async with open_memory_hub(limits=self._limits) as hub:
                    service = self._service(hub)
                    service.go_on_from(wall_s=0.0, train_s=0.0, evaluated=evaluated)
                    learner_over = self._start_roles(hub, tasks)
                    with anyio.fail_after(_LONGEST_S):
                        try:
                            await service.run(self._stop)
                        finally:
                            events, counted = service.num_events, service.state.tally.discarded
                            learns = service.state.learner is not None
                with anyio.move_on_after(_GOODBYE_S):
                    await learner_over.wait()
                tasks.cancel_scope.cancel()
        except* Killed:
            end = "killed"
        except* RoleDied as group:
            end = _died(group)
        finally:
            self._onlooker.close()
        if end == "complete" and not self._complete:
            end = "stopped"
            require(self._stop.is_set(), "the run ended before it was complete, and nobody had stopped it")
        if learns and end in ("complete", "stopped") and self._cut_every_s == math.inf:
            require("learner" in self._history.finished, f"the run is {end} and the learner was not told")
        return Lived(
            end=end,
            events=events,
            max_lag=self._onlooker.max_lag,
            bound=self._onlooker.bound,
            counted=counted,
            told=self._told,
        )

    def _service(self, hub: MemoryHub) -> WatchedOrchestrator:
        return WatchedOrchestrator(
            writer=self._writer,
            look=self._onlooker.look,
            config=self._schedule.config,
            run=self._run,
            hub=hub,
            ledger=self._ledger,
            judge=ScriptedJudge(self._schedule, self._number) if self._schedule.judged else None,
            judge_workers=3,
            vocabulary=_WORDS,
            board=self._board,
            version=self._history.newest,
            clock=anyio.current_time,
            wall=anyio.current_time,
        )

    def _start_roles(self, hub: MemoryHub, tasks: anyio.abc.TaskGroup) -> anyio.Event:
        """Returns the event of the learner's end."""
        parts = (hub, self._limits)
        for index in range(self._weather.num_producers):
            name = f"producer-{index}"
            producer = ScriptedProducer(*parts, name, self._schedule, self._number, self._history)
            self._producers[name] = producer
            tasks.start_soon(producer.live, self._rng.uniform(0, self._weather.late_s) if index else 0.0)
        over = anyio.Event()
        learner = ScriptedLearner(*parts, self._schedule, self._number, self._history, self._onlooker.receive)

        async def learn() -> None:
            await learner.live(self._life.after_s if self._life.end == "learner_died" else math.inf)
            over.set()
            if "learner" not in self._history.finished:
                # As the supervisor has it, whether the orchestrator knew of this learner or not.
                await anyio.sleep(_NOTICED_S)
                raise RoleDied("the learner left")

        async def stop() -> None:
            await anyio.sleep(self._life.after_s)
            self._stop.set()

        tasks.start_soon(learn)
        if self._schedule.wishes:
            tasks.start_soon(ScriptedPeople(*parts, self._schedule.wishes).live)
        if self._life.end == "stopped":
            tasks.start_soon(stop)
        if self._cut_every_s < math.inf:
            tasks.start_soon(self._break_connections, hub)
        return over

    async def _break_connections(self, hub: MemoryHub) -> None:
        """Most breaks are short; one in ten is so long that the hub takes the peer for dead."""
        while True:
            await anyio.sleep(self._rng.expovariate(1 / self._cut_every_s))
            peers = [peer.split("#")[0] for peer in hub.peers]
            if not peers:
                continue
            name = self._rng.choice(peers)
            hub.cut(name)
            await anyio.sleep(30.0 if self._rng.random() < 0.1 else self._rng.uniform(0.1, 8.0))
            hub.restore(name)

    def _board(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "discarded", "group": group_id, "reason": reason}:
                self._told.add((group_id, reason))
            case {"type": "restart", "name": name}:
                self._producers[name].kill()
            case {"type": "finished", "complete": complete}:
                self._complete = complete and not self._stop.is_set()


def _died(group: BaseExceptionGroup[RoleDied]) -> End:
    """What the orchestrator ended with. What no schedule may lead to is a violation."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _died(error)
        if str(error).startswith("the learner left"):
            return "learner_died"
        if "groups in a row were discarded" in str(error) or str(error).startswith("the learner refused"):
            return "hopeless"
        raise Violation(f"the orchestrator gave up: {error}")
    raise AssertionError("a group without exceptions")
