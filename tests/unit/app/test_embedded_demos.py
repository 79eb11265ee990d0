from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from envs.household.player import CORE_RUBRICS
from learner.imitation import Demonstration
from stream_rl.app import embedded_tokenizer
from stream_rl.app.embedded_demos import DemoRecipe, DemoSource
from stream_rl.renderer import Renderer
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Message


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return embedded_tokenizer.build(builtin())


def demos(tokenizer: Any, count: int, done_frac: float, **changes: Any) -> list[Demonstration]:
    source = DemoSource(tokenizer, builtin(), DemoRecipe(**changes))
    return [source(done_frac) for _ in range(count)]


def words(tokenizer: Any, demo: Demonstration) -> list[str]:
    return tokenizer.convert_ids_to_tokens(demo.token_ids.tolist())  # type: ignore[no-any-return]


def actions(tokens: list[str]) -> list[list[str]]:
    starts = [i + 1 for i, token in enumerate(tokens) if token == "<|assistant|>"]
    return [tokens[i : tokens.index("<|im_end|>", i)] for i in starts]


def test_ids_are_those_a_rollout_would_have(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer)
    for demo in demos(tokenizer, 20, 0.9, advised_frac=1.0):
        ids = demo.token_ids.tolist()
        text = tokenizer.decode(ids)
        guide, _, rest = text.removeprefix("<|system|>").partition("<|user|>")
        first, *turns = rest.split("<|user|>")
        head = [
            Message(role="system", content=guide),
            Message(role="user", content=first.partition("<|assistant|>")[0]),
        ]
        built = list(renderer.head(head))
        for turn in [first, *turns]:
            observation, _, action = turn.partition("<|assistant|>")
            if turn is not first:
                built += renderer.after_action(observation, ended=True)
            built += tokenizer.encode(action, add_special_tokens=False)
        assert built == ids


def test_actions_weigh_one_observations_less_and_advice_nothing(tokenizer: Any) -> None:
    for demo in demos(tokenizer, 30, 0.9, lapse_frac=0.0, observation_weight=0.25, advised_frac=1.0):
        acting = advised = False
        for token, weight in zip(words(tokenizer, demo), demo.weights.tolist(), strict=True):
            if token in {"<|system|>", "<|user|>"}:
                acting, advised = False, token == "<|system|>"
            assert weight == (1.0 if acting else 0.0 if advised else 0.25)
            if token == "<|assistant|>":
                acting = True


def test_lapses_are_shown_but_not_imitated(tokenizer: Any) -> None:
    ends = Counter(
        float(weight)
        for demo in demos(tokenizer, 200, 0.0, lapse_frac=0.2, advised_frac=0.0)
        for token, weight in zip(words(tokenizer, demo), demo.weights.tolist(), strict=True)
        if token == "<|im_end|>"
    )
    assert set(ends) == {0.0, 1.0}
    assert 0.16 < ends[0.0] / sum(ends.values()) < 0.24


def test_clean_play_comes_first_then_errors(tokenizer: Any) -> None:
    def closings(done_frac: float) -> int:
        batch = demos(tokenizer, 100, done_frac, clean_frac=0.5, lapse_frac=0.0, advised_frac=0.0)
        return sum(action[0] == "close" for demo in batch for action in actions(words(tokenizer, demo)))

    assert closings(0.49) == 0
    assert closings(0.5) > 10


def test_advice_is_heeded(tokenizer: Any) -> None:
    told, untold = [0, 0], [0, 0]  # closings, episodes
    phrases = {builtin()["efficiency.keep_open"].hint, builtin()["efficiency.keep_open"].avoid}
    phrases |= {builtin()["precision.valid_actions"].hint, builtin()["precision.valid_actions"].avoid}
    for demo in demos(tokenizer, 400, 0.9, lapse_frac=0.0, advised_frac=1.0):
        tokens = words(tokenizer, demo)
        count = told if len(phrases & set(tokens)) == 2 else untold
        count[0] += sum(action[0] == "close" for action in actions(tokens))
        count[1] += 1
    assert told[0] == 0
    assert told[1] > 20
    assert untold[0] > 50


def test_advice_about_other_things_changes_nothing(tokenizer: Any) -> None:
    others = {rubric.hint for rubric in builtin().rubrics if rubric.id not in CORE_RUBRICS}
    seen = [bool(others & set(words(tokenizer, d))) for d in demos(tokenizer, 300, 0.0, advised_frac=1.0)]
    assert 0.1 < sum(seen) / 300 < 0.35


def test_the_same_recipe_gives_the_same_demonstrations(tokenizer: Any) -> None:
    first, again = (demos(tokenizer, 10, 0.9) for _ in range(2))
    assert [d.token_ids.tolist() for d in first] == [d.token_ids.tolist() for d in again]
    other = demos(tokenizer, 10, 0.9, seed=1)
    assert [d.token_ids.tolist() for d in first] != [d.token_ids.tolist() for d in other]
