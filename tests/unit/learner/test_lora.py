"""The policy with adapters, without DeepSpeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from learner.batch import ForwardPass
from learner.lora import add_adapters, name_in_files, size_of
from learner.policy import PolicyModel
from learner.shadow import MovingAverage
from stream_rl.errors import ConfigError
from tests.unit.learner.builders import PlainEngine, save_tiny, tiny_policy

pytest.importorskip("peft", reason="peft is not installed: pip install 'stream-rl[lora]'")
pytestmark = pytest.mark.filterwarnings("default")  # peft's own

CPU = torch.device("cpu")
PASS = ForwardPass(
    token_ids=np.array([[5, 9, 2, 7]]), positions=np.array([0, 1, 2]), targets=np.array([9, 2, 7]),
    num_tokens=4, peak_targets=3,
)  # fmt: skip
# The tiny model's layers, [out, in]: q 32x32, k and v 16x32, o 32x32; gate and up 48x32, down 32x48; two of each.
SIDES = 2 * ((32 + 32) + 2 * (16 + 32) + (32 + 32) + 2 * (48 + 32) + (32 + 48))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("lora") / "model")


def adapted(base: Path, *, seed: int = 0, rank: int = 4) -> PolicyModel:
    policy = tiny_policy()
    add_adapters(policy, rank=rank, alpha=8.0, seed=seed, base=base)
    return policy


def moved(policy: PolicyModel) -> PolicyModel:
    """As after training: no factor is zero."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for _, parameter in policy.trained():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return policy


def scores(policy: PolicyModel) -> torch.Tensor:
    with torch.no_grad():
        return PlainEngine(policy).score(PASS, entropy="none").logprobs


def test_only_factors_of_linear_layers_are_trained(base: Path) -> None:
    policy = adapted(base)
    names = [name for name, _ in policy.trained()]
    assert len(names) == 2 * 7 * 2  # layers, projections, factors
    assert sum(p.numel() for _, p in policy.trained()) == 4 * SIDES
    assert not [name for name in names if "embed" in name or "lm_head" in name]
    assert not any(p.requires_grad for n, p in policy.causal_lm.named_parameters() if "lora" not in n)


def test_adapters_change_nothing_at_first(base: Path) -> None:
    assert torch.equal(scores(adapted(base)), scores(tiny_policy()))


def test_one_seed_makes_the_same_factors_whatever_was_drawn_before(base: Path) -> None:
    first = [p.detach().clone() for _, p in adapted(base).trained()]
    torch.rand(3)
    again = [p.detach() for _, p in adapted(base).trained()]
    other = [p.detach() for _, p in adapted(base, seed=1).trained()]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_random_numbers_of_others_are_left_alone(base: Path) -> None:
    policy = tiny_policy()
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    add_adapters(policy, rank=2, alpha=1.0, seed=0, base=base)
    assert torch.equal(torch.rand(2), wanted)


def test_scores_are_those_of_base_plus_scale_times_b_a(base: Path) -> None:
    policy = moved(adapted(base))
    factors = {name_in_files(name): p.detach().double() for name, p in policy.trained()}
    plain = tiny_policy()
    changed = 0
    for name, matrix in plain.causal_lm.named_parameters():
        layer = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{layer}.lora_A.weight" in factors:
            difference = factors[f"{layer}.lora_B.weight"] @ factors[f"{layer}.lora_A.weight"]
            matrix.data = (matrix.detach().double() + 8 / 4 * difference).float()
            changed += 1
    assert changed == 14
    torch.testing.assert_close(scores(policy), scores(plain), atol=1e-5, rtol=0)
    assert (scores(policy) - scores(tiny_policy())).abs().max() > 0.01


def test_checkpoints_hold_factors_alone(base: Path) -> None:
    """The head is tied to the embedding: its second name must not bring the whole table along."""
    state = adapted(base).state_dict()
    assert len(state) == 28
    assert all(".lora_" in name for name in state)


def test_the_average_follows_the_factors_and_keeps_the_base(base: Path, tmp_path: Path) -> None:
    average = MovingAverage(adapted(base), CPU)
    policy = moved(adapted(base))
    start = [p.detach().clone() for _, p in adapted(base).trained()]
    average.follow((p.detach() for _, p in policy.trained()), decay=0.75)
    average.save(tmp_path / "teacher")
    found = load_file(tmp_path / "teacher")
    assert len(found) == 28
    for (name, parameter), before in zip(policy.trained(), start, strict=True):
        torch.testing.assert_close(found[name], 0.75 * before + 0.25 * parameter.detach())
    average.follow((p.detach() for _, p in policy.trained()), decay=0.0)
    assert torch.equal(average.score(PASS, entropy="none").logprobs, scores(policy))


def test_the_size_is_counted_from_the_configuration(base: Path) -> None:
    size = size_of(base, rank=4)
    assert size.num_layers == 14
    assert size.trained == 4 * SIDES
    assert size.total == sum(p.numel() for p in tiny_policy().causal_lm.parameters())


def test_a_model_that_its_file_names_otherwise_is_refused(tmp_path: Path) -> None:
    policy: Any = tiny_policy()
    other = save_tiny(tmp_path / "model")
    policy.causal_lm.model.renamed = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"learner\.lora_rank: .* its files have no \['model\.renamed\.weight'\]"):
        add_adapters(policy, rank=1, alpha=1.0, seed=0, base=other)
