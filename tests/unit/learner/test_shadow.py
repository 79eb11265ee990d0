from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.batch import ForwardPass
from learner.checkpoint_state import CheckpointUnusable
from learner.shadow import MovingAverage, Shadow
from tests.unit.learner.builders import PlainEngine, tiny_policy

CPU = torch.device("cpu")
PASS = ForwardPass(
    token_ids=np.array([[5, 9, 2, 7]]), positions=np.array([0, 1, 2]), targets=np.array([9, 2, 7]),
    num_tokens=4, peak_targets=3,
)  # fmt: skip


def filled(value: float, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.full_like(p, value, dtype=dtype) for p in tiny_policy().causal_lm.parameters()]


def average_at(value: float, dtype: torch.dtype = torch.float32) -> MovingAverage:
    policy = tiny_policy()
    policy.causal_lm.to(dtype)
    average = MovingAverage(policy, CPU)
    average.follow(filled(value, dtype), decay=0.0)
    return average


def values(average: MovingAverage, path: Path) -> set[float]:
    from safetensors.torch import load_file

    average.save(path)
    return {round(v, 6) for tensor in load_file(path).values() for v in tensor.flatten().tolist()}


def test_the_average_stays_near_its_old_self(tmp_path: Path) -> None:
    # shadow 1, policy 2, decay 0.9: 0.9 * 1 + 0.1 * 2 = 1.1, then 0.9 * 1.1 + 0.1 * 2 = 1.19
    average = average_at(1.0)
    average.follow(filled(2.0), decay=0.9)
    assert values(average, tmp_path / "once") == {1.1}
    average.follow(filled(2.0), decay=0.9)
    assert values(average, tmp_path / "twice") == {1.19}


def test_a_policy_that_stands_still_is_its_average_to_the_bit() -> None:
    policy = tiny_policy()
    average = MovingAverage(tiny_policy(), CPU)
    before = average.score(PASS, entropy="none").logprobs
    for _ in range(20):
        average.follow((p.detach() for p in policy.causal_lm.parameters()), decay=0.99)
    assert torch.equal(average.score(PASS, entropy="none").logprobs, before)


def test_what_scores_is_the_average() -> None:
    average = MovingAverage(tiny_policy(seed=1), CPU)
    other = tiny_policy(seed=2)
    average.follow((p.detach() for p in other.causal_lm.parameters()), decay=0.0)
    wanted = Shadow(other, CPU).score(PASS, entropy="none").logprobs
    assert torch.equal(average.score(PASS, entropy="none").logprobs, wanted)


def test_half_precision_averages_move(tmp_path: Path) -> None:
    # a hundredth of the way from 1 to the next bfloat16 is nothing in that format; a hundred of them are not
    average = average_at(1.0, torch.bfloat16)
    following = filled(1.0078125, torch.bfloat16)
    for _ in range(100):
        average.follow(following, decay=0.99)
    (found,) = values(average, tmp_path / "a")
    assert found == pytest.approx(1 + 0.0078125 * (1 - 0.99**100), abs=1e-5)
    assert average.score(PASS, entropy="none").logprobs.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_and_restored_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    average = average_at(0.3, dtype)
    moved = [torch.rand(p.shape, generator=generator).to(dtype) for p in filled(0.0)]
    average.follow(moved, decay=0.7)
    average.save(tmp_path / "teacher.safetensors")
    restored = average_at(5.0, dtype)
    restored.load(tmp_path / "teacher.safetensors")
    assert torch.equal(restored.score(PASS, entropy="none").logprobs, average.score(PASS, entropy="none").logprobs)
    for one in (average, restored):
        one.follow(filled(0.1, dtype), decay=0.9)
    average.save(tmp_path / "a")
    restored.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_checkpoint_without_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnusable, match=r"teacher\.safetensors: the teacher's moving average"):
        average_at(1.0).load(tmp_path / "teacher.safetensors")
    (tmp_path / "damaged").write_bytes(b"no tensors")
    with pytest.raises(CheckpointUnusable, match="cannot be read"):
        average_at(1.0).load(tmp_path / "damaged")


def test_a_shadow_scores_as_the_policy_and_has_no_graph() -> None:
    shadow = Shadow(tiny_policy(), CPU)
    scores = shadow.score(PASS, entropy="value", support=3)
    assert not scores.logprobs.requires_grad
    with torch.no_grad():
        wanted = PlainEngine(tiny_policy()).score(PASS, entropy="value", support=3)
    for found, expected in zip(scores, wanted, strict=True):
        assert torch.equal(found, expected)
