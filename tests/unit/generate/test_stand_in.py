from __future__ import annotations

import math
import statistics
from pathlib import Path

import anyio
import numpy as np
import pytest

from stream_rl.errors import ConfigError
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.stand_in import stand_in
from stream_rl.ports import GenerateRequest

VOCABULARY = 50


@pytest.fixture
def options(tmp_path: Path) -> GeneratorOptions:
    (tmp_path / "config.json").write_text(
        f'{{"vocab_size": {VOCABULARY}, "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}}'
    )
    return GeneratorOptions(model=str(tmp_path), max_model_len=64, concurrency=8, run_id="r")


def request(max_tokens: int) -> GenerateRequest:
    ids = np.asarray([1, 2], dtype=np.int32)
    return GenerateRequest(prompt_ids=ids, max_tokens=max_tokens, temperature=1.0, stop_token_ids=(0,))


async def test_every_token_is_equally_likely_and_says_so(options: GeneratorOptions) -> None:
    generator = stand_in(options, turn_s=0.0, spread=0.0)
    counts = np.zeros(VOCABULARY, dtype=int)
    for _ in range(200):
        result = await generator.generate(request(40))
        counts += np.bincount(result.token_ids, minlength=VOCABULARY)
        assert result.logprobs == pytest.approx(np.full(len(result.token_ids), -math.log(VOCABULARY)))
        assert result.cut == (result.token_ids[-1] != 0)
    share = counts / counts.sum()
    assert abs(share - 1 / VOCABULARY).max() < 0.01


async def test_a_turn_takes_its_time_around_the_median(
    options: GeneratorOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-normal: half of the turns take less than the median, 16 % more than e to the spread times it."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    generator = stand_in(options, turn_s=0.1, spread=0.5)
    for _ in range(2000):
        await generator.generate(request(1))
    turns = [seconds for seconds in slept if seconds]
    assert statistics.median(turns) == pytest.approx(0.1, rel=0.05)
    assert sum(s > 0.1 * math.exp(0.5) for s in turns) / len(turns) == pytest.approx(0.16, abs=0.03)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.model"):
        stand_in(
            GeneratorOptions(model=str(tmp_path), max_model_len=8, concurrency=1, run_id="r"), turn_s=0.1, spread=0
        )
