"""What the agent knew and did at every turn, reconstructed from the transcript alone.

The rules never see the world: places, contents and doors are known here exactly as far as observations told them.
"""

from __future__ import annotations

import msgspec

from judge.rules.commonsense import APPLIANCES, LAMP
from judge.rules.language import Command, Goal, kind_of, normalise, read_command, read_goal, read_listing, says_closed
from judge.transcript import Transcript, TranscriptTurn

TREATING = frozenset({"heat", "cool", "clean"})
LOOKING = frozenset({"look", "inventory", "examine"})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. Everything but `gain` describes the moment before the action."""

    turn: int  # number in the transcript
    action: str  # normalised text
    command: Command | None  # None: not a command of this language
    valid: bool  # the world accepted it
    here: str  # place the agent stands at; empty in the middle of the room
    here_closed: bool  # that place was shown closed
    carried: str  # thing in hand, or empty
    treated: bool  # the carried thing has had the treatment the goal asks for (True if it asks for none)
    visible: tuple[str, ...]  # things known to lie here within reach
    wanted_at: tuple[str, ...]  # places where wanted things are known to be that still have to be dealt with
    delivered: int  # wanted things lying finished at the target
    searched: bool  # the place the command names had been looked into
    opened: bool  # the place the command names stood open, opened by the agent
    unsearched: tuple[str, ...]  # for `go`: places not looked into yet
    lamp_at: str  # where the lamp was seen, or empty
    stranger: str  # "kind": the command names a thing of a kind never shown; "number": a number never shown; or empty
    situation: tuple[str, int]  # place and number of lasting changes so far: equal means nothing changed
    gain: bool  # the action brought new information or a lasting change

    @property
    def verb(self) -> str:
        """Verb of the command; empty if there is none."""
        return self.command.verb if self.command else ""

    @property
    def thing(self) -> str:
        """Thing the command names; empty if none."""
        return self.command.thing if self.command else ""

    @property
    def place(self) -> str:
        """Place the command names; empty if none."""
        return self.command.place if self.command else ""

    def did(self, verb: str) -> bool:
        """Whether this turn carried out a command of this verb."""
        return self.valid and self.command is not None and self.command.verb == verb


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A whole episode."""

    goal: Goal | None  # None: not a household task; most rules then do not apply
    places: tuple[str, ...]  # named in the first observation
    steps: tuple[Step, ...]  # one a turn
    end: Step  # the moment after the last action, with an empty command
    misses: int  # places looked into before the first wanted thing was seen
    sighted: bool  # a wanted thing was seen or taken
    wanted_seen: int  # distinct wanted things seen

    def after(self, index: int) -> Step:
        """The moment after step `index`."""
        return self.steps[index + 1] if index + 1 < len(self.steps) else self.end

    def is_wanted(self, thing: str) -> bool:
        """Whether a thing is of the kind the goal names."""
        return self.goal is not None and kind_of(thing) == self.goal.thing

    def is_target(self, place: str) -> bool:
        """Whether a place is of the kind the goal names."""
        return self.goal is not None and kind_of(place) == self.goal.target

    def next_stop(self, step: Step) -> str:
        """Kind of place, or the place, that the carried wanted thing must come to next; empty if unknown or none."""
        if self.goal is None or not self.is_wanted(step.carried):
            return ""
        if self.goal.kind == "light":
            return step.lamp_at
        return self.goal.target if step.treated else APPLIANCES[self.goal.kind]


def reconstruct(transcript: Transcript) -> Facts:
    """Replay the transcript."""
    goal = read_goal(transcript.task)
    places = read_listing(transcript.task) or ()
    replay = _Replay(goal, places)
    steps = tuple([replay.step(turn) for turn in transcript.turns])
    return Facts(
        goal=goal,
        places=places,
        steps=steps,
        end=replay.before(len(steps) + 1, "", None, False, False),
        misses=replay.misses,
        sighted=replay.sighted,
        wanted_seen=len(replay.wanted_seen),
    )


def stops_match(stop: str, place: str) -> bool:
    """Whether `place` is the stop, or of its kind."""
    return place == stop or kind_of(place) == stop


