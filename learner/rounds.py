"""Collecting the groups of one round, and deciding which may be trained. Pure."""

from __future__ import annotations

from stream_rl.errors import LinkError
from stream_rl.messages import RoundStart, SelectedGroup
from stream_rl.types import oldest_version


class Round:
    """The groups of update `update` that have come so far. A group that comes twice counts once.

    What is refused is told the moment it comes, before anything is trained: the round waits for another group in its
    place, and every update has as many groups as were announced.
    """

    def __init__(self, start: RoundStart, *, max_lag: int) -> None:
        """`max_lag`: groups with an older token are refused."""
        self.update = start.update
        self._num_groups = start.num_groups
        self._max_lag = max_lag
        self._groups: dict[str, SelectedGroup] = {}
        self._refused: set[str] = set()

    def add(self, group: SelectedGroup) -> str | None:
        """Take one group, or return why it must not be trained; the reason is given once.

        Raises `LinkError` for a group of another round, or one too many.
        """
        if group.update != self.update:
            raise LinkError(f"group {group.group_id} is of round {group.update}; round {self.update} is being filled")
        if group.group_id in self._groups or group.group_id in self._refused:
            return None
        if self.complete:
            raise LinkError(f"round {self.update} was announced with {self._num_groups} groups and got another")
        reason = refusal(group, version=self.update, max_lag=self._max_lag)
        if reason is None:
            self._groups[group.group_id] = group
        else:
            self._refused.add(group.group_id)
        return reason

    @property
    def complete(self) -> bool:
        """Whether all announced groups are here."""
        return len(self._groups) == self._num_groups

    @property
    def groups(self) -> tuple[SelectedGroup, ...]:
        """The groups by id: training does not depend on the order they came in."""
        return tuple(self._groups[name] for name in sorted(self._groups))


def refusal(group: SelectedGroup, *, version: int, max_lag: int) -> str | None:
    """Why parameters of `version` must not be trained on this group; None when they may.

    Lag is `version` minus the version of the oldest token of any valid member.
    """
    turns = [turn for t in group.trajectories if t.valid for turn in t.turns]
    oldest = oldest_version(turns)
    newest = max((span.version for turn in turns for span in turn.spans), default=None)
    if oldest is None or newest is None:
        return "no valid member sampled a token"
    if version - oldest > max_lag:
        return f"stale: lag {version - oldest} (tokens of version {oldest}) exceeds {max_lag}"
    if newest > version:
        return f"from the future: tokens of version {newest}, the learner is at {version}"
    return None
