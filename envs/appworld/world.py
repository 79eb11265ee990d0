"""AppWorld as an environment of the stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec

from envs.appworld.actions import Code, Malformed, parse_action
from envs.appworld.client import Gone, Overdue, ServerTrouble
from envs.appworld.fleet import Fleet, Lease
from envs.appworld.fleets import FleetKey, fleet_for
from envs.appworld.instructions import first_message
from envs.appworld.session import Evaluation, Session
from envs.appworld.tasks import data_folder, task_ids
from envs.appworld.venv import find_python
from stream_rl.errors import ConfigError, EnvironmentFailed, EnvironmentLost
from stream_rl.types import Observation, Split, StepResult, Task

OVER = "The episode is over."
RUNAWAY = (
    "The code did not end within {seconds:g} seconds and could not be stopped. The session is lost, the episode over."
)
CUT = "\n[cut: {total} characters in all]"
_NOTHING_RAN = (  # how AppWorld answers code that it does not begin to run
    "Execution failed. Traceback:\nSyntax error in line",
    "Execution failed. Traceback:\nUsage of the following",
)


class AppWorldOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.options]` of this world."""

    data: str = ""  # AppWorld's root, as `appworld download data` fills it; must be given
    python: str = (
        ""  # interpreter that has AppWorld; empty: $STREAM_RL_APPWORLD_PYTHON, or that of `envs setup appworld`
    )
    urls: tuple[str, ...] = ()  # addresses of servers that you run; empty: private ones are started
    servers: Annotated[int, msgspec.Meta(ge=1)] = 8  # servers, and so open episodes, of one worker process
    train: str = "train"  # upstream's dataset for training
    held_out: str = "dev"  # and for validation: "dev", "test_normal", "test_challenge"
    score: Literal["success", "fraction"] = (
        "success"  # reward and score: all tests passed, or the share of those that did
    )
    execute_s: Annotated[int, msgspec.Meta(ge=1)] = 6  # code that runs longer is stopped, and told so
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 9.0  # longest reset or step; keep it under step_deadline_s
    max_turns: Annotated[int, msgspec.Meta(ge=1)] = 40  # actions of an episode; it is evaluated as it stands then
    output_characters: Annotated[int, msgspec.Meta(ge=1)] = 8000  # longer output is cut
    memory_mib: Annotated[int, msgspec.Meta(ge=0)] = 2048  # data a private server may hold; 0: no limit
    instructions: bool = True  # explain the form of actions first


