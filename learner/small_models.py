"""Small models of well-known architectures, made from nothing: the embedded policy's and those of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

MAX_POSITIONS = 1024  # tokens; several times the longest household episode


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a decoder with tied embeddings and grouped-query attention."""

    layers: int  # decoder blocks
    hidden: int  # width of the residual stream
    heads: int  # query heads
    kv_heads: int  # key and value heads
    head_dim: int  # width of one head
    mlp: int  # inner width of the gated MLP


SHAPES = {
    "embedded": ModelShape(layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, mlp=384),  # 0.4 M parameters
    "embedded-large": ModelShape(layers=4, hidden=256, heads=8, kv_heads=4, head_dim=32, mlp=704),  # 3.0 M
    "tiny": ModelShape(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, mlp=128),  # 0.1 M
}


def qwen3(shape: ModelShape, *, vocab_size: int, pad_token_id: int, eos_token_id: int, seed: int) -> Any:
    """A float32 `Qwen3ForCausalLM` with random weights drawn from `seed`; the global generator is left as it was."""
    from transformers import Qwen3Config, Qwen3ForCausalLM  # heavy: seconds

    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        pad_token_id=pad_token_id,
        eos_token_id=eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).float()


def llama(shape: ModelShape, *, vocab_size: int, pad_token_id: int | None, eos_token_id: int, seed: int) -> Any:
    """As `qwen3`, a `LlamaForCausalLM`: the architecture of SmolLM2."""
    from transformers import LlamaConfig, LlamaForCausalLM  # heavy: seconds

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=8 * MAX_POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=pad_token_id,
        bos_token_id=None,
        eos_token_id=eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float()


def save(model: Any, folder: Path) -> None:
    """Write `config.json` and safetensors to `folder`."""
    with no_progress_bars():
        model.save_pretrained(str(folder))


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers' bars off the terminal, which belongs to the caller's."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def num_parameters(model: Any) -> int:
    """Trainable numbers; tied weights count once."""
    return sum(p.numel() for p in model.parameters())
