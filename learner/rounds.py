"""Collecting the groups of one round, and deciding which may be trained. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from stream_rl.errors import LinkError
from stream_rl.messages import RoundStart, SelectedGroup
from stream_rl.types import oldest_version


class Round:
    """The groups of update `update` that have come so far. A group that comes twice counts once."""

    def __init__(self, start: RoundStart) -> None:
        self.update = start.update
        self._num_groups = start.num_groups
        self._groups: dict[str, SelectedGroup] = {}

    def add(self, group: SelectedGroup) -> None:
        """Take one group. Raises `LinkError` for one of another round, or one too many."""
        if group.update != self.update:
            raise LinkError(f"group {group.group_id} is of round {group.update}; round {self.update} is being filled")
        self._groups.setdefault(group.group_id, group)
        if len(self._groups) > self._num_groups:
            raise LinkError(f"round {self.update} was announced with {self._num_groups} groups and got another")

    @property
    def complete(self) -> bool:
        """Whether all announced groups are here."""
        return len(self._groups) == self._num_groups

    @property
    def groups(self) -> tuple[SelectedGroup, ...]:
        """The groups by id: training does not depend on the order they came in."""
        return tuple(self._groups[name] for name in sorted(self._groups))


def refusals(groups: Iterable[SelectedGroup], *, version: int, max_lag: int) -> dict[str, str]:
    """Group id -> reason, for groups that must not be trained by parameters of `version`.

    Lag is `version` minus the version of the oldest token of any valid member.
    """
    refused: dict[str, str] = {}
    for group in groups:
        turns = [turn for t in group.trajectories if t.valid for turn in t.turns]
        oldest = oldest_version(turns)
        newest = max((span.version for turn in turns for span in turn.spans), default=None)
        if oldest is None or newest is None:
            refused[group.group_id] = "no valid member sampled a token"
        elif version - oldest > max_lag:
            refused[group.group_id] = f"stale: lag {version - oldest} (tokens of version {oldest}) exceeds {max_lag}"
        elif newest > version:
            refused[group.group_id] = f"from the future: tokens of version {newest}, the learner is at {version}"
    return refused