class AppWorld:
    """One task on one server, Python code until `complete_task` is called; the task's tests decide.

    Split and index decide the task; upstream seeds what is random in it, so `seed` changes nothing. The keywords are
    those of `AppWorldOptions`; values it cannot use raise `ConfigError`. The constructor starts nothing.
    """

    def __init__(
        self,
        *,
        data: str = "",
        python: str = "",
        urls: Sequence[str] = (),
        servers: int = 8,
        train: str = "train",
        held_out: str = "dev",
        score: str = "success",
        execute_s: int = 6,
        timeout_s: float = 9.0,
        max_turns: int = 40,
        output_characters: int = 8000,
        memory_mib: int = 2048,
        instructions: bool = True,
    ) -> None:
        given = {
            "data": data,
            "python": python,
            "urls": urls,
            "servers": servers,
            "train": train,
            "held_out": held_out,
            "score": score,
            "execute_s": execute_s,
            "timeout_s": timeout_s,
            "max_turns": max_turns,
            "output_characters": output_characters,
            "memory_mib": memory_mib,
            "instructions": instructions,
        }
        try:
            self.options = msgspec.convert(given, AppWorldOptions)
        except msgspec.ValidationError as error:
            raise ConfigError("environments.options", f"appworld: {given} cannot be used: {error}.") from None
        if self.options.timeout_s <= self.options.execute_s:
            raise ConfigError(
                "environments.options.timeout_s",
                f"appworld: {timeout_s:g} is no more than execute_s ({execute_s}): code would not be stopped in order.",
            )
        folder = data_folder(data)
        self._tasks: dict[Split, tuple[str, ...]] = {
            "train": task_ids(folder, train, "train"),
            "held_out": task_ids(folder, held_out, "held_out"),
        }
        try:
            self._fleet: Fleet = fleet_for(
                FleetKey(
                    urls=self.options.urls,
                    servers=servers,
                    python=None if self.options.urls else find_python(python),
                    data=folder,
                    task=self._tasks["train"][0],
                    memory_mib=memory_mib,
                )
            )
        except ValueError as error:
            raise ConfigError("environments.options.urls", f"appworld: {error}.") from None
        self._lease: Lease | None = None
        self._session: Session | None = None
        self._task_id = ""
        self._turns = 0
        self._last: StepResult | None = None

    def num_tasks(self, split: Split) -> int | None:
        """Tasks of the split's dataset; higher indices begin again."""
        return len(self._tasks[split])

    def prepare(self) -> int:
        """Start what the episodes of this process share; how many may be open. Raises `EnvironmentFailed`."""
        return self._fleet.prepare()

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode. Raises `EnvironmentFailed`; `EnvironmentLost` where another try may go well."""
        self.close()
        until = time.monotonic() + self.options.timeout_s
        ids = self._tasks[task.split]
        self._task_id = ids[task.index % len(ids)]
        self._turns, self._last = 0, None
        self._lease = self._fleet.lease(self.options.timeout_s)
        self._session = Session(self._lease.client, self._task_id, self._lease.experiment)
        with self._told():
            briefing = self._session.begin(_left(until), timeout_seconds=self.options.execute_s)
        return Observation(text=first_message(briefing, instructions=self.options.instructions))

    def step(self, action: str) -> StepResult:
        """Act. What holds no code, or code that AppWorld does not begin to run, is `valid=False`.

        Code that nothing stops ends the episode as a failure, and its server: it is the policy's doing. A server that
        ends for another reason raises `EnvironmentLost`, and one that answers with an error `EnvironmentFailed`.
        """
        if self._last is not None:
            return msgspec.structs.replace(self._last, text=OVER, reward=0.0, valid=False)
        session = self._current()
        until = time.monotonic() + self.options.timeout_s
        self._turns += 1
        over = self._turns == self.options.max_turns
        match parse_action(action):
            case Malformed(answer=answer):
                result = StepResult(text=answer, valid=False)
            case Code(text=code):
                with self._told():
                    try:
                        output = session.execute(code, _left(until))
                    except Overdue:
                        self.close()
                        text = RUNAWAY.format(seconds=self.options.timeout_s)
                        self._last = StepResult(text=text, done=True, details=(text,))
                        return self._last
                    over = session.completed(_left(until)) or over
                result = StepResult(text=self._shown(output), valid=not output.startswith(_NOTHING_RAN))
        if not over:
            return result
        with self._told():
            self._last = self._graded(result, session.evaluate(_left(until)))
        self.close()
        return self._last

    def close(self) -> None:
        """Give the server back."""
        lease, self._lease, self._session = self._lease, None, None
        if lease is not None:
            lease.end()

    def _graded(self, result: StepResult, evaluation: Evaluation) -> StepResult:
        graded = evaluation.fraction if self.options.score == "fraction" else float(evaluation.success)
        return msgspec.structs.replace(
            result, done=True, success=evaluation.success, reward=graded, score=graded, details=evaluation.failed
        )

    def _shown(self, output: str) -> str:
        limit = self.options.output_characters
        output = output.rstrip()
        return output if len(output) <= limit else output[:limit] + CUT.format(total=len(output))

    def _current(self) -> Session:
        if self._session is None:
            raise EnvironmentFailed("appworld: no episode has begun; call reset first")
        return self._session

    @contextmanager
    def _told(self) -> Iterator[None]:
        """The server's trouble as the stream's: the episode is over, and its server given up."""
        try:
            yield
        except ServerTrouble as error:
            ended = self._lease.end() if self._lease is not None else ""
            self.close()
            kind = EnvironmentLost if isinstance(error, Gone | Overdue) else EnvironmentFailed
            because = f" ({ended})" if isinstance(error, Gone) and ended else ""
            raise kind(f"appworld: task {self._task_id}: {error}{because}") from None


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.0)
