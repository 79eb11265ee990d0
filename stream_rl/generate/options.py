"""What every generator engine is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.types import Transport

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class GeneratorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One generator: the start policy and its limits."""

    model: str  # folder with config.json and safetensors weights
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # weights, activations and cache
    max_model_len: int  # prompt and sampled tokens together
    concurrency: int  # sequences sampled at once; further requests wait
    threads: int = 1  # CPU threads that compute; on a GPU it has no effect
    seed: int = 0  # of the engine's own stream, for requests without a seed
    run_id: str  # weights of another run are refused
    version: int = 0  # policy version the folder holds
    transport: Transport = "files"  # how the engine itself gets new weights; a pulled file is a file to it
    update_deadline_s: float = 120.0  # a weight update that takes longer has failed
    call_deadline_s: float = 20.0  # of each short call of one: pause, probe, resume


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a model's config.json that sizes requests and caches."""

    vocab_size: int
    num_hidden_layers: int
    num_attention_heads: int
    hidden_size: int
    num_key_value_heads: int | None = None  # None: as many as attention heads
    head_dim: int | None = None  # None: hidden size over attention heads

    def cache_bytes_per_token(self, dtype: str) -> int:
        """Bytes of keys and values of one token in all layers.

        >>> shape = ModelShape(vocab_size=9, num_hidden_layers=2, num_attention_heads=4, hidden_size=128)
        >>> shape.cache_bytes_per_token("float32")  # 2 layers, keys and values, 4 heads of 32 numbers, 4 bytes
        2048
        """
        heads = self.num_key_value_heads or self.num_attention_heads
        head_dim = self.head_dim or self.hidden_size // self.num_attention_heads
        return 2 * self.num_hidden_layers * heads * head_dim * DTYPE_BYTES[dtype]


def model_shape(model: str) -> ModelShape:
    """Read config.json of a model folder; `ConfigError` if it is missing or lacks what a generator needs."""
    path = Path(model) / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelShape)
    except OSError as error:
        raise ConfigError(
            "policy.model", f"{path}: {error.strerror or error}; expected the folder of a Hugging Face model"
        ) from error
    except msgspec.DecodeError as error:
        raise ConfigError("policy.model", f"{path} does not describe a causal language model: {error}") from error
