from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.household.catalogue import OBJECTS
from envs.household.player import CORE_RUBRICS
from envs.household.world import Household
from stream_rl.app import embedded_tokenizer
from stream_rl.renderer import Renderer
from stream_rl.rubrics.guidance import avoid_text, hint_text
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Task


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return embedded_tokenizer.build(builtin())


def encode(tokenizer: Any, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))  # type: ignore[no-any-return]


@settings(deadline=None, max_examples=60)
@given(index=st.integers(0, 10**6), rng=st.randoms(use_true_random=False), level=st.sampled_from(["standard", "hard"]))
def test_every_action_comes_back_and_nothing_the_world_says_is_unknown(
    tokenizer: Any, index: int, rng: Any, level: str
) -> None:
    world = Household(level=level)
    text = world.reset(Task(environment="household", split="train", index=index), seed=0).text
    for _ in range(12):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == embedded_tokenizer.normalise(text)
        actions = world.admissible()
        for action in actions:
            assert tokenizer.decode(tokenizer.encode(action, add_special_tokens=False)) == action
        result = world.step(rng.choice(actions))
        if result.done:
            break
        text = result.text


def test_actions_are_short_and_objects_can_be_copied(tokenizer: Any) -> None:
    assert encode(tokenizer, "go to cabinet 1") == ["go to", "cabinet 1"]
    assert encode(tokenizer, "take apple 1 from fridge 1") == ["take", "apple", "1", "from", "fridge 1"]
    assert encode(tokenizer, "Your task is to: put a hot apple in countertop.") == [
        "your task is to :",
        "put a",
        "hot",
        "apple",
        "in",
        "countertop",
        ".",
    ]
    assert all(len(encode(tokenizer, f"{thing} 2")) == 2 for thing in OBJECTS)


def test_each_rubric_phrase_is_one_token(tokenizer: Any) -> None:
    for rubric in builtin().rubrics:
        for phrase in (rubric.hint, rubric.avoid):
            assert encode(tokenizer, phrase) == [embedded_tokenizer.normalise(phrase)], rubric.id


@pytest.mark.parametrize("told", [hint_text, avoid_text])
def test_a_guide_line_is_one_token_a_rubric_and_a_stop(tokenizer: Any, told: Any) -> None:
    tokens = encode(tokenizer, told(builtin(), CORE_RUBRICS))
    assert tokens[0] == "guide :"
    assert len(tokens) == 1 + 2 * len(CORE_RUBRICS)
    assert tokens[2::2] == ["."] * len(CORE_RUBRICS)


@settings(deadline=None, max_examples=100)
@given(text=st.text(max_size=60))
def test_any_text_is_encoded(tokenizer: Any, text: str) -> None:
    assert all(0 <= i < len(tokenizer) for i in tokenizer.encode(text, add_special_tokens=False))


def test_unknown_words_are_unknown_and_known_words_beside_them_are_not(tokenizer: Any) -> None:
    assert encode(tokenizer, "take the Zeppelin from fridge 1") == ["take", "the", "<unk>", "from", "fridge 1"]
    assert encode(tokenizer, "cabinet 12") == ["cabinet", "<unk>"]


def test_special_tokens_and_size(tokenizer: Any) -> None:
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == ("<|endoftext|>", 0)
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 1)
    size = embedded_tokenizer.model_vocabulary_size(tokenizer)
    assert size % 64 == 0
    assert 0 <= size - len(tokenizer) < 64


MESSAGES = [
    {"role": "system", "content": "guide : open closed places at once ."},
    {"role": "user", "content": "You are in the middle of a room. You see fridge 1."},
    {"role": "assistant", "content": "go to fridge 1"},
    {"role": "user", "content": "The fridge 1 is closed."},
    {"role": "assistant", "content": "open fridge 1"},
    {"role": "user", "content": "Nothing happens."},
]


def render(tokenizer: Any, messages: list[dict[str, str]], prompt: bool) -> list[int]:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)  # type: ignore[no-any-return]


def test_the_template_by_hand(tokenizer: Any) -> None:
    assert tokenizer.convert_ids_to_tokens(render(tokenizer, MESSAGES[:4], prompt=True)) == [
        *("<|system|>", "guide :", "open closed places at once", "."),
        *("<|user|>", "you are in the middle of a room .", "you see", "fridge 1", ".", "<|assistant|>"),
        *("go to", "fridge 1", "<|im_end|>", "<|user|>", "the", "fridge 1", "is closed .", "<|assistant|>"),
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_more_messages_never_change_earlier_ids(tokenizer: Any, first: int) -> None:
    whole = render(tokenizer, MESSAGES[first:], prompt=False)
    for count in range(1, len(MESSAGES) - first + 1):
        messages = MESSAGES[first : first + count]
        rendered = render(tokenizer, messages, prompt=False)
        assert whole[: len(rendered)] == rendered
        if messages[-1]["role"] == "user" and first + count < len(MESSAGES):
            prompted = render(tokenizer, messages, prompt=True)
            assert whole[: len(prompted)] == prompted


def test_the_renderer_accepts_it(tokenizer: Any) -> None:
    Renderer(tokenizer).check_prefix()


def test_it_is_the_same_after_saving(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    embedded_tokenizer.save(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert render(loaded, MESSAGES, prompt=True) == render(tokenizer, MESSAGES, prompt=True)
    assert (loaded.eos_token_id, loaded.pad_token_id, loaded.unk_token_id) == (1, 0, 2)
    assert loaded.decode(loaded.encode("take apple 1 from fridge 1")) == "take apple 1 from fridge 1"
