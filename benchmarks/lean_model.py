"""A small Qwen3 in plain torch: what one core can do without a framework. Float32, tied embeddings, no padding mask.

Axes: B, rows; T, positions; W, width of a chunk; H, hidden; D, head width; V, vocabulary.
Architecture: Qwen3 technical report, arXiv:2505.09388; rotary embeddings with halves rotated, as Hugging Face has it.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

MASKED = -1e9
GROW = 64  # positions by which a cache grows


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the model."""

    vocab: int  # rows of the embedding
    hidden: int  # width of the residual stream
    layers: int  # decoder blocks
    heads: int  # query heads
    kv_heads: int  # key and value heads
    head_dim: int  # width of one head
    max_positions: int  # longest sequence
    rope_theta: float  # base of the rotary frequencies
    eps: float  # of the RMS norms

    @property
    def repeats(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.kv_heads


class Block(nn.Module):
    """One decoder block; projections that read the same input are one matrix."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.shape = shape
        self.eps = shape.eps
        attention = [weights[f"self_attn.{name}_proj.weight"] for name in "qkv"]
        self.qkv = nn.Parameter(torch.cat(attention))
        self.out = nn.Parameter(weights["self_attn.o_proj.weight"])
        self.q_norm = nn.Parameter(weights["self_attn.q_norm.weight"])
        self.k_norm = nn.Parameter(weights["self_attn.k_norm.weight"])
        self.gate_up = nn.Parameter(torch.cat([weights["mlp.gate_proj.weight"], weights["mlp.up_proj.weight"]]))
        self.down = nn.Parameter(weights["mlp.down_proj.weight"])
        self.norm_in = nn.Parameter(weights["input_layernorm.weight"])
        self.norm_mid = nn.Parameter(weights["post_attention_layernorm.weight"])

    def attention_inputs(self, x_BTH: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, heads, T, D], keys and values [B, kv_heads, T, D]; angles broadcast to [B, T, 1, D/2]."""
        s = self.shape
        rows, width, _ = x_BTH.shape
        joint = F.linear(_norm(x_BTH, self.norm_in, s.eps), self.qkv)
        joint = joint.view(rows, width, s.heads + 2 * s.kv_heads, s.head_dim)
        queries = _norm(joint[:, :, : s.heads], self.q_norm, s.eps)
        keys = _norm(joint[:, :, s.heads : s.heads + s.kv_heads], self.k_norm, s.eps)
        first, second = torch.cat([queries, keys], dim=2).chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        values = joint[:, :, s.heads + s.kv_heads :]
        return turned[:, :, : s.heads].transpose(1, 2), turned[:, :, s.heads :].transpose(1, 2), values.transpose(1, 2)

    def after_attention(self, x_BTH: Tensor, attended: Tensor) -> Tensor:
        """Output projection and gated MLP; `attended` is [B, heads, T, D]."""
        rows, width, _ = x_BTH.shape
        x_BTH = x_BTH + F.linear(attended.transpose(1, 2).reshape(rows, width, -1), self.out)
        gate, up = F.linear(_norm(x_BTH, self.norm_mid, self.eps), self.gate_up).chunk(2, dim=-1)
        return x_BTH + F.linear(F.silu(gate) * up, self.down)


class LeanQwen3(nn.Module):
    """Reads the folder of a Hugging Face `Qwen3ForCausalLM` with tied embeddings."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(weights["model.embed_tokens.weight"])
        self.norm = nn.Parameter(weights["model.norm.weight"])
        self.blocks = [
            Block(shape, {k.removeprefix(p): v for k, v in weights.items() if k.startswith(p)})
            for p in (f"model.layers.{i}." for i in range(shape.layers))
        ]
        self.layers = nn.ModuleList(self.blocks)  # registers their parameters
        exponents = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        angles = torch.outer(torch.arange(shape.max_positions).float(), shape.rope_theta**-exponents)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @classmethod
    def load(cls, folder: Path) -> LeanQwen3:
        """The model saved in `folder`. Raises `ValueError` for another architecture."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != "qwen3" or not config["tie_word_embeddings"]:
            raise ValueError(f"{folder} holds a {config['model_type']}; a Qwen3 with tied embeddings is needed")
        rope = config.get("rope_parameters") or config
        shape = Shape(
            vocab=config["vocab_size"],
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            max_positions=config["max_position_embeddings"],
            rope_theta=rope["rope_theta"],
            eps=config["rms_norm_eps"],
        )
        weights = load_file(folder / "model.safetensors")
        return cls(shape, {name: tensor.float() for name, tensor in weights.items()})

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Right-padded ids [B, T] -> hidden states [B, T, H]. Attention is causal, so the padding is never seen."""
        width = ids_BT.shape[1]
        cos, sin = self.cos[:width, None], self.sin[:width, None]
        x = F.embedding(ids_BT, self.embedding)
        repeats = self.shape.repeats
        for block in self.blocks:
            queries, keys, values = block.attention_inputs(x, cos, sin)
            keys, values = (t.repeat_interleave(repeats, dim=1) for t in (keys, values))
            x = block.after_attention(x, F.scaled_dot_product_attention(queries, keys, values, is_causal=True))
        return _norm(x, self.norm, self.shape.eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., V]."""
        return F.linear(hidden, self.embedding)


class Cache:
    """Keys and values of `num_rows` growing sequences of unequal length."""

    def __init__(self, model: LeanQwen3, num_rows: int) -> None:
        self._model = model
        s = model.shape
        self._keys_values = torch.zeros(2, s.layers, num_rows, s.kv_heads, 0, s.head_dim)
        self._lengths = torch.zeros(num_rows, dtype=torch.long)

    @torch.no_grad()
    def feed(self, ids_BW: Tensor, counts_B: Tensor) -> Tensor:
        """Append the first `counts` ids of each row (0 appends none); logits [B, V] after its last one.

        The logits of a row that got none mean nothing.
        """
        model, s = self._model, self._model.shape
        rows, width = ids_BW.shape
        positions = self._lengths[:, None] + torch.arange(width)
        seen = int(positions.max()) + 1
        self._reserve(seen)
        cos, sin = model.cos[positions][:, :, None], model.sin[positions][:, :, None]
        # What lies behind a row's own position is of ids not appended, and is masked until it is overwritten.
        hidden_keys = torch.arange(seen) > positions[:, :, None]
        # Query heads of one key head are stacked along the width, so keys need no copy.
        mask = torch.zeros(hidden_keys.shape).masked_fill_(hidden_keys, MASKED)[:, None].repeat(1, 1, s.repeats, 1)
        row = torch.arange(rows)[:, None].expand(rows, width)
        x = F.embedding(ids_BW, model.embedding)
        for layer, block in enumerate(model.blocks):
            queries, keys, values = block.attention_inputs(x, cos, sin)
            cached_keys, cached_values = self._keys_values[0, layer], self._keys_values[1, layer]
            cached_keys[row, :, positions] = keys.transpose(1, 2)
            cached_values[row, :, positions] = values.transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                queries.reshape(rows, s.kv_heads, s.repeats * width, s.head_dim),
                cached_keys[:, :, :seen],
                cached_values[:, :, :seen],
                attn_mask=mask,
            )
            x = block.after_attention(x, attended.reshape(rows, s.heads, width, s.head_dim))
        self._lengths = self._lengths + counts_B
        last = x[torch.arange(rows), (counts_B - 1).clamp(min=0)]
        return model.logits(_norm(last, model.norm, s.eps))

    def keep(self, rows: list[int]) -> None:
        """Forget all other rows."""
        index = torch.tensor(rows)
        self._keys_values = self._keys_values[:, :, index]
        self._lengths = self._lengths[index]

    def _reserve(self, positions: int) -> None:
        have = self._keys_values.shape[4]
        if positions > self._model.shape.max_positions:
            raise ValueError(f"{positions} positions are more than the model's {self._model.shape.max_positions}")
        if positions > have:
            self._keys_values = F.pad(self._keys_values, (0, 0, 0, -(-(positions - have) // GROW) * GROW))


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)
