"""Which stragglers of a round make way for groups that are ready. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stream_rl.orchestrator.flight import Flight

READY = ("candidate", "selected", "unselected")


def exchanges(
    round_: Sequence[Flight], later: Sequence[Flight], may_move: Callable[[Flight, int], bool]
) -> list[tuple[Flight, Flight]]:
    """Pairs (straggler, finished group) whose places must be exchanged for the round to be complete now.

    round_: groups of the round the learner waits for, in admission order; the round is full
    later: groups of the rounds after it, in admission order; only candidates among them can step in
    may_move: whether a straggler may be trained in the round that a finished group leaves

    All or nothing: as long as some straggler would have to be waited for all the same, none is moved. The finished
    group admitted first steps in first, so what is generated earliest is trained earliest. None with a token newer than
    the round steps in: there are such groups when a run has gone back to a checkpoint.
    """
    finished = [f for f in later if f.stage == "candidate" and (f.newest_version or 0) <= round_[0].row.round]
    pairs: list[tuple[Flight, Flight]] = []
    for straggler in (flight for flight in round_ if flight.stage not in READY):
        instead = next((f for f in finished if may_move(straggler, f.row.round)), None)
        if instead is None:
            return []
        finished.remove(instead)
        pairs.append((straggler, instead))
    return pairs
