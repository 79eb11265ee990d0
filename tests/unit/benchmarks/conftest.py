from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from learner import small_models
from stream_rl.app.embedded_tokenizer import build, model_vocabulary_size, save
from stream_rl.rubrics.vocabulary import builtin


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the benchmark runs: threads of tiny operations wait for each other more than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random policy whose weights are large enough that positions and heads matter."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = build(builtin())
    save(tokenizer, folder)
    model: Any = small_models.qwen3(
        small_models.SHAPES["tiny"],
        vocab_size=model_vocabulary_size(tokenizer),
        pad_token_id=0,
        eos_token_id=int(tokenizer.eos_token_id or 0),
        seed=3,
    )
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    small_models.save(model, folder)
    return folder
