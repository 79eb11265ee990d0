"""Tasks that bring their worker down are refused before they take more episodes with them."""

from __future__ import annotations

from stream_rl.types import Task

LIVES = 2  # workers a task may bring down before it is refused


class Quarantine:
    """Counts, for each task, the workers that ended while a call of it ran. Decides; does nothing itself.

    >>> quarantine, task = Quarantine(), Task(environment="w", split="train", index=3)
    >>> quarantine.blame(task, "signal 11"), quarantine.refusal(task)
    (False, None)
    >>> quarantine.blame(task, "signal 11"), quarantine.refusal(task)
    (True, 'task w/train/3 is refused: it brought down 2 workers, the last with: signal 11')
    """

    def __init__(self, lives: int = LIVES) -> None:
        self._lives = lives
        self._deaths: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self.num_refusals = 0  # calls refused so far

    @property
    def tasks(self) -> tuple[str, ...]:
        """Ids of the refused tasks, in the order they were found."""
        return tuple(self._refused)

    def blame(self, task: Task, cause: str) -> bool:
        """A worker ended while a call of `task` ran. Returns whether the task is refused from now on."""
        deaths = self._deaths[task.id] = self._deaths.get(task.id, 0) + 1
        if deaths < self._lives or task.id in self._refused:
            return False
        self._refused[task.id] = f"task {task.id} is refused: it brought down {deaths} workers, the last with: {cause}"
        return True

    def refusal(self, task: Task) -> str | None:
        """Why the task may not begin; None when it may."""
        return self._refused.get(task.id)
