from __future__ import annotations

from stream_rl.observe.archive import ArchivedTransition
from stream_rl.observe.lanes import lanes
from stream_rl.observe.walks import Walk, walks


def steps(*rows: tuple[float, str, str] | tuple[float, str, str, str]) -> list[ArchivedTransition]:
    return [
        ArchivedTransition(at=row[0], group_id=row[1], state=row[2], detail=row[3] if len(row) == 4 else None)
        for row in rows
    ]


def phases(walk: Walk) -> list[tuple[str, float, float]]:
    return [(p.name, p.start, p.stop) for p in walk.phases]


def test_a_group_does_one_thing_after_the_other() -> None:
    (walk,) = walks(
        steps(
            (1.0, "g", "leased"),
            (4.0, "g", "produced"),
            (5.0, "g", "judged"),
            (5.0, "g", "candidate"),
            (5.5, "g", "moved", "2"),
            (7.0, "g", "selected", "1"),
            (9.0, "g", "trained", "1"),
        )
    )
    assert phases(walk) == [
        ("rolled out", 1.0, 4.0),
        ("judged", 4.0, 5.0),
        ("waits for its round", 5.0, 7.0),
        ("at the learner", 7.0, 9.0),
    ]
    assert (walk.start, walk.stop, walk.end, walk.end_detail) == (1.0, 9.0, "trained", "1")


def test_a_lease_that_is_issued_again_is_a_second_attempt() -> None:
    (walk,) = walks(
        steps((1.0, "g", "leased"), (3.0, "g", "leased", "again"), (4.0, "g", "discarded", "too_few_valid"))
    )
    assert phases(walk) == [("rolled out", 1.0, 3.0), ("rolled out", 3.0, 4.0)]
    assert (walk.phases[1].detail, walk.end, walk.end_detail) == ("again", "discarded", "too_few_valid")


def test_a_rewound_round_is_at_the_learner_twice_and_the_time_between_belongs_to_nobody() -> None:
    (walk,) = walks(
        steps(
            (1.0, "g", "leased"),
            (2.0, "g", "produced"),
            (2.0, "g", "judged"),
            (2.0, "g", "candidate"),
            (3.0, "g", "selected", "0"),
            (5.0, "g", "trained", "0"),
            (60.0, "g", "selected", "rewound"),
            (62.0, "g", "trained", "0"),
        )
    )
    assert phases(walk)[-2:] == [("at the learner", 3.0, 5.0), ("at the learner", 60.0, 62.0)]
    assert walk.stop == 62.0


def test_what_is_not_over_lasts_until_the_records_end() -> None:
    early, late = walks(steps((1.0, "a", "leased"), (2.0, "b", "leased"), (8.0, "b", "produced")))
    assert (phases(early), early.end) == ([("rolled out", 1.0, 8.0)], None)
    assert phases(late) == [("rolled out", 2.0, 8.0), ("judged", 8.0, 8.0)]


def test_lanes_are_taken_again_as_soon_as_they_are_free() -> None:
    assert lanes([(0, 10), (0, 4), (4, 6), (5, 9), (10, 11)]) == [0, 1, 1, 2, 0]
    assert lanes([]) == []
