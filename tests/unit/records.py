"""Small hand-made records for unit tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.ledger import GroupRow
from stream_rl.types import Message, Sample, Tag, TagValue, Task, Trajectory, Turn, Verdict, VersionSpan

RUBRICS = ("a.one", "a.two", "b.three")


def trajectory(
    group_id: str = "g000000",
    member: int = 0,
    *,
    success: bool = False,
    versions: tuple[int, ...] = (0,),
    error: str | None = None,
    valid_action: bool = True,
    cut: bool = False,
    environment: str = "household",
    split: str = "train",
) -> Trajectory:
    """One turn of one token for each entry of `versions`, two prompt tokens before each."""
    turns = []
    ids: list[int] = []
    mask: list[bool] = []
    for version in versions:
        ids += [1, 2, 7]
        mask += [False, False, True]
        turns.append(
            Turn(
                sample=0,
                start=len(ids) - 1,
                stop=len(ids),
                spans=(VersionSpan(version=version, num_tokens=1),),
                action="look",
                observation="You see nothing.",
                valid=valid_action,
                cut=cut,
                reward=0.0,
                generate_s=0.1,
                environment_s=0.01,
            )
        )
    sample = Sample(
        token_ids=np.array(ids, np.int32),
        loss_mask=np.array(mask, np.bool_),
        behavior_logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
        head=(Message(role="user", content="task"),),
        head_tokens=2,
    )
    return Trajectory(
        id=f"{group_id}/{member}",
        group_id=group_id,
        member=member,
        task=Task(environment=environment, split="held_out" if split == "held_out" else "train", index=0),
        samples=(sample,) if turns else (),
        turns=tuple(turns),
        reward=float(success),
        success=success,
        score=float(success),
        error=error,
    )


def verdict(trajectory_id: str, tags: Mapping[str, TagValue], endpoint: str = "http://judge/v1") -> Verdict:
    """Tags given by rubric; the rest does not apply."""
    return Verdict(
        trajectory_id=trajectory_id,
        tags=tuple(Tag(rubric=r, value=tags.get(r, "not_applicable")) for r in RUBRICS),
        endpoint=endpoint,
    )


def row(group_id: str = "g000000", *, round_: int = 0, position: int = 0, environment: str = "household") -> GroupRow:
    return GroupRow(
        group_id=group_id,
        position=position,
        round=round_,
        task=Task(environment=environment, split="train", index=position),
        seed=1,
        guidance=(),
        state="leased",
        attempts=1,
        admitted=round_,
    )


def flight(group_id: str, outcomes: tuple[bool, ...], *, round_: int = 0, environment: str = "household") -> Flight:
    """A candidate whose members had these outcomes."""
    made = Flight(row=row(group_id, round_=round_, environment=environment), stage="candidate")
    for member, success in enumerate(outcomes):
        t = trajectory(group_id, member, success=success)
        made.trajectories[t.id] = t
    return made