class _Replay:
    """The agent's knowledge while the transcript goes by."""

    def __init__(self, goal: Goal | None, places: tuple[str, ...]) -> None:
        self.goal = goal
        self.places = places
        self.here = ""
        self.carried = ""
        self.lamp_at = ""
        self.contents: dict[str, tuple[str, ...]] = {}  # places looked into
        self.closed: set[str] = set()  # shown closed
        self.opened: set[str] = set()  # opened by the agent
        self.treatments: set[tuple[str, str]] = set()  # (verb, thing)
        self.names = set(places)
        self.kinds = {kind_of(p) for p in places}
        self.changes = 0
        self.wanted_at: tuple[str, ...] = ()
        self.delivered = 0
        self.wanted_seen: set[str] = set()
        self.sighted = False
        self.misses = 0
        self.news = False  # the step in progress brought new information or a lasting change

    def step(self, turn: TranscriptTurn) -> Step:
        """Record the moment before the action, then apply it."""
        action = normalise(turn.action)
        command = read_command(action)
        if not turn.valid or command is None:
            return self.before(turn.turn, action, command, turn.valid, False)
        # Steps are frozen and describe the moment before, so the record is made first and completed afterwards.
        record = self.before(turn.turn, action, command, True, False)
        self.news = False
        self._apply(command)
        self._read(command, turn.observation)
        return msgspec.structs.replace(record, gain=True) if self.news else record

    def before(self, turn: int, action: str, command: Command | None, valid: bool, gain: bool) -> Step:
        """The present moment as a step."""
        place = command.place if command else ""
        return Step(
            turn=turn,
            action=action,
            command=command,
            valid=valid,
            here=self.here,
            here_closed=self.here in self.closed,
            carried=self.carried,
            treated=self._treated(self.carried),
            visible=() if self.here in self.closed else self.contents.get(self.here, ()),
            wanted_at=self.wanted_at,
            delivered=self.delivered,
            searched=place in self.contents,
            opened=place in self.opened,
            unsearched=tuple([p for p in self.places if p not in self.contents])
            if command is None or command.verb == "go"
            else (),
            lamp_at=self.lamp_at,
            stranger=self._stranger(command) if command else "",
            situation=(self.here, self.changes),
            gain=gain,
        )

    def _treated(self, thing: str) -> bool:
        return self.goal is None or self.goal.kind not in TREATING or (self.goal.kind, thing) in self.treatments

    def _stranger(self, command: Command) -> str:
        for name in (command.thing, command.place):
            if name and name not in self.names:
                return "number" if kind_of(name) in self.kinds else "kind"
        return ""

    def _apply(self, command: Command) -> None:
        verb, thing, place = command
        match verb:
            case "go":
                self.here = place
                return
            case "open":
                self.opened.add(place)
                self.closed.discard(place)
            case "close":
                self.opened.discard(place)
                self.closed.add(place)
            case "take":
                self.carried = thing
                left = self.contents.get(place)
                if left is not None:
                    self.contents[place] = tuple([t for t in left if t != thing])
                self._notice((thing,))
            case "move":
                self.carried = ""
                self.contents[place] = (*self.contents.get(place, ()), thing)
            case "heat" | "cool" | "clean":
                # A thing is hot or cool, not both.
                if verb != "clean":
                    self.treatments -= {("heat", thing), ("cool", thing)}
                self.treatments.add((verb, thing))
            case "use":
                pass
            case "look" | "inventory" | "examine":
                return
        self.changes += 1
        self.news = self.news or verb != "close"
        self._locate_wanted()

    def _read(self, command: Command, observation: str) -> None:
        """Take in what the observation shows of the place the agent stands at."""
        shows_place = command.verb in ("go", "open", "look") or (
            command.verb == "examine" and command.thing == self.here
        )
        if not shows_place or not self.here:
            return
        if says_closed(observation):
            self.news = self.news or self.here not in self.closed
            self.closed.add(self.here)
            return
        listing = read_listing(observation)
        if listing is None:
            return
        self.closed.discard(self.here)
        if self.contents.get(self.here) != listing:
            self.news = True
            fresh = self.here not in self.contents
            self.contents[self.here] = listing
            self._notice(listing)
            self._locate_wanted()
            if fresh and not self.sighted:
                self.misses += 1

    def _notice(self, things: tuple[str, ...]) -> None:
        for thing in things:
            kind = kind_of(thing)
            self.names.add(thing)
            self.kinds.add(kind)
            if kind == LAMP:
                self.lamp_at = self.here
            if self.goal is not None and kind == self.goal.thing:
                self.wanted_seen.add(thing)
                self.sighted = True

    def _locate_wanted(self) -> None:
        goal = self.goal
        if goal is None or not self.wanted_seen:
            return
        places: list[str] = []
        delivered = 0
        for place, things in self.contents.items():
            for thing in things:
                if kind_of(thing) == goal.thing:
                    if goal.kind != "light" and kind_of(place) == goal.target and self._treated(thing):
                        delivered += 1
                    else:
                        places.append(place)
        self.wanted_at = tuple(places)
        self.delivered = delivered
