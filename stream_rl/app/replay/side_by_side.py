"""A run's own decisions beside those of another configuration: of each update, each world, and all together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stream_rl.app.replay.decisions import choose_again, hints, rubrics_of, turns_of
from stream_rl.app.replay.pairs import PairFacts, PairSums, kendall
from stream_rl.app.replay.rounds import Round
from stream_rl.app.replay.settings import Settings
from stream_rl.app.replay.trained import TrainedFacts, TrainedSums
from stream_rl.orchestrator.flight import Flight


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """Then and now, of one update, of one world or of all."""

    pairs: PairFacts | None  # advantages of the groups the run trained; None: the formula is the run's own
    was: TrainedFacts  # what was trained
    now: TrainedFacts  # what would have been


class RoundChange(msgspec.Struct, frozen=True, kw_only=True):
    """What the changed configuration makes of one update."""

    selected: int  # groups chosen
    added: tuple[str, ...]  # chosen now only
    removed: tuple[str, ...]  # chosen then only
    hints: tuple[str, ...]  # trained groups whose teacher would be told something else
    overlap: float  # share of the run's selection that is chosen again
    sides: SideBySide  # of all worlds
    worlds: Mapping[str, SideBySide]  # environment -> the same


class Sides:
    """Sums over updates, then and now."""

    def __init__(self, *, formula: bool) -> None:
        """`formula`: advantages are compared, too."""
        self._formula = formula
        self.pairs = PairSums()
        self._was, self._now = TrainedSums(), TrainedSums()

    def add(self, was: Sequence[Flight], now: Sequence[Flight]) -> None:
        """What one update trained, and would have."""
        self._was.add(was)
        self._now.add(now)

    def facts(self) -> SideBySide:
        """What has been found."""
        pairs = self.pairs.facts() if self._formula else None
        return SideBySide(pairs=pairs, was=self._was.facts(), now=self._now.facts())


class SettingsCompared:
    """The changed configuration over one round after another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._formula = settings.changes_any("advantages")
        self.total = Sides(formula=self._formula)
        self.worlds: dict[str, Sides] = {}

    def add(self, round_: Round) -> RoundChange:
        """What would have been trained, told and weighed. What no change concerns is taken as it was."""
        settings = self._settings
        selected = round_.selected
        trained: Sequence[Flight] = round_.trained
        if settings.changes_any("selection"):
            selected = choose_again(settings.changed, round_.candidates, round_=round_.update)
            trained = [f for f in round_.candidates if f.group_id in selected]
        told = {f.group_id: f.hint for f in round_.trained}
        if settings.changes_any("hints"):
            told = hints(settings.changed, round_.trained, rubrics_of(round_.candidates))
        sides = Sides(formula=self._formula)
        worlds: dict[str, Sides] = {}
        for name in sorted({f.row.task.environment for f in (*round_.trained, *trained)}):
            worlds[name] = Sides(formula=self._formula)
            for world in (worlds[name], self.worlds.setdefault(name, Sides(formula=self._formula))):
                world.add(_of(name, round_.trained), _of(name, trained))
        for every in (sides, self.total):
            every.add(round_.trained, trained)
        for flight in round_.trained if self._formula else ():
            name = flight.row.task.environment
            pair = turns_of(settings.run, flight), turns_of(settings.changed, flight)
            tau = kendall(*pair)
            for sums in (sides, self.total, worlds[name], self.worlds[name]):
                sums.pairs.add(*pair, tau)
        removed = round_.selected - selected
        return RoundChange(
            selected=len(selected),
            added=tuple(sorted(selected - round_.selected)),
            removed=tuple(sorted(removed)),
            hints=tuple(f.group_id for f in round_.trained if told[f.group_id] != f.hint),
            overlap=1.0 - len(removed) / len(round_.selected) if round_.selected else 1.0,
            sides=sides.facts(),
            worlds={name: world.facts() for name, world in worlds.items()},
        )


def _of(environment: str, flights: Sequence[Flight]) -> list[Flight]:
    return [f for f in flights if f.row.task.environment == environment]
