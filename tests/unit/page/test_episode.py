from __future__ import annotations

from collections.abc import Sequence

from stream_rl.page.episode import episode, pieces_by
from tests.unit import records


def pieces(token_ids: Sequence[int]) -> list[str]:
    return [f"<{token_id}>" for token_id in token_ids]


def test_every_sampled_token_stands_with_its_log_probability_and_version() -> None:
    trajectory = records.trajectory(versions=(3, 4))
    found = episode(trajectory, advantages=[0.5, -1.0], verdict=None, hint=(), pieces=pieces)
    assert [[(t.text, t.logprob, t.version) for t in turn.tokens] for turn in found.turns] == [
        [("<7>", -0.5, 3)],
        [("<7>", -0.5, 4)],
    ]
    assert [turn.advantage for turn in found.turns] == [0.5, -1.0]
    assert [turn.versions for turn in found.turns] == [(3,), (4,)]


def test_without_a_tokenizer_or_credit_turns_are_shown_as_they_are() -> None:
    found = episode(records.trajectory(), advantages=None, verdict=None, hint=(), pieces=None)
    assert (found.turns[0].action, found.turns[0].tokens, found.turns[0].advantage) == ("look", (), None)


def test_tags_that_say_something_come_first() -> None:
    trajectory = records.trajectory()
    verdict = records.verdict(trajectory.id, {"a.one": "abstained", "b.three": "violation"})
    found = episode(trajectory, advantages=None, verdict=verdict, hint=("a.two",), pieces=None)
    assert [(tag.rubric, tag.value) for tag in found.tags] == [
        ("b.three", "violation"),
        ("a.two", "not_applicable"),
        ("a.one", "abstained"),
    ]
    assert found.hint == ("a.two",)


def test_a_token_stands_with_the_space_before_it() -> None:
    words = {1: "go to", 2: "cabinet", 3: "1"}
    assert pieces_by(lambda ids: " ".join(words[i] for i in ids))([1, 2, 3]) == ["go to", " cabinet", " 1"]


def test_halves_of_a_character_stand_for_themselves() -> None:
    halves = {1: b"a", 2: "é".encode()[:1], 3: "é".encode()[1:]}
    pieces = pieces_by(lambda ids: b"".join(halves[i] for i in ids).decode(errors="replace"))
    assert pieces([1, 2, 3]) == ["a", "\ufffd", "\ufffd"]
