"""Qwen3 models small enough to make on the spot, their weights files, and what a plain forward says of a sequence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from stream_rl import fingerprint
from stream_rl.types import FloatArray, WeightsManifest

VOCAB = 320
MAX_LEN = 512


def make(seed: int, *, spread: float = 4.0) -> Any:
    """Random weights, 2 layers of hidden size 128. A `spread` above 1 makes its choices differ clearly."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LEN,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(spread)
    return model


def save(model: Any, folder: Path) -> str:
    """The folder as a user has it: config.json and safetensors."""
    model.save_pretrained(folder)
    return str(folder)


def publish(model: Any, path: Path, *, run_id: str, version: int) -> WeightsManifest:
    """A weights file as the learner writes it, and its manifest."""
    tied = {"lm_head.weight"}
    save_file({name: value.contiguous() for name, value in model.state_dict().items() if name not in tied}, path)
    return fingerprint.manifest_of(path, run_id=run_id, version=version)


def save_adapter(model: Any, path: Path, *, rank: int, scale: float, seed: int) -> Any:
    """A file of random factors for every linear layer but the head; returns a copy of the model with them added."""
    generator = torch.Generator().manual_seed(seed)
    added = copy.deepcopy(model)
    factors: dict[str, torch.Tensor] = {}
    for name, matrix in added.named_parameters():
        if name.endswith("_proj.weight"):
            rows, columns = matrix.shape
            a, b = torch.randn(rank, columns, generator=generator), torch.randn(rows, rank, generator=generator) * 0.1
            matrix.data = (matrix.detach().double() + scale * (b.double() @ a.double())).float()
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            factors |= {f"{layer}.lora_A.weight": a, f"{layer}.lora_B.weight": b}
    save_file(factors, path)
    return added


def logprobs(model: Any, ids: Sequence[int], num_prompt: int, temperature: float) -> FloatArray:
    """Log-probability of every id after the prompt, under softmax(logits / temperature); 0 counts as 1."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, num_prompt - 1 : -1].float()
    table = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
    found = table.gather(1, torch.tensor(ids[num_prompt:])[:, None])[:, 0].numpy()
    return np.asarray(found, dtype=np.float32)


def greedy(model: Any, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What the model says when it always takes the largest logit."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(num_tokens):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]
