"""Small groups, a head renderer without a tokenizer, a tiny model, and a plain torch engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from learner.batch import ForwardPass
from learner.logprobs import EntropyMode, TokenScores
from learner.policy import PolicyModel, run_forward
from stream_rl.messages import SelectedGroup
from stream_rl.types import Message, Sample, Task, Trajectory, Turn, VersionSpan

VOCAB = 64
HEAD = (Message(role="user", content="abc"),)


class WordRenderer:
    """One id a character, as if each message were its text and a closing id."""

    def head(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        return [i for m in messages for i in [*(1 + ord(c) % 50 for c in m.content), 60]]


HEAD_IDS = WordRenderer().head(HEAD)


def sample(tokens: Sequence[tuple[int, bool]], logprob: float = -1.5) -> Sample:
    """The head, then (id, sampled) pairs."""
    mask = np.array([False] * len(HEAD_IDS) + [m for _, m in tokens])
    return Sample(
        token_ids=np.array(HEAD_IDS + [i for i, _ in tokens], dtype=np.int32),
        loss_mask=mask,
        behavior_logprobs=np.where(mask, np.float32(logprob), np.float32(0)).astype(np.float32),
        head=HEAD,
        head_tokens=len(HEAD_IDS),
    )


def trajectory(
    group: str,
    member: int,
    reward: float,
    *,
    turns: int = 3,
    version: int = 0,
    error: str | None = None,
    invalid_turns: Sequence[int] = (),
    seed: int = 0,
) -> Trajectory:
    """Turns of 2 sampled tokens, each followed by 3 observed ones."""
    rng = np.random.default_rng([seed, member, *group.encode()])
    tokens: list[tuple[int, bool]] = []
    made: list[Turn] = []
    for number in range(turns):
        start = len(HEAD_IDS) + len(tokens)
        tokens += [(int(i), k < 2) for k, i in enumerate(rng.integers(1, 60, size=5))]
        made.append(
            Turn(
                sample=0,
                start=start,
                stop=start + 2,
                spans=(VersionSpan(version=version, num_tokens=2),),
                action="go",
                observation="ok",
                valid=number not in invalid_turns,
                cut=False,
                reward=0.0,
                generate_s=0.0,
                environment_s=0.0,
            )
        )
    return Trajectory(
        id=f"{group}/{member}",
        group_id=group,
        member=member,
        task=Task(environment="household", split="train", index=0),
        samples=() if error else (sample(tokens, logprob=-3.0 - 0.3 * member),),
        turns=() if error else tuple(made),
        reward=reward,
        success=reward > 0,
        score=reward,
        error=error,
    )


def group(
    name: str, rewards: Sequence[float], *, update: int = 0, hint: str | None = None, version: int = 0, turns: int = 3
) -> SelectedGroup:
    """One trajectory a reward; lengths differ from member to member."""
    return SelectedGroup(
        update=update,
        group_id=name,
        trajectories=tuple(trajectory(name, i, r, turns=turns + i % 3, version=version) for i, r in enumerate(rewards)),
        hint=hint,
    )


def tiny_policy(*, seed: int = 0, temperature: float = 1.0, chunk_elements: int = 1 << 22) -> PolicyModel:
    """A random Qwen3 of 2 layers with tied embeddings."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=0,
        initializer_range=0.2,
    )
    config._attn_implementation = "sdpa"
    return PolicyModel(Qwen3ForCausalLM(config).float(), temperature=temperature, chunk_elements=chunk_elements).eval()


def save_tiny(folder: Path, *, seed: int = 0) -> Path:
    """The tiny model as a Hugging Face folder, with a file that stands for a tokenizer's."""
    tiny_policy(seed=seed).causal_lm.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text("template")
    return folder


class PlainEngine:
    """`learner.ports.Engine` in plain torch, one process."""

    rank = 0
    num_ranks = 1
    device = torch.device("cpu")

    def __init__(self, policy: PolicyModel, *, lr: float = 1e-3, grad_clip: float = 1.0) -> None:
        self.policy = policy
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01)
        self.grad_clip = grad_clip
        self.passes: list[bool] = []  # whether each forward pass had gradients on
        self.gradients: list[Tensor] = []  # the embedding's, before each step

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def score(self, forward: ForwardPass, *, entropy: EntropyMode, support: int | Tensor = 0) -> TokenScores:
        self.passes.append(torch.is_grad_enabled())
        return run_forward(self.policy, forward, self.device, entropy=entropy, support=support)

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> float:
        gradient = self.policy.causal_lm.get_input_embeddings().weight.grad
        self.gradients.append(gradient.detach().clone())
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)
