"""SmolLM2's package really converted: seconds of work, so no unit test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_rl.app import smollm2
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.errors import ConfigError


def test_tiny_smollm2_is_a_llama_with_smollm2s_tokenizer(tmp_path: Path) -> None:
    try:
        smollm2.gguf_file()
    except ConfigError as error:
        pytest.skip(str(error))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from stream_rl.renderer import Renderer

    folder = ensure_policy("smollm2", "random-tiny", tmp_path, lambda what, done, total: None)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "llama"
    assert model.config.vocab_size == len(tokenizer) == 49152
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.config.eos_token_id == tokenizer.eos_token_id
    Renderer(tokenizer).check_prefix()
