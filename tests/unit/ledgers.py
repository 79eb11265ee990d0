"""Run directories with a real ledger in them, as a finished run leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from judge.rules.engine import decide_all
from judge.transcript import Transcript, from_trajectory
from stream_rl.config import from_dict, to_toml
from stream_rl.observe.rundir import RunDirectory
from stream_rl.orchestrator.ledger import GroupRow, Ledger
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Tag, Task, Trajectory, Verdict
from tests.unit.judge.builders import CLEAN, trajectory, transcript

LOST = transcript(
    "put a hot apple in countertop",
    ("go to cabinet 1", "The cabinet 1 is closed."),
    ("go to drawer 1", "The drawer 1 is closed."),
    ("go to cabinet 1", "The cabinet 1 is closed."),
    ("take apple 1 from cabinet 1", "Nothing happens."),
    ("take apple 1 from cabinet 1", "Nothing happens."),
    ("take apple 1 from cabinet 1", "Nothing happens."),
)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group to be written."""

    id: str
    episodes: tuple[Transcript, ...]
    round: int = 0
    environment: str = "household"
    state: str = "selected"  # or "unselected", or any earlier one
    hint: tuple[str, ...] | None = None


def rollouts(group: Group) -> list[Trajectory]:
    """The group's trajectories."""
    task = Task(environment=group.environment, split="train", index=0)
    return [
        msgspec.structs.replace(
            trajectory(episode, f"{group.id}/{member}"), group_id=group.id, member=member, task=task
        )
        for member, episode in enumerate(group.episodes)
    ]


def rule_verdict(t: Trajectory, *, seconds: float = 0.5) -> Verdict:
    """What the rule judge says."""
    findings = decide_all(from_trajectory(t), builtin().ids)
    return Verdict(
        trajectory_id=t.id,
        tags=tuple(Tag(rubric=r, value=f.value, reason=f.reason) for r, f in findings.items()),
        endpoint="http://judge/v1",
        model="rules",
        seconds=seconds,
    )


def write_run(
    root: Path,
    groups: Sequence[Group],
    verdicts: Mapping[str, Verdict] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
) -> RunDirectory:
    """A run with these groups; `verdicts` by trajectory id, None: those of the rule judge."""
    run = RunDirectory.create(root)
    run.config.write_text(to_toml(from_dict(dict(config or {}))), encoding="utf-8")
    ledger = Ledger(run.ledger, run.run_id)
    for position, group in enumerate(groups):
        row = GroupRow(
            group_id=group.id,
            position=position,
            round=group.round,
            task=Task(environment=group.environment, split="train", index=position),
            seed=1,
            guidance=(),
            state="leased",
            attempts=1,
            admitted=group.round,
        )
        ledger.lease(row, 0.0)
        for t in rollouts(group):
            ledger.add_trajectory(t, "train")
            verdict = rule_verdict(t) if verdicts is None else verdicts.get(t.id)
            if verdict is not None:
                ledger.add_verdict(verdict)
        if group.state != "leased":
            ledger.advance_all(group.id, ("produced", "judged", "candidate"), 0.0)
    for round_ in sorted({g.round for g in groups}):
        chosen = {g.id: g.hint for g in groups if g.round == round_ and g.state == "selected"}
        dropped = [g.id for g in groups if g.round == round_ and g.state == "unselected"]
        if chosen:
            ledger.select(round_, chosen, dropped, 0.0)
    ledger.close()
    return run


def clean_and_lost() -> list[Group]:
    """One round of three candidates, two of them trained: two that go well, and one that does not."""
    return [
        Group(id="g0", episodes=(CLEAN, CLEAN)),
        Group(id="g1", episodes=(CLEAN, LOST)),
        Group(id="g2", episodes=(LOST, LOST), state="unselected"),
    ]
