"""A player that looks at the apps, reads one description, and gives up in order. It shows that everything works."""

from __future__ import annotations

import random

_CODE = (
    "print(apis.api_docs.show_app_descriptions())",
    "print(apis.api_docs.show_api_descriptions(app_name='supervisor'))",
    "print(apis.supervisor.show_active_task())",
    "apis.supervisor.complete_task()",
)


class Player:
    """Plays one episode: `act`, tell the world, `observe` its answer."""

    def __init__(self, first_observation: str, rng: random.Random) -> None:
        self._turn = 0

    def act(self) -> str:
        """The next block of code."""
        code = _CODE[min(self._turn, len(_CODE) - 1)]
        return f"```python\n{code}\n```"

    def observe(self, action: str, answer: str) -> None:
        """Go on."""
        self._turn += 1
