"""One task on one server, in AppWorld's own calls."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from envs.appworld.client import Client, Refusal

A = TypeVar("A")


class Supervisor(msgspec.Struct, frozen=True, kw_only=True):
    """The person whose apps these are."""

    first_name: str  # as in "Ada"
    last_name: str  # as in "Marsh"
    email: str  # also their account in most apps
    phone_number: str  # digits


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """What AppWorld says of a task before it begins."""

    instruction: str  # what is to be done
    supervisor: Supervisor  # for whom
    datetime: str  # the world's date and time, ISO 8601


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One test of a task."""

    requirement: str  # its name, which may have several lines


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests of a task say."""

    success: bool  # all passed
    num_tests: int  # of the task; more than those below when the tests themselves broke
    passes: tuple[Requirement, ...]  # in order
    failures: tuple[Requirement, ...]  # in order

    @property
    def fraction(self) -> float:
        """Passed tests, 0 to 1."""
        return len(self.passes) / self.num_tests if self.num_tests else 0.0

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the failed tests, one line each.

        >>> missed = Requirement(requirement="answer\\n  matches")
        >>> Evaluation(success=False, num_tests=2, passes=(), failures=(missed,)).failed
        ('answer matches', '1 test did not run')
        """
        names = tuple(" ".join(failure.requirement.split()) for failure in self.failures)
        missing = self.num_tests - len(self.passes) - len(self.failures)
        return names if missing <= 0 else (*names, f"{missing} test{'s' * (missing > 1)} did not run")


class Session:
    """Calls about one task. All raise `ServerTrouble`."""

    def __init__(self, client: Client, task_id: str, experiment: str) -> None:
        self._client = client
        self._task_id = task_id
        self._experiment = experiment

    def begin(self, timeout_s: float, **settings: Any) -> Briefing:
        """Make the world; `settings` are further arguments of upstream's `AppWorld`."""
        body = {"task_id": self._task_id, "experiment_name": self._experiment, **settings}
        return self._converted("initialize", self._client.call("initialize", body, timeout_s), Briefing)

    def execute(self, code: str, timeout_s: float) -> str:
        """Run code in the session's interpreter; what it printed, or why it failed."""
        output = self._client.call("execute", {"task_id": self._task_id, "code": code}, timeout_s)
        return self._converted("execute", output, str)

    def completed(self, timeout_s: float) -> bool:
        """Whether the agent has said that it is done."""
        output = self._client.call("task_completed", {"task_id": self._task_id}, timeout_s)
        return self._converted("task_completed", output, bool)

    def evaluate(self, timeout_s: float) -> Evaluation:
        """Run the task's tests over what the apps hold now."""
        body = {"task_id": self._task_id, "suppress_errors": True, "report": False}
        return self._converted("evaluate", self._client.call("evaluate", body, timeout_s), Evaluation)

    def _converted(self, name: str, output: Any, kind: type[A]) -> A:
        try:
            return msgspec.convert(output, kind)
        except msgspec.ValidationError as error:
            raise Refusal(f"{self._client.address}/{name}: not an answer of AppWorld: {error}") from None
