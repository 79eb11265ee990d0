"""Runs whose ledger is written by hand, down to the rewards of the steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stream_rl.config import from_dict, to_toml
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.orchestrator.ledger import GroupRow, Ledger
from stream_rl.types import (
    Message,
    Sample,
    Tag,
    TagValue,
    Task,
    Trajectory,
    Turn,
    Verdict,
    VersionSpan,
)

RUBRICS = ("a.one", "b.two")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout."""

    steps: tuple[float, ...]  # reward of each turn, which has one token
    invalid: tuple[int, ...] = ()  # turns the world did not take
    shows: str | None = "a.one"  # the one rubric it is tagged positive for; None: it is not tagged


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    id: str
    members: tuple[Member, ...]
    selected: bool = True
    hint: tuple[str, ...] | None = None
    environment: str = "w"


def group(name: str, *rewards: float, **more: Any) -> Group:
    """Members of two turns, the whole reward at the end."""
    return Group(id=name, members=tuple(Member(steps=(0.0, reward)) for reward in rewards), **more)


def trajectory(of: Group, member: int) -> Trajectory:
    """Two prompt tokens, then a token a turn with one observed between, all of version 0."""
    steps, invalid = of.members[member].steps, of.members[member].invalid
    mask = np.array([False, False, *[token % 2 == 0 for token in range(2 * len(steps))]])
    reward = sum(steps)
    return Trajectory(
        id=f"{of.id}/{member}",
        group_id=of.id,
        member=member,
        task=Task(environment=of.environment, split="train", index=0),
        samples=(
            Sample(
                token_ids=np.ones(len(mask), np.int32),
                loss_mask=mask,
                behavior_logprobs=np.zeros(len(mask), np.float32),
                head=(Message(role="user", content="task"),),
                head_tokens=2,
            ),
        ),
        turns=tuple(
            Turn(
                sample=0,
                start=2 + 2 * i,
                stop=3 + 2 * i,
                spans=(VersionSpan(version=0, num_tokens=1),),
                action="go",
                observation=f"seen {i}",
                valid=i not in invalid,
                cut=False,
                reward=step,
                generate_s=0.0,
                environment_s=0.0,
            )
            for i, step in enumerate(steps)
        ),
        reward=reward,
        success=reward >= 1.0,
        score=reward,
        first_prompt="task",
    )


def write(
    root: Path,
    rounds: Sequence[Sequence[Group]],
    config: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]] = (),
) -> RunDirectory:
    """A run that trained these rounds, and its lines of metrics."""
    run = RunDirectory.create(root)
    run.config.write_text(to_toml(from_dict(dict(config))), encoding="utf-8")
    ledger = Ledger(run.ledger, run.run_id)
    position = 0
    for update, groups in enumerate(rounds):
        for of in groups:
            _lease(ledger, of, update, position)
            position += 1
        chosen = {of.id: of.hint for of in groups if of.selected}
        ledger.select(update, chosen, [of.id for of in groups if not of.selected], float(update))
        ledger.train(update, list(chosen), float(update))
    ledger.close()
    for line in lines:
        append_json(run.metrics, line)
    return run


def _lease(ledger: Ledger, of: Group, round_: int, position: int) -> None:
    row = GroupRow(
        group_id=of.id,
        position=position,
        round=round_,
        task=Task(environment=of.environment, split="train", index=position),
        seed=1,
        guidance=(),
        state="leased",
        attempts=1,
        admitted=round_,
    )
    ledger.lease(row, 0.0)
    for member, said in enumerate(of.members):
        ledger.add_trajectory(trajectory(of, member), "train")
        if said.shows is not None:
            ledger.add_verdict(_verdict(f"{of.id}/{member}", said.shows))
    ledger.advance_all(of.id, ("produced", "judged", "candidate"), 0.0)


def _verdict(trajectory_id: str, shows: str) -> Verdict:
    def value(rubric: str) -> TagValue:
        return "positive" if rubric == shows else "not_applicable"

    return Verdict(trajectory_id=trajectory_id, tags=tuple(Tag(rubric=r, value=value(r)) for r in RUBRICS))


def findings(run: RunDirectory, name: str) -> dict[str, Any]:
    """The file a replay wrote."""
    return dict(json.loads((run.root / "replay" / f"{name}.json").read_text()))
