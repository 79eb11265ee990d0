"""Groups of hand-made episodes, for what is written about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stream_rl.types import Task, Trajectory, Turn

Step = tuple[str, str, bool]  # action, the world's answer, whether it was taken


def steps(*actions: str) -> list[Step]:
    """Actions that were taken; each answer is the action in brackets."""
    return [(action, f"[{action}]", True) for action in actions]


def episode(
    member: int, played: Sequence[Step], *, group_id: str = "g", rewards: float = 0.0, **fields: Any
) -> Trajectory:
    turns = tuple(
        Turn(
            sample=0, start=0, stop=0, spans=(), action=action, observation=answer, valid=taken, cut=False,
            reward=rewards, generate_s=0.0, environment_s=0.0,
        )
        for action, answer, taken in played
    )  # fmt: skip
    defaults: dict[str, Any] = {"reward": 0.0, "success": False, "score": 0.0, "first_prompt": "Find the mug."}
    return Trajectory(
        id=f"{group_id}/{member}",
        group_id=group_id,
        member=member,
        task=Task(environment="toy", split="train", index=0),
        samples=(),
        turns=turns,
        **{**defaults, **fields},
    )
