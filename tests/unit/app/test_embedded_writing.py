from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.rules.finding import Finding
from learner.imitation import Demonstration
from stream_rl.app import embedded_tokenizer
from stream_rl.app.embedded_writing import (
    FIRST_INDEX,
    WritingRecipe,
    WritingSource,
    findings,
    name_differences,
    record,
    spreads,
)
from stream_rl.renderer import Renderer
from stream_rl.rubrics.bundles import parse_bundle
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Message, StepResult, TagValue, Task

FULL = 0.99  # share of the imitation at which groups have their full size


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return embedded_tokenizer.build(builtin())


def written(tokenizer: Any, count: int, done_frac: float, **changes: Any) -> list[Demonstration]:
    source = WritingSource(tokenizer, builtin(), WritingRecipe(**changes))
    return [source.write(done_frac) for _ in range(count)]


def parts(tokenizer: Any, demo: Demonstration) -> tuple[str, str]:
    prompt, _, answer = tokenizer.decode(demo.token_ids.tolist()).partition("<|assistant|>")
    return prompt, answer


def found(*values: TagValue) -> list[dict[str, Finding]]:
    """One rubric "r" on as many members."""
    return [{"r": Finding(value=value, reason="")} for value in values]


def test_an_answer_is_a_bundle_of_hints_that_ends_its_turn(tokenizer: Any) -> None:
    hints = {rubric.hint for rubric in builtin().rubrics}
    for demo in written(tokenizer, 20, FULL):
        _, answer = parts(tokenizer, demo)
        assert answer.endswith(". <|im_end|>")
        bundle = parse_bundle(answer.removesuffix("<|im_end|>"))
        assert bundle is not None
        assert set(bundle) <= hints
        assert 5 <= len(bundle) <= 8
        assert answer.count(" . ") == len(bundle)  # nothing stands twice


def test_only_the_answer_has_weight_and_the_prompt_is_what_a_producer_would_render(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer)
    for demo in written(tokenizer, 20, FULL, answer_weight=3.0):
        prompt, answer = parts(tokenizer, demo)
        # Any number from 3 on is the same unknown word, which a renderer takes apart when spelled out.
        told = prompt.removeprefix("<|user|>").replace("<unk>", "3")
        head = renderer.head([Message(role="user", content=told)])
        assert prompt.startswith("<|user|> 1 :")
        assert prompt.rstrip().endswith("guide :")
        ids = demo.token_ids.tolist()
        assert ids[: len(head)] == head
        assert ids[len(head) :] == tokenizer.encode(answer, add_special_tokens=False)
        assert demo.weights.tolist() == [0.0] * len(head) + [3.0] * (len(ids) - len(head))


def test_prompt_and_answer_fit_the_context(tokenizer: Any) -> None:
    demos = written(tokenizer, 30, FULL, group_min=8, context_tokens=300, answer_tokens=32)
    assert max(len(demo.token_ids) for demo in demos) <= 300
    assert max(int((demo.weights > 0).sum()) for demo in demos) <= 17  # 8 phrases, 8 stops, the end of the turn
    assert all(". . ." in parts(tokenizer, demo)[0] for demo in demos)  # eight whole episodes would not have fitted


def test_groups_grow_with_the_imitation(tokenizer: Any) -> None:
    short, full = (written(tokenizer, 20, done_frac) for done_frac in (0.0, FULL))
    assert max(len(demo.token_ids) for demo in short) < 150
    assert sum(len(demo.token_ids) for demo in full) / 20 > 250


def test_play_is_mixed_in(tokenizer: Any) -> None:
    source = WritingSource(tokenizer, builtin(), WritingRecipe(writing_frac=0.5))
    texts = [tokenizer.decode(source(FULL).token_ids.tolist()) for _ in range(200)]
    assert 70 <= sum("guide : <|assistant|>" in text for text in texts) <= 130
    assert sum("your task is to :" in text for text in texts) == 200 - sum("guide : <|assistant|>" in t for t in texts)


