"""Reads a language model out of a GGUF file: what a package can carry where no model hub is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from learner import small_models


def read_model(weights: Path) -> Any:
    """The network in bfloat16. The dequantised weights go into a plain model that knows of no quantisation."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    with small_models.no_progress_bars():
        read = AutoModelForCausalLM.from_pretrained(str(weights.parent), gguf_file=weights.name, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.tie_word_embeddings = True
    model = LlamaForCausalLM(config)
    model.load_state_dict(read.state_dict())
    return model.to(torch.bfloat16)
