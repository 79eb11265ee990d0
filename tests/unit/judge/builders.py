"""Short ways to write transcripts and trajectories down."""

from __future__ import annotations

from collections.abc import Sequence

from judge.transcript import Transcript, TranscriptTurn
from stream_rl.types import Task, Trajectory, Turn

ROOM = "You are in the middle of a room. You see cabinet 1, countertop 1, desk 1, drawer 1, fridge 1, microwave 1."
FAILED = "Nothing happens."


def transcript(goal: str, *turns: tuple[str, str], room: str = ROOM) -> Transcript:
    """An episode from (action, observation) pairs; "Nothing happens." marks invalid ones."""
    return Transcript(
        task=f"{room} Your task is to: {goal}.",
        turns=tuple(
            TranscriptTurn(turn=i, action=action, observation=seen, valid=seen != FAILED)
            for i, (action, seen) in enumerate(turns, 1)
        ),
    )


def trajectory(source: Transcript, name: str = "g/0") -> Trajectory:
    """The trajectory a transcript was made from, as far as a judge can tell."""
    return Trajectory(
        id=name,
        group_id=name.partition("/")[0],
        member=0,
        task=Task(environment="household", split="train", index=0),
        samples=(),
        turns=tuple(
            Turn(
                sample=0,
                start=0,
                stop=0,
                spans=(),
                action=t.action,
                observation=t.observation,
                valid=t.valid,
                cut=False,
                reward=0.0,
                generate_s=0.0,
                environment_s=0.0,
            )
            for t in source.turns
        ),
        reward=1.0,
        success=True,
        score=1.0,
        first_prompt=source.task,
    )


# A clean episode: the apple is found in the fridge at the second place, heated and delivered.
CLEAN = transcript(
    "put a hot apple in countertop",
    ("go to cabinet 1", "The cabinet 1 is closed."),
    ("open cabinet 1", "You open the cabinet 1. In it, you see mug 1."),
    ("go to fridge 1", "The fridge 1 is closed."),
    ("open fridge 1", "You open the fridge 1. In it, you see apple 1, egg 1."),
    ("take apple 1 from fridge 1", "You pick up the apple 1 from the fridge 1."),
    ("go to microwave 1", "The microwave 1 is closed."),
    ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1."),
    ("go to countertop 1", "On the countertop 1, you see nothing."),
    ("move apple 1 to countertop 1", "You move the apple 1 to the countertop 1."),
)


def actions(source: Transcript) -> Sequence[str]:
    return [t.action for t in source.turns]
