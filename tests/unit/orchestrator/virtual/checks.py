"""What must hold after every event of a run, and at its end. Every check raises `Violation`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stream_rl.messages import SelectedGroup
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.rerolls import TRIES
from stream_rl.orchestrator.state import RunState
from stream_rl.orchestrator.tasks import TaskStream
from tests.unit.orchestrator.virtual.history import History
from tests.unit.orchestrator.virtual.schedule import Schedule

_BEFORE_SELECTION = {
    "waiting": "leased",
    "leased": "leased",
    "produced": "produced",
    "candidate": "candidate",
    "unselected": "discarded:not_selected",
}
_LEFT_OUT = "not_selected"  # the one reason that leaves no place free: the round is complete without the group


class Violation(AssertionError):
    """A property that must hold does not."""


def require(holds: bool, what: str) -> None:
    """Raise `Violation` saying `what` if it does not hold."""
    if not holds:
        raise Violation(what)


class Onlooker:
    """Looks at one process of the orchestrator after every event. Reads the ledger as another process would."""

    def __init__(self, schedule: Schedule, ledger: Path, history: History) -> None:
        config = schedule.config
        self._config = config
        self._honest = schedule.weather.honest
        self._history = history
        self._depth = min(config.async_depth, config.max_lag or config.async_depth)  # in force
        self._window = min(config.groups.window, config.lag_limit - self._depth + 1)
        self._db = sqlite3.connect(ledger)
        self._version = history.newest  # live
        self._leased: dict[str, str | None] = {}  # producer of each group that was rolled out at the last look
        self._known: set[str] = set()  # groups that were in flight at any look
        self._looked = False  # at the first look all groups are those an earlier process left
        self.max_lag = 0  # of all groups sent to the learner

    @property
    def bound(self) -> int:
        """The largest lag there may be: S + W - 1, with the largest S that was in force so far."""
        return min(max(self._history.deepest, self._depth) + self._window - 1, self._config.lag_limit)

    def close(self) -> None:
        """Nothing more to see."""
        self._db.close()

    def look(self, state: RunState) -> None:
        """After an event."""
        self._permits(state)
        self._rounds(state)
        self._leases(state)
        self._ledger(state)
        self._looked = True

    def receive(self, group: SelectedGroup) -> None:
        """The learner is sent a group of the round it wants: how old is its oldest token?"""
        versions = [s.version for t in group.trajectories if t.valid for turn in t.turns for s in turn.spans]
        lag = group.update - min(versions, default=group.update)
        self.max_lag = max(self.max_lag, lag)
        if self._honest:
            require(lag <= self.bound, f"{group.group_id} reaches the learner with lag {lag}, more than {self.bound}")
            require(max(versions, default=0) <= group.update, f"{group.group_id} holds tokens from the future")

    def _permits(self, state: RunState) -> None:
        """Taken and free add up to (S + 1) * C. More are taken only by groups past v + S.

        Those were admitted when S, or v, was larger: nothing new ever is, see `_rounds`.
        """
        gate = state.gate
        capacity = (gate.depth + 1) * self._config.groups.candidates
        require(gate.capacity == capacity, f"{gate.capacity} permits, where (S + 1) * C = {capacity}")
        require(gate.taken == len(state.flights), f"{gate.taken} permits are taken by {len(state.flights)} groups")
        require(gate.free == max(0, capacity - gate.taken), f"{gate.taken} + {gate.free} of {capacity} permits")
        beyond = sum(len(gate.members(r)) for r in gate.rounds if r > gate.version + gate.depth)
        require(gate.taken <= capacity + beyond, f"{gate.taken} of {capacity} permits are taken, {beyond} beyond S")
        self._depth = gate.depth
        self._history.deepest = max(self._history.deepest, gate.depth)

    def _rounds(self, state: RunState) -> None:
        """Every group is in one open round of at most C, and joined it no more than S ahead of the live version."""
        gate, places = state.gate, self._config.groups.candidates
        require(gate.version >= self._version, f"the live version fell from {self._version} to {gate.version}")
        held: list[str] = []
        for round_ in gate.rounds:
            members = gate.members(round_)
            held += members
            require(len(members) <= places, f"round {round_} holds {len(members)} groups, more than C = {places}")
            require(gate.version <= round_ < self._config.updates, f"round {round_} is open at version {gate.version}")
            for group_id in members:
                flight = state.flights[group_id]
                require(flight.row.round == round_, f"{group_id} is in round {round_}, and says {flight.row.round}")
                ahead = round_ - flight.row.admitted
                require(ahead < self._window, f"{group_id} went {ahead} rounds on, past the window of {self._window}")
                if self._looked and group_id not in self._known:
                    ahead = round_ - gate.version
                    require(ahead <= gate.depth, f"{group_id} joined round {round_} at version {gate.version}")
        require(sorted(held) == sorted(state.flights), "a permit's holder is in no open round")
        self._known.update(held)
        self._version = gate.version

    def _leases(self, state: RunState) -> None:
        leased = {f.group_id: f.producer for f in state.flights.values() if f.stage == "leased"}
        for producer in state.fleet.by_peer.values():
            for group_id in producer.leases:
                if group_id.startswith("eval-"):
                    require(state.evaluating is not None, f"{group_id} runs and no evaluation does")
                else:
                    require(leased.pop(group_id, None) == producer.peer, f"{group_id} is leased and not in flight")
                    require(state.evaluating is None, f"{group_id} is rolled out beside an evaluation")
        require(not leased, f"nobody rolls out {leased}")
        now = {f.group_id: f.producer for f in state.flights.values() if f.stage == "leased"}
        for group_id, peer in now.items():
            ahead = state.flights[group_id].row.round - state.gate.version
            require(
                ahead <= state.gate.depth or self._leased.get(group_id) == peer,
                f"{group_id} is leased {ahead} rounds ahead, at depth {state.gate.depth}",
            )
        self._leased = now

    def _ledger(self, state: RunState) -> None:
        rows = self._db.execute(
            "SELECT group_id, CASE WHEN state = 'discarded' THEN 'discarded:' || COALESCE(reason, '') ELSE state END"
            " FROM groups WHERE round >= ?",
            (state.gate.version,),
        )
        ledger: dict[str, str] = dict(rows.fetchall())
        for flight in state.flights.values():
            stands = ledger.pop(flight.group_id, "missing")
            require(
                _stands_right(flight, stands, state),
                f"{flight.group_id} is {flight.stage} in memory and {stands} in the ledger",
            )
        for group_id, stands in ledger.items():
            require(stands.startswith("discarded:"), f"{group_id} is {stands} in the ledger and unknown in memory")
            require(stands != f"discarded:{_LEFT_OUT}", f"{group_id} lost its permit before its round was live")
            require(not self._honest or stands != "discarded:stale", f"{group_id} was leased in vain: it came too old")
        wrong = self._db.execute(
            "SELECT d.group_id, d.reason, d.owed, r.group_id"
            " FROM groups d LEFT JOIN groups r ON r.reroll_of = d.group_id"
            " WHERE d.round >= ? AND (d.owed + (r.group_id IS NOT NULL)) != (d.state = 'discarded' AND d.reason != ?)",
            (state.gate.version, _LEFT_OUT),
        ).fetchall()
        require(not wrong, f"discarded groups that have no re-roll, owe none, or too many: {wrong}")


def _stands_right(flight: Flight, stands: str, state: RunState) -> bool:
    """Whether the ledger may have a group like this when it stands like that in memory."""
    if flight.stage != "selected":
        return stands == _BEFORE_SELECTION[flight.stage]
    if state.learner is None or flight.row.round >= state.learner.version:
        return stands == "selected"
    return stands == "trained"


def discarded_by_reason(ledger: Path) -> Counter[str]:
    """Groups discarded so far, as the ledger has them."""
    db = sqlite3.connect(ledger)
    rows = db.execute("SELECT reason, COUNT(*) FROM groups WHERE state = 'discarded' GROUP BY 1").fetchall()
    db.close()
    return Counter({str(reason): int(count) for reason, count in rows})


def num_rerolls(ledger: Path) -> int:
    """Groups that stand for discarded ones."""
    return sum(row.reroll_of is not None for row in _rows(ledger))


def check_counted(counted: Counter[str], really: Counter[str]) -> None:
    """Every group that a process discarded was counted once, in a metrics line or in what the next one would say.

    What a selection left out is counted with its round's update, which may be done by a later process: `check_end`.
    """
    counts = [{reason: n for reason, n in c.items() if n and reason != _LEFT_OUT} for c in (counted, really)]
    require(counts[0] == counts[1], f"counted as discarded: {counts[0]}; discarded: {counts[1]}")


def check_told(discarded: set[tuple[str, str]], ledger: Path) -> None:
    """People were told of every group that was discarded before its round was full."""
    db = sqlite3.connect(ledger)
    rows = db.execute(
        "SELECT group_id, reason FROM groups WHERE state = 'discarded' AND reason IN ('too_few_valid', 'stale')"
    )
    missing = set(rows.fetchall()) - discarded
    db.close()
    require(not missing, f"nobody was told of {missing}")


def check_end(schedule: Schedule, run: RunDirectory, history: History, *, any_lost: bool) -> None:
    """Of a complete run: nothing lost, nothing twice, everything refilled.

    any_lost: a process died with the learner's report of an update whose checkpoint was written already
    """
    config = schedule.config
    places, wanted = config.groups.candidates, config.groups.per_update
    rows = _rows(run.ledger)
    leases = Counter(lease.group_id for lease in history.leases)
    fates: dict[int, Counter[str]] = {r: Counter() for r in range(config.updates)}
    for row in rows:
        end, name = row.state, row.group_id
        require(end in ("trained", "discarded"), f"{name} ends as {end!r}")
        require(end == "trained" or bool(row.reason), f"{name} was discarded without a reason")
        require(leases[name] <= row.attempts, f"{name} was leased {leases[name]} times, {row.attempts} are noted")
        require(0 <= row.round < config.updates, f"{name} belongs to round {row.round}")
        fates[row.round]["trained" if end == "trained" else str(row.reason)] += 1
    _check_order(schedule, rows)
    _check_rerolls(rows)
    last = history.last_updates
    require(sorted(last) == list(range(config.updates)), f"updates {sorted(last)}")
    trained_by_learner = [group.group_id for update in last.values() for group in update.trained]
    require(len(trained_by_learner) == len(set(trained_by_learner)), "a group was trained twice")
    for round_, fate in fates.items():
        require(
            fate["trained"] == wanted and fate[_LEFT_OUT] == places - wanted,
            f"round {round_} ends with {dict(fate)}; {wanted} of {places} were to be trained",
        )
        require(len(last[round_].trained) == wanted, f"update {round_} had a wrong number of groups")
    in_ledger = {row.group_id for row in rows if row.state == "trained"}
    require(set(trained_by_learner) <= in_ledger, "the learner trained what the ledger says it did not")
    unreported = in_ledger - set(trained_by_learner)
    require(not unreported or any_lost, f"the ledger says {unreported} were trained")
    lines = list(read_json_lines(run.metrics))
    steps = [line["step"] for line in lines]
    require(len(steps) == len(set(steps)), f"metrics lines of steps {steps}")
    require(any_lost or steps == list(range(config.updates)), f"metrics lines of steps {steps}")
    left_out = {line["groups"]["discarded"].get(_LEFT_OUT, 0) for line in lines}
    require(left_out <= {places - wanted}, f"updates say that {left_out} groups were not selected")
    _check_evaluations(schedule, run)


class _Row(NamedTuple):
    """A group at the end of a run, as the ledger has it."""

    group_id: str
    position: int
    round: int
    admitted: int
    environment: str
    task_index: int
    seed: int
    state: str
    reason: str | None
    attempts: int
    reroll_of: str | None
    owed: int


def _rows(ledger: Path) -> list[_Row]:
    db = sqlite3.connect(ledger)
    rows = db.execute(f"SELECT {', '.join(_Row._fields)} FROM groups ORDER BY position, rowid").fetchall()
    db.close()
    return [_Row(*row) for row in rows]


def _check_order(schedule: Schedule, rows: Sequence[_Row]) -> None:
    """Place n of the task order was leased as what it names, whatever was discarded: every world has its share."""
    config = schedule.config
    tickets = TaskStream({e.name: e.share for e in config.environments}, config.seed)
    for number, row in enumerate(row for row in rows if row.reroll_of is None):
        ticket = tickets.take()
        require(row.position == number, f"the task at place {number} was never leased")
        require(
            (ticket.task.environment, ticket.task.index, ticket.seed) == (row.environment, row.task_index, row.seed),
            f"{row.group_id} attempts another task than place {number} of the order",
        )


def _check_rerolls(rows: Sequence[_Row]) -> None:
    """Every discarded group was rolled again once, in its own world and in the place it left; no other group was."""
    rerolls: dict[str | None, list[_Row]] = {}
    for row in rows:
        rerolls.setdefault(row.reroll_of, []).append(row)
    attempts: Counter[tuple[int, int]] = Counter()
    for row in rows:
        again = rerolls.get(row.group_id, [])
        lost = row.state == "discarded" and row.reason != _LEFT_OUT
        require(len(again) == lost, f"{row.group_id} ({row.reason or row.state}) was rolled again as {again}")
        require(not row.owed, f"{row.group_id} was discarded, {row.reason}, and the run ends without its re-roll")
        for other in again:
            place = (row.environment, row.position, row.round)
            filled = (other.environment, other.position, other.admitted)
            require(place == filled, f"{row.group_id} of {place} was rolled again as {other.group_id} of {filled}")
            require(row.seed != other.seed, f"{row.group_id} was rolled again with its own seed")
        attempts[row.position, row.task_index] += 1
    often = {place: n for place, n in attempts.items() if n > TRIES}
    require(not often, f"tasks by their place and index were rolled more than {TRIES} times: {often}")


def _check_evaluations(schedule: Schedule, run: RunDirectory) -> None:
    """Every version that is due once, and no token of another version in it."""
    every, updates = schedule.config.eval.every, schedule.config.updates
    due = [v for v in range(updates + 1) if every and (v % every == 0 or v == updates)]
    lines = list(read_json_lines(run.eval))
    require([line["step"] for line in lines] == due, f"evaluations of {[line['step'] for line in lines]}, due: {due}")
    for line in lines:
        require(
            line["versions"] in ([], [line["step"]]), f"version {line['step']} was evaluated with {line['versions']}"
        )
