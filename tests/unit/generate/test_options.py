from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.errors import ConfigError
from stream_rl.generate.options import GeneratorOptions, ModelShape, model_shape
from stream_rl.generate.vllm_engine import cache_bytes

SHAPE = ModelShape(
    vocab_size=320,
    num_hidden_layers=2,
    num_attention_heads=4,
    hidden_size=128,
    num_key_value_heads=2,
    head_dim=32,
)


def test_cache_bytes_per_token() -> None:
    assert SHAPE.cache_bytes_per_token("float32") == 2 * 2 * 2 * 32 * 4  # keys and values, layers, heads, size, bytes
    assert SHAPE.cache_bytes_per_token("bfloat16") == 512


def test_the_cache_holds_every_sequence_at_full_length() -> None:
    def options(concurrency: int, length: int) -> GeneratorOptions:
        return GeneratorOptions(model="m", max_model_len=length, concurrency=concurrency, run_id="r")

    assert cache_bytes(options(256, 512), SHAPE) == 256 * 512 * 1024
    assert cache_bytes(options(1, 64), SHAPE) == 64 << 20  # floor
    assert cache_bytes(options(1024, 1 << 20), SHAPE) == 4 << 30  # ceiling


def test_a_folder_without_a_usable_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: No such file"):
        model_shape(str(tmp_path))
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        model_shape(str(tmp_path))
