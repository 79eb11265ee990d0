from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from learner.imitation import Demonstration, ImitationRecipe, imitate, learning_rate_factor, pad, weighted_loss
from learner.small_models import SHAPES, num_parameters, qwen3


def demo(ids: list[int], weights: list[float]) -> Demonstration:
    return Demonstration(token_ids=np.array(ids, np.int32), weights=np.array(weights, np.float32))


def tiny(seed: int = 0) -> torch.nn.Module:
    model = qwen3(SHAPES["tiny"], vocab_size=64, pad_token_id=0, eos_token_id=1, seed=seed)
    assert isinstance(model, torch.nn.Module)
    return model


def alternating(_: float) -> Demonstration:
    return demo([5, 6] * 6, [0.0] + [1.0] * 11)


def test_the_loss_by_hand() -> None:
    # Uniform over 4 tokens: ln 4 each; the first token cannot be predicted, the third has weight 0.2.
    loss = weighted_loss(torch.zeros(1, 3, 4), torch.tensor([[3, 1, 2]]), torch.tensor([[9.0, 1.0, 0.2]]))
    assert loss.item() == pytest.approx(1.2 * math.log(4))


def test_padding_is_on_the_right_and_weighs_nothing() -> None:
    ids, weights = pad([demo([7], [1.0]), demo([4, 5, 6], [0.0, 1.0, 0.5])])
    assert ids.tolist() == [[7, 0, 0], [4, 5, 6]]
    assert weights.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]


def test_padding_does_not_change_the_loss_of_a_row() -> None:
    model = tiny()
    short, long = demo([3, 4, 5], [0.0, 1.0, 1.0]), demo(list(range(2, 12)), [1.0] * 10)

    def loss(*demos: Demonstration) -> float:
        ids, weights = pad(demos)
        return weighted_loss(model(input_ids=ids, use_cache=False).logits, ids, weights).item()

    assert loss(short, long) == pytest.approx(loss(short) + loss(long), rel=1e-5)


def test_the_rate_warms_up_stays_and_falls() -> None:
    recipe = ImitationRecipe(steps=100, warmup_steps=10, decay_frac=0.5, final_rate=0.02)
    assert learning_rate_factor(0, recipe) == pytest.approx(0.1)
    assert learning_rate_factor(9, recipe) == 1.0
    assert learning_rate_factor(50, recipe) == 1.0
    assert learning_rate_factor(75, recipe) == pytest.approx(0.5)
    assert learning_rate_factor(99, recipe) == pytest.approx(0.02)


def test_a_rule_is_learnt_and_progress_told() -> None:
    model = tiny()
    told: list[tuple[int, int, float]] = []
    recipe = ImitationRecipe(steps=40, tokens_per_step=48, warmup_steps=2, threads=1)
    final = imitate(model, alternating, recipe, lambda step, total, loss: told.append((step, total, loss)))
    assert [step for step, _, _ in told] == list(range(1, 41))
    assert {total for _, total, _ in told} == {40}
    assert told[0][2] > 3.0  # ln 64 = 4.2 for a network that knows nothing
    assert final < 0.05
    assert final == pytest.approx(np.mean([loss for _, _, loss in told[-4:]]))
    assert model(input_ids=torch.tensor([[5, 6, 5]])).logits[0, -1].argmax() == 6


def test_the_same_recipe_gives_the_same_weights() -> None:
    recipe = ImitationRecipe(steps=5, tokens_per_step=30, threads=1)
    models = [tiny(), tiny()]
    for model in models:
        torch.rand(3)  # the global generator has no say
        imitate(model, alternating, recipe, lambda *_: None)
    for a, b in zip(*(m.state_dict().values() for m in models), strict=True):
        assert torch.equal(a, b)


def test_the_source_is_told_how_far_imitation_is() -> None:
    asked: list[float] = []

    def source(done_frac: float) -> Demonstration:
        asked.append(done_frac)
        return alternating(done_frac)

    imitate(tiny(), source, ImitationRecipe(steps=4, tokens_per_step=12, threads=1), lambda *_: None)
    assert asked == [0.0, 0.25, 0.5, 0.75]


def test_the_number_of_threads_is_given_back() -> None:
    before = torch.get_num_threads()
    imitate(tiny(), alternating, ImitationRecipe(steps=1, tokens_per_step=12, threads=before + 1), lambda *_: None)
    assert torch.get_num_threads() == before


def test_a_loss_that_is_not_a_number_is_an_error() -> None:
    broken = tiny()
    with torch.no_grad():
        next(broken.parameters()).fill_(math.nan)
    with pytest.raises(FloatingPointError, match="loss is nan at step 0 of 3"):
        imitate(broken, alternating, ImitationRecipe(steps=3, tokens_per_step=12, threads=1), lambda *_: None)


def test_the_first_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = tiny(seed=3)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(next(first.parameters()), next(tiny(seed=3).parameters()))
    assert not torch.equal(next(first.parameters()), next(tiny(seed=4).parameters()))


@pytest.mark.parametrize(("name", "low", "high"), [("embedded", 0.4e6, 0.5e6), ("embedded-large", 2e6, 4e6)])
def test_presets_have_the_size_they_claim(name: str, low: float, high: float) -> None:
    model = qwen3(SHAPES[name], vocab_size=256, pad_token_id=0, eos_token_id=1, seed=0)
    assert low < num_parameters(model) < high
