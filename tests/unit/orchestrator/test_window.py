from __future__ import annotations

from stream_rl.orchestrator.flight import Flight, Stage
from stream_rl.orchestrator.window import exchanges
from tests.unit.records import row, trajectory


def group(name: str, round_: int, stage: Stage) -> Flight:
    return Flight(row=row(name, round_=round_), stage=stage)


def anywhere(flight: Flight, round_: int) -> bool:
    return True


def names(pairs: list[tuple[Flight, Flight]]) -> list[tuple[str, str]]:
    return [(straggler.group_id, finished.group_id) for straggler, finished in pairs]


def test_every_straggler_gets_the_finished_group_admitted_first() -> None:
    round_ = [group("a", 0, "leased"), group("b", 0, "candidate"), group("c", 0, "produced")]
    later = [group("d", 1, "leased"), group("e", 1, "candidate"), group("f", 2, "candidate")]
    assert names(exchanges(round_, later, anywhere)) == [("a", "e"), ("c", "f")]


def test_nobody_moves_while_one_straggler_has_to_be_waited_for() -> None:
    round_ = [group("a", 0, "leased"), group("b", 0, "waiting")]
    assert exchanges(round_, [group("c", 1, "candidate")], anywhere) == []


def test_a_group_that_is_selected_already_does_not_step_in() -> None:
    assert exchanges([group("a", 0, "leased")], [group("b", 1, "selected")], anywhere) == []


def test_a_group_with_tokens_of_a_version_that_is_to_be_trained_again_does_not_step_in() -> None:
    """The run went back to version 1: what a generator sampled from version 2 must not train version 1."""
    older, newer = group("b", 2, "candidate"), group("c", 2, "candidate")
    for flight, version in ((older, 1), (newer, 2)):
        flight.trajectories["t"] = trajectory(flight.group_id, versions=(0, version))
    straggler = group("a", 1, "leased")
    assert exchanges([straggler], [newer], anywhere) == []
    assert names(exchanges([straggler], [newer, older], anywhere)) == [("a", "b")]


def test_a_straggler_moves_only_where_it_may() -> None:
    round_, later = [group("a", 0, "leased")], [group("b", 1, "leased"), group("c", 2, "candidate")]
    assert exchanges(round_, later, lambda flight, to: to < 2) == []
    assert names(exchanges(round_, later, lambda flight, to: to <= 2)) == [("a", "c")]


def test_a_round_without_stragglers_takes_nobody() -> None:
    assert exchanges([group("a", 0, "candidate")], [group("b", 1, "candidate")], anywhere) == []
