"""Ours against TRL, called without a model: its trainer's methods get a stand-in that holds the log-probabilities.

Axes: B, sequences; T, tokens, right-padded. G = 3 sequences to a group.
"""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.advantages import dr_grpo, grpo
from learner.correction import correct
from learner.losses import policy_loss, reference_kl
from stream_rl.config import Algorithm
from stream_rl.config.algorithm import Correction

B, T, G = 6, 7, 3
NAN = float("nan")
SEEDS = range(4)


@pytest.fixture(scope="module")
def grpo_trainer() -> Iterator[Any]:
    """The class; vLLM, which its module would load if it could, has no part in these formulas."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for package in ("trl", "accelerate", "datasets", "pandas"):
            pytest.importorskip(package, reason=f"{package} is not installed: nothing to compare with")
        patch.setattr(importlib.import_module("trl.import_utils"), "is_vllm_available", lambda min_version=None: False)
        yield importlib.import_module("trl.trainer.grpo_trainer").GRPOTrainer


class Batch(NamedTuple):
    """Random sequences; [B, T] float64, but for the advantages, [B], and the lengths, [B]."""

    policy: Tensor
    anchor: Tensor
    behavior: Tensor
    reference: Tensor
    advantages: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        return torch.arange(T) < self.lengths[:, None]

    def flat(self, values: Tensor) -> Tensor:
        """Our layout, with NaN where TRL pads."""
        return torch.where(self.mask, values.expand(B, T), NAN).flatten()


def random_batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        # TRL holds the sampler's values in float32; what float32 cannot hold would differ on its side alone
        return torch.randn(shape, generator=generator).double()

    base = -normal(B, T).abs() - 1
    policy, anchor, behavior, reference = ((base + 0.4 * normal(B, T)).float().double() for _ in range(4))
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    return Batch(policy, anchor, behavior, reference, normal(B), lengths)


def stand_in(policy: Tensor, **changes: object) -> SimpleNamespace:
    """What the two methods read of a trainer, in the state of one process that steps once for each batch."""
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        num_processes=1,
        process_index=0,
        sync_gradients=True,
        gather=lambda x: x,
        reduce=lambda x, reduction: x,
    )
    args = SimpleNamespace(
        delta=None,
        use_bias_correction_kl=False,
        steps_per_generation=1,
        gradient_accumulation_steps=1,
        gradient_checkpointing_kwargs=None,
        per_device_train_batch_size=B,
    )
    state: dict[str, object] = {
        "accelerator": accelerator,
        "args": args,
        "model": SimpleNamespace(training=True, is_gradient_checkpointing=False),
        "_get_per_token_logps_and_entropies": lambda *args, **kwargs: (policy, torch.zeros_like(policy), None),
        "_metrics": {"train": defaultdict(list)},
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "loss_type": "dapo",
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "beta": 0.0,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": T,
        "_entropy_bonus_enabled": False,
    }
    return SimpleNamespace(**(state | changes))


def their_loss(
    trainer: Any, batch: Batch, *, delta: float | None = None, weights: Tensor | None = None, **changes: object
) -> tuple[float, Tensor]:
    """Loss and its gradient, [B, T]."""
    policy = batch.policy.clone().requires_grad_()
    self = stand_in(policy, **changes)
    self.args.delta = delta
    if weights is not None:
        self.use_vllm = self.vllm_importance_sampling_correction = True
    ids = torch.zeros(B, T, dtype=torch.int64)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": ids,
        "completion_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_per_token_logps": batch.anchor,
        "ref_per_token_logps": batch.reference,
        "importance_sampling_ratio": weights,
        "num_items_in_batch": batch.mask.sum(),
    }
    loss = trainer._compute_loss(self, None, inputs)
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient


def our_loss(
    batch: Batch, algorithm: Algorithm, weights: Tensor, *, divisor: float = 1.0, kl_coef: float = 0.0
) -> tuple[float, Tensor]:
    """Loss and its gradient, [B, T]; `weights` [B, T]."""
    policy = batch.flat(batch.policy).requires_grad_()
    mask = batch.mask.flatten()
    loss = policy_loss(
        policy,
        batch.flat(batch.anchor),
        batch.flat(batch.advantages[:, None]),
        batch.flat(weights),
        mask,
        torch.arange(B).repeat_interleave(T),
        algorithm,
    ).loss
    loss = (loss + kl_coef * reference_kl(policy, batch.flat(batch.reference), mask)) / divisor
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss.detach()), gradient.view(B, T)


def assert_same(ours: tuple[float, Tensor], theirs: tuple[float, Tensor]) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=1e-6, rel=1e-6)
    torch.testing.assert_close(ours[1], theirs[1], atol=1e-6, rtol=1e-6)
    assert theirs[1].count_nonzero() > 0


ONES = torch.ones(B, T, dtype=torch.float64)
UNBOUNDED = 1e9  # as good as no dual clip: TRL has it only if `delta` is set


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.28), (0.1, 0.5)])
def test_clip_over_the_tokens_of_the_batch(grpo_trainer: Any, seed: int, low: float, high: float) -> None:
    batch = random_batch(seed)
    algorithm = Algorithm(clip_low=low, clip_high=high, dual_clip=UNBOUNDED)
    ours = our_loss(batch, algorithm, ONES, divisor=int(batch.mask.sum()))
    assert_same(ours, their_loss(grpo_trainer, batch, epsilon_low=low, epsilon_high=high))


@pytest.mark.parametrize("seed", SEEDS)
def test_dual_clip_is_their_delta(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    ours = our_loss(batch, Algorithm(dual_clip=1.4), ONES, divisor=int(batch.mask.sum()))
    assert_same(ours, their_loss(grpo_trainer, batch, delta=1.4))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mean_of_sequence_means_is_a_choice_of_weights(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    ours = our_loss(batch, Algorithm(dual_clip=UNBOUNDED), ONES / batch.lengths[:, None] / B)
    assert_same(ours, their_loss(grpo_trainer, batch, loss_type="grpo"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_constant_divisor_is_dr_grpo(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    ours = our_loss(batch, Algorithm(dual_clip=UNBOUNDED), ONES, divisor=B * T)
    assert_same(ours, their_loss(grpo_trainer, batch, loss_type="dr_grpo"))


@pytest.mark.parametrize("seed", SEEDS)
def test_cispo(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    ours = our_loss(batch, Algorithm(loss="cispo", cispo_cap=1.3), ONES, divisor=int(batch.mask.sum()))
    assert_same(ours, their_loss(grpo_trainer, batch, loss_type="cispo", epsilon_high=1.3))


@pytest.mark.parametrize("seed", SEEDS)
def test_gspo(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    algorithm = Algorithm(loss="gspo", gspo_low=0.1, gspo_high=0.15)
    ours = our_loss(batch, algorithm, ONES / batch.lengths[:, None] / B)
    theirs = their_loss(
        grpo_trainer, batch, loss_type="grpo", importance_sampling_level="sequence", epsilon_low=0.1, epsilon_high=0.15
    )
    assert_same(ours, theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_k3_of_the_reference(grpo_trainer: Any, seed: int) -> None:
    batch = random_batch(seed)
    ours = our_loss(batch, Algorithm(dual_clip=UNBOUNDED), ONES, divisor=int(batch.mask.sum()), kl_coef=0.3)
    assert_same(ours, their_loss(grpo_trainer, batch, beta=0.3))


def their_scores(
    trainer: Any, batch: Batch, rewards: Sequence[float], *, mode: str = "token_truncate", **changes: object
) -> dict[str, Tensor]:
    """Advantages, [B], and importance weights, [B, T] or [B, 1]; the anchor is the policy that is trained."""
    sampled = [row[:length].tolist() for row, length in zip(batch.behavior, batch.lengths, strict=True)]
    tokens = [[1] * len(row) for row in sampled]
    longest = int(batch.lengths.max())  # TRL pads to the longest sequence
    logs: dict[str, object] = {"rewards": defaultdict(list), "extra": defaultdict(list)}
    self = stand_in(
        batch.anchor[:, :longest],
        **{
            "use_vllm": True,
            "vllm_importance_sampling_correction": True,
            "vllm_importance_sampling_mode": mode,
            "vllm_importance_sampling_clip_min": None,
            "vllm_importance_sampling_clip_max": 5.0,
            "environment_factories": None,
            "environments": None,
            "tools": None,
            "_generate": lambda prompts: ([[1]] * B, tokens, None, [""] * B, sampled, {}, None, None),
            "_tokenizer": SimpleNamespace(pad_token_id=0),
            "pad_to_multiple_of": None,
            "mask_truncated_completions": False,
            "num_iterations": 1,
            "num_generations": G,
            "_calculate_rewards": lambda *args: torch.tensor(rewards, dtype=torch.float64)[:, None],
            "reward_weights": torch.ones(1, dtype=torch.float64),
            "reward_func_names": ["reward"],
            "multi_objective_aggregation": "sum_then_normalize",
            "scale_rewards": "group",
            "_logs": defaultdict(list, logs),
            "_pending_extra_logs": {},
            "_pending_metrics": {},
            "log_multimodal": False,
        }
        | changes,
    )
    scores: dict[str, Tensor] = trainer._generate_and_score_completions(self, [{"prompt": ""} for _ in range(B)])
    return scores


@pytest.mark.parametrize(
    "rewards",
    [
        [1.0, 0.0, 0.0, 1.0, 1.0, 0.0],
        [0.2, -1.5, 7.0, 0.0, 0.0, 0.0],  # the second group has no spread
        [1.0, NAN, 0.0, 0.5, 2.0, 4.0],  # one member has no reward, and is in no statistic
        [NAN, NAN, 3.0, 0.5, 2.0, 4.0],  # one member alone
    ],
)
def test_advantages(grpo_trainer: Any, rewards: list[float]) -> None:
    batch = random_batch(0)
    theirs = their_scores(grpo_trainer, batch, rewards)["advantages"].numpy()
    centred = their_scores(grpo_trainer, batch, rewards, scale_rewards="none")["advantages"].numpy()
    for start in range(0, B, G):
        group = np.array(rewards[start : start + G])
        valid = ~np.isnan(group)
        spread = group[valid].std(ddof=1) if valid.sum() > 1 else 0.0
        # TRL adds 1e-4 to the spread where the formula as published, and ours, has 1e-6
        expected = theirs[start : start + G] * (spread + 1e-4) / (spread + 1e-6)
        np.testing.assert_allclose(grpo(group.tolist(), valid.tolist()), expected, atol=1e-6)
        np.testing.assert_allclose(dr_grpo(group.tolist(), valid.tolist()), centred[start : start + G], atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("mode", "low", "high", "method", "limits"),
    [
        ("token_truncate", None, 1.3, "tis_token", (1.3,)),
        ("token_truncate", None, 5.0, "decoupled", (5.0,)),
        ("sequence_truncate", None, 1.3, "tis_sequence", (1.3,)),
        ("token_mask", 0.7, 1.3, "icepop", (0.7, 1.3)),
        ("sequence_mask", 0.1, 10.0, "mis_sequence", (0.1, 10.0)),
    ],
)
def test_importance_weights(
    grpo_trainer: Any,
    seed: int,
    mode: str,
    low: float | None,
    high: float,
    method: Correction,
    limits: tuple[float, ...],
) -> None:
    batch = random_batch(seed)
    scores = their_scores(
        grpo_trainer,
        batch,
        [1.0, 0.0, 0.0] * 2,
        mode=mode,
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=high,
    )
    theirs = scores["importance_sampling_ratio"]
    algorithm = Algorithm(correction=method, correction_limits=limits, dual_clip=UNBOUNDED)
    found = correct(
        batch.flat(batch.anchor),
        batch.flat(batch.behavior),
        batch.flat(batch.advantages[:, None]),
        batch.mask.flatten(),
        torch.arange(B).repeat_interleave(T),
        algorithm,
    )
    ours = found.weights_T.view(B, T)
    longest = int(batch.lengths.max())
    expected = torch.zeros(B, T, dtype=torch.float64)
    expected[:, :longest] = torch.where(batch.mask[:, :longest], theirs.expand(B, longest), 0.0)
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-6)
    weighted = our_loss(batch, algorithm, ours, divisor=int(batch.mask.sum()))
    assert_same(weighted, their_loss(grpo_trainer, batch, weights=expected))
