"""Words of ALFWorld's text games that are not the world's own objects."""

from __future__ import annotations

from typing import NamedTuple

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
TASK_PREFIX = "Your task is to: "
NOTHING_HAPPENS = "Nothing happens."


class Opening(NamedTuple):
    """What a game says first."""

    room: str  # "You are in the middle of a room. Looking quickly around you, you see ..."
    task: str  # "put a clean mug in coffeemachine.", as it is worded

    @property
    def text(self) -> str:
        """Room and task, without upstream's banner."""
        return f"{self.room}\n\n{TASK_PREFIX}{self.task}"


def parse_opening(feedback: str) -> Opening:
    """The parts of a game's first answer. Raises `ValueError` for one that tells no task.

    >>> parse_opening(f"{BANNER}\\n\\nYou are in a room.\\n\\nYour task is to: put a mug in desk.").task
    'put a mug in desk.'
    """
    room, prefix, task = feedback.removeprefix(BANNER).partition(TASK_PREFIX)
    if not prefix or not task.strip():
        raise ValueError(f"no task in {feedback[:200]!r}; expected a sentence that begins with {TASK_PREFIX!r}")
    return Opening(room.strip(), task.strip())


def as_command(action: str) -> str:
    """An action as games spell commands: lower case, single spaces.

    >>> as_command("Go to  Desk 1\\n")
    'go to desk 1'
    """
    return " ".join(action.lower().split())
