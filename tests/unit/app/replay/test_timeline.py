from __future__ import annotations

from stream_rl.app.replay.timeline import Timeline, read_timeline
from stream_rl.observe.archive import ArchivedTransition
from stream_rl.orchestrator.staleness import Stamps


def timeline(*steps: tuple[str, str] | tuple[str, str, str]) -> Timeline:
    """(group, state) or (group, state, detail), a second apart."""
    return read_timeline(
        ArchivedTransition(group_id=step[0], state=step[1], detail=step[2] if len(step) == 3 else None, at=float(at))
        for at, step in enumerate(steps)
    )


def test_phases_are_counted_in_versions() -> None:
    """b is rolled out across the first update, and selected after it."""
    found = timeline(
        ("a", "leased"), ("b", "leased"), ("a", "produced"), ("a", "judged"), ("a", "candidate"),
        ("a", "selected", "0"), ("a", "trained", "0"), ("b", "produced"), ("b", "judged"), ("b", "candidate"),
        ("b", "selected", "1"),
    )  # fmt: skip
    assert found.stamps == {
        "a": Stamps(leased=0, produced=0, judged=0, selected=0),
        "b": Stamps(leased=0, produced=1, judged=1, selected=1),
    }
    assert found.selected_at == {"a": 5.0, "b": 10.0}
    assert (found.given_up, found.rewound) == ({}, None)


def test_a_group_that_is_leased_again_begins_again() -> None:
    found = timeline(("a", "leased"), ("b", "trained", "0"), ("a", "leased", "again"))
    assert found.stamps["a"] == Stamps(leased=1)


def test_a_line_counts_what_was_given_up_since_the_line_before() -> None:
    """What a selection left out, or the learner refused, belongs to its own round's line instead."""
    found = timeline(
        ("a", "leased"), ("a", "discarded", "stale"), ("b", "selected", "0"), ("c", "discarded", "not_selected"),
        ("b", "trained", "0"), ("d", "discarded", "too_few_valid"), ("e", "selected", "1"),
        ("e", "discarded", "refused"),
    )  # fmt: skip
    assert found.given_up == {0: ["a"], 1: ["d"]}


def test_an_exchange_is_one_straggler() -> None:
    found = timeline(("z", "trained", "0"), ("a", "moved", "2"), ("b", "moved", "1"))
    assert found.deferred == {1: 1}
    assert found.moved == {"a", "b"}


def test_what_was_rewound_is_counted_again() -> None:
    """Updates 1 and 2 are trained again: what was discarded before them is forgotten, what comes now is not."""
    found = timeline(
        ("a", "trained", "0"), ("x", "discarded", "stale"), ("b", "trained", "1"), ("c", "trained", "2"),
        ("c", "selected", "rewound"), ("b", "selected", "rewound"), ("y", "discarded", "stale"), ("b", "trained", "1"),
        ("d", "leased"),
    )  # fmt: skip
    assert found.rewound == 1
    assert found.given_up == {1: ["y"]}
    assert found.stamps["d"] == Stamps(leased=2)
