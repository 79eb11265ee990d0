"""Groups and their rounds, as the orchestrator keeps them: admitted by its own gate, complete, live."""

from __future__ import annotations

from collections.abc import Iterator

from stream_rl.config import Config
from stream_rl.orchestrator.gate import Gate


class Group:
    """A group between its lease and the end of its round."""

    __slots__ = ("ended_s", "judged_s", "leased_s", "name", "number", "open", "ready", "round", "version", "written")

    def __init__(self, number: int, *, round_: int, members: int, version: int, now_s: float) -> None:
        self.number = number
        self.name = str(number)
        self.round = round_  # the round it is in
        self.open = members  # rollouts, then bundles, that have not ended
        self.version = version  # live when it was leased: that of its oldest token
        self.leased_s = now_s
        self.ended_s = 0.0
        self.judged_s = 0.0
        self.written = False  # its bundles were begun
        self.ready = False  # it is a candidate


class Rounds:
    """All groups that hold a permit."""

    def __init__(self, config: Config, updates: int) -> None:
        # As in the orchestrator: leasing further ahead than `max_lag` would be in vain.
        self.depth = min(config.async_depth, config.max_lag or config.async_depth)
        self._window = min(config.groups.window, config.lag_limit - self.depth + 1)
        self._candidates = config.groups.candidates
        self._buffer = config.buffer if config.buffer < config.permits else None
        self.gate = Gate(depth=self.depth, candidates=self._candidates, last_round=updates, window=self._window)
        self._groups: dict[int, Group] = {}
        self._ready: dict[int, int] = {}  # candidates by round
        self._admitted = 0

    def __getitem__(self, number: int) -> Group:
        return self._groups[number]

    @property
    def open_round(self) -> int | None:
        """The round the next group would join; None: nothing may be leased now."""
        round_ = self.gate.open_round
        if round_ is None or self._buffer is None or round_ <= self.gate.version:
            return round_
        waiting = sum(count for later, count in self._ready.items() if later > self.gate.version)
        return round_ if waiting < self._buffer else None

    def admit(self, round_: int, *, members: int, now_s: float) -> Group:
        """Lease one more group, of the open round."""
        group = Group(self._admitted, round_=round_, members=members, version=self.gate.version, now_s=now_s)
        self._admitted += 1
        self.gate.admit(group.name)
        self._groups[group.number] = group
        return group

    def candidate(self, group: Group) -> None:
        """It is judged."""
        group.ready = True
        self._ready[group.round] = self._ready.get(group.round, 0) + 1

    def discard(self, group: Group) -> None:
        """It will not be trained; its round is refilled."""
        self.gate.discard(group.name)
        del self._groups[group.number]

    def complete(self, round_: int) -> bool:
        """Whether every group of the round is a candidate, if need be after stragglers made way for finished ones."""
        return self._ready.get(round_, 0) == self._candidates or self._make_way(round_)

    def members(self, round_: int) -> Iterator[Group]:
        """Groups of a round."""
        return (self._groups[int(name)] for name in self.gate.members(round_))

    def live(self, version: int) -> None:
        """This version is live: the rounds before it are over."""
        for round_ in range(self.gate.version, version):
            for name in self.gate.round_live(round_):
                del self._groups[int(name)]
            del self._ready[round_]

    def _make_way(self, round_: int) -> bool:
        """Finished groups of later rounds take the places of stragglers, if that makes the round complete."""
        gate = self.gate
        if self._window == 1 or not gate.is_full(round_):
            return False
        later = [g for r in range(round_ + 1, round_ + self._window) for g in self.members(r) if g.ready]
        pairs = []
        for straggler in (g for g in self.members(round_) if not g.ready):
            instead = next((g for g in later if gate.may_move(straggler.name, g.round)), None)
            if instead is None:
                return False
            later.remove(instead)
            pairs.append((straggler, instead))
        for straggler, finished in pairs:
            self._ready[finished.round] -= 1
            self._ready[straggler.round] = self._ready.get(straggler.round, 0) + 1
            straggler.round, finished.round = gate.exchange(straggler.name, finished.name)
        return True
