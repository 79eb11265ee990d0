"""Admission: which groups may be generated now, so that none can ever be too old when it is trained.

Rounds are formed in admission order. Round r turns version r into version r + 1, so a group of round r is consumed at
version r. The gate opens round r only while the live version is at least r - S (S is the async depth), and no token of
a group is sampled before its lease. Hence lag = r - (oldest token's version) <= S. At most S + 1 rounds of C groups
are open at once: (S + 1) * C permits.

With a window W > 1 a straggler may exchange its place with a finished group of a later round, and ends up at most W - 1
rounds after the one it was admitted to: lag <= S + W - 1. Every round still holds C groups, so permits do not change.

A permit is taken when a group is admitted and comes back when the group is discarded (its place in the round opens
again: the round is refilled) or when its round is trained *and* the new version is live. Groups a selection leaves out
come back with their round, not before: returning them early would admit groups of round r + S + 1 under version r.
"""

from __future__ import annotations


class Gate:
    """Permits and rounds. Pure: no clock, no queue, no I/O.

    >>> gate = Gate(depth=1, candidates=2, last_round=9)
    >>> [gate.admit(name) for name in "abcd"]
    [0, 0, 1, 1]
    >>> gate.open_round is None  # 4 = (1 + 1) * 2 permits are taken
    True
    >>> gate.round_live(0)
    ('a', 'b')
    >>> gate.open_round
    2
    """

    def __init__(self, *, depth: int, candidates: int, last_round: int, version: int = 0, window: int = 1) -> None:
        """`depth` S >= 0, `candidates` C >= 1, `window` W >= 1; rounds `version` to `last_round` - 1 are trained."""
        if depth < 0 or candidates < 1 or window < 1 or not 0 <= version <= last_round:
            raise ValueError(f"impossible gate: {depth=} {candidates=} {version=} {last_round=} {window=}")
        self._depth = depth
        self._window = window
        self._candidates = candidates
        self._last_round = last_round
        self._version = version
        self._rounds: dict[str, int] = {}
        self._admitted: dict[str, int] = {}  # the round each group was admitted to
        self._members: dict[int, dict[str, None]] = {}

    @property
    def depth(self) -> int:
        """S, updates generation may run ahead."""
        return self._depth

    def set_depth(self, depth: int) -> None:
        """Change S from now on. Groups admitted further ahead keep their places; nothing more is until they fit."""
        if depth < 0:
            raise ValueError(f"a depth of {depth} is none")
        self._depth = depth

    @property
    def version(self) -> int:
        """The version that is live on every generator that takes leases."""
        return self._version

    @property
    def capacity(self) -> int:
        """All permits: (S + 1) * C."""
        return (self._depth + 1) * self._candidates

    @property
    def taken(self) -> int:
        """Permits of groups between admission and live weights."""
        return len(self._rounds)

    @property
    def free(self) -> int:
        """Permits nobody holds. Some may be unusable near the end of the run, when no round is left to open.

        0 as well while more are taken than there are: after a resume, or when the depth was lowered.
        """
        return max(0, self.capacity - self.taken)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds that hold groups, oldest first."""
        return tuple(sorted(r for r, members in self._members.items() if members))

    @property
    def open_round(self) -> int | None:
        """The round the next admitted group joins: the oldest with a free place. None: nothing may start now."""
        for r in range(self._version, min(self._version + self._depth + 1, self._last_round)):
            if len(self._members.get(r, ())) < self._candidates:
                return r
        return None

    @property
    def filled(self) -> bool:
        """Every round that is left has its groups: nothing more is admitted, unless one of them is discarded."""
        return all(self.is_full(r) for r in range(self._version, self._last_round))

    @property
    def finished(self) -> bool:
        """Every round is trained and live."""
        return self._version == self._last_round

    def admit(self, group_id: str) -> int:
        """Take a permit; returns the round the group belongs to."""
        r = self.open_round
        if r is None:
            raise ValueError(f"no permit for {group_id}: {self.taken} of {self.capacity} are taken")
        self._take(group_id, r, r)
        return r

    def restore(self, group_id: str, round_: int, admitted: int | None = None) -> None:
        """Give a group of an earlier process its place back (resume). `admitted`: its first round, if not this one.

        After a crash the live version falls back to a checkpoint's, so restored rounds may lie past version + S and
        `taken` above `capacity`; nothing new is admitted until the rounds in between are trained again.
        """
        if not self._version <= round_ < self._last_round:
            raise ValueError(f"{group_id} of round {round_} cannot be open at version {self._version}")
        if len(self._members.get(round_, ())) >= self._candidates:
            raise ValueError(f"round {round_} is full, {group_id} has no place")
        self._take(group_id, round_, round_ if admitted is None else admitted)

    def may_move(self, group_id: str, round_: int) -> bool:
        """Whether the window lets a group be trained in `round_`."""
        return round_ - self._admitted[group_id] < self._window

    def exchange(self, straggler: str, finished: str) -> tuple[int, int]:
        """Two groups take each other's places. Returns the new round of each. Raises `ValueError` past the window."""
        early, late = self._rounds[straggler], self._rounds[finished]
        if not early < late or not self.may_move(straggler, late):
            raise ValueError(
                f"{straggler} of round {early} cannot go to round {late}: it was admitted to round "
                f"{self._admitted[straggler]}, and the window is {self._window}"
            )
        for group_id, old, new in ((straggler, early, late), (finished, late, early)):
            del self._members[old][group_id]
            self._members[new][group_id] = None
            self._rounds[group_id] = new
        return late, early

    def discard(self, group_id: str) -> int:
        """Give the permit back; the group's place in its round opens again. Returns the round."""
        r = self._rounds.pop(group_id)
        del self._members[r][group_id]
        del self._admitted[group_id]
        return r

    def is_full(self, round_: int) -> bool:
        """Whether the round holds all its C candidates."""
        return len(self._members.get(round_, ())) == self._candidates

    def members(self, round_: int) -> tuple[str, ...]:
        """Groups of a round in admission order."""
        return tuple(self._members.get(round_, ()))

    def round_live(self, round_: int) -> tuple[str, ...]:
        """Round `round_` is trained and version `round_` + 1 is live: its permits come back. Returns its groups."""
        if round_ != self._version:
            raise ValueError(f"round {round_} cannot be live: the live version is {self._version}")
        groups = self.members(round_)
        if len(groups) != self._candidates:
            raise ValueError(f"round {round_} is live with {len(groups)} of {self._candidates} groups")
        for group_id in groups:
            del self._rounds[group_id]
            del self._admitted[group_id]
        del self._members[round_]
        self._version += 1
        return groups

    def _take(self, group_id: str, round_: int, admitted: int) -> None:
        if group_id in self._rounds:
            raise ValueError(f"{group_id} already holds a permit")
        self._rounds[group_id] = round_
        self._admitted[group_id] = admitted
        self._members.setdefault(round_, {})[group_id] = None