def test_the_same_recipe_gives_the_same_demonstrations(tokenizer: Any) -> None:
    first, again, other = (written(tokenizer, 5, FULL, seed=seed) for seed in (0, 0, 1))
    assert [d.token_ids.tolist() for d in first] == [d.token_ids.tolist() for d in again]
    assert [d.token_ids.tolist() for d in first] != [d.token_ids.tolist() for d in other]


def test_spread_is_the_variance_over_decided_members_times_their_share() -> None:
    # half and half, all decided: 1/2 * 1/2 = 0.25
    assert spreads(found("positive", "violation", "positive", "violation")) == {"r": 0.25}
    # 3 of 4 positive: 3/4 * 1/4 = 0.1875
    assert spreads(found("positive", "positive", "violation", "positive")) == {"r": 0.1875}
    # half and half of the two decided among four: 0.25 * 2/4 = 0.125
    assert spreads(found("positive", "violation", "not_applicable", "not_applicable")) == {"r": 0.125}
    assert spreads(found("violation", "violation")) == {"r": 0.0}
    assert spreads(found("positive", "not_applicable")) == {}
    assert spreads([]) == {}


values = st.sampled_from(["positive", "violation", "not_applicable"])


@given(st.lists(values, min_size=2, max_size=8), st.randoms())
@settings(deadline=None, max_examples=60)
def test_spread_knows_no_order_and_no_sign(members: list[TagValue], rng: Any) -> None:
    shuffled = rng.sample(members, len(members))
    other: dict[TagValue, TagValue] = {"positive": "violation", "violation": "positive"}
    spread = spreads(found(*members))
    assert spread == spreads(found(*shuffled)) == spreads(found(*[other.get(value, value) for value in members]))
    assert all(0.0 <= s <= 0.25 for s in spread.values())


def test_the_five_largest_are_named_and_others_of_half_the_largest_up_to_eight() -> None:
    spread = {"z": 0.05, "y": 0.1, "x": 0.2, "w": 0.25, "v": 0.15, "u": 0.12, "t": 0.0}
    # the five largest are w, x, v, u, y; z has less than half of w; t has none; order is that of `spread`
    assert name_differences(spread) == ["y", "x", "w", "v", "u"]
    # y is the sixth now, and has half of w
    assert name_differences({**spread, "z": 0.13, "y": 0.125, "u": 0.14}) == ["z", "y", "x", "w", "v", "u"]
    assert len(name_differences({str(i): 0.25 for i in range(12)})) == 8


def test_a_group_that_differs_in_too_little_is_not_asked_about() -> None:
    four = {str(i): 0.25 for i in range(4)}
    assert name_differences({**four, "same": 0.0}) == []
    assert name_differences(four, at_least=4) == ["0", "1", "2", "3"]


def test_the_rules_find_in_a_record_what_was_done() -> None:
    first = (
        "You are in the middle of a room. You see cabinet 1, desk 1, shelf 1. Your task is to: put some mug in desk 1."
    )
    steps = [
        ("go to cabinet 1", StepResult(text="The cabinet 1 is closed.")),
        ("open desk 1", StepResult(text="Nothing happens.", valid=False)),
        ("look", StepResult(text="You are in the middle of a room.", reward=1.0, done=True, success=True, score=1.0)),
    ]
    task = Task(environment="household", split="train", index=FIRST_INDEX)
    trajectory = record(task, 3, first, steps)
    assert trajectory.id == f"household/train/{FIRST_INDEX}/3"
    assert [(turn.action, turn.valid) for turn in trajectory.turns] == [
        ("go to cabinet 1", True),
        ("open desk 1", False),
        ("look", True),
    ]
    assert trajectory.reward == 1.0
    assert trajectory.success
    assert findings(trajectory)["precision.valid_actions"].value == "violation"
