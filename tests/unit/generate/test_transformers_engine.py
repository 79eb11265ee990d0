from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest
import pytest_asyncio

from stream_rl.errors import ConfigError
from stream_rl.generate.batch_model import BatchModel, Row
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.transformers_engine import TransformersGenerator
from stream_rl.ports import GenerateRequest, GenerateResult
from tests import micro_models


@pytest.fixture(scope="module")
def model() -> Any:
    return micro_models.make(3)


@pytest.fixture(scope="module")
def options(model: Any, tmp_path_factory: pytest.TempPathFactory) -> GeneratorOptions:
    folder = micro_models.save(model, tmp_path_factory.mktemp("model"))
    return GeneratorOptions(model=folder, max_model_len=micro_models.MAX_LEN, concurrency=32, run_id="r")


@pytest_asyncio.fixture
async def generator(options: GeneratorOptions) -> AsyncIterator[TransformersGenerator]:
    generator = await TransformersGenerator.start(options)
    yield generator
    await generator.aclose()


def ask(prompt: list[int], max_tokens: int) -> GenerateRequest:
    ids = np.asarray(prompt, dtype=np.int32)
    return GenerateRequest(prompt_ids=ids, max_tokens=max_tokens, temperature=0.0, stop_token_ids=())


def test_rows_of_all_lengths_advance_together(model: Any, options: GeneratorOptions) -> None:
    """Fresh prompts, extended ones, short and long in one batch: each as if it were alone."""
    batch = BatchModel(options)
    prompts = [[5 + i, 9, 11] * (1 + 7 * i) for i in range(8)]
    for _ in range(3):
        rows = [Row(list(prompt), 1 + i, 0.0, frozenset(), None) for i, prompt in enumerate(prompts)]
        batch.advance(rows, 16, threading.Event())
        for prompt, row in zip(prompts, rows, strict=True):
            assert row.sampled == micro_models.greedy(model, prompt, row.limit)
            expected = micro_models.logprobs(model, row.ids, len(prompt), 1.0)
            np.testing.assert_allclose(row.logprobs, expected, atol=1e-5)
        prompts = [[*row.ids, 20, 21, 22] for row in rows[1:]] + [[30, 31]]  # one leaves, a new one comes


def test_an_interrupted_batch_keeps_what_it_has(model: Any, options: GeneratorOptions) -> None:
    batch = BatchModel(options)
    interrupted = threading.Event()
    interrupted.set()
    row = Row([5, 6, 7], 4, 0.0, frozenset(), None)
    for count in range(1, 5):
        batch.advance([row], 16, interrupted)
        assert len(row.sampled) == count
    assert row.done
    assert row.sampled == micro_models.greedy(model, [5, 6, 7], 4)


def test_models_with_other_attention_are_refused(options: GeneratorOptions, tmp_path: Path) -> None:
    other = micro_models.make(0)
    other.config.use_sliding_window = True
    other.config.sliding_window = 8
    other.config.layer_types = ["sliding_attention", "full_attention"]
    changed = msgspec.structs.replace(options, model=micro_models.save(other, tmp_path))
    with pytest.raises(ConfigError, match="sliding_attention"):
        BatchModel(changed)


async def test_whoever_runs_the_tick_may_be_cancelled(generator: TransformersGenerator, model: Any) -> None:
    """Short and long requests are cancelled at random moments; every other one gets its own answer."""
    results: dict[int, GenerateResult] = {}

    async def one(i: int, scope: anyio.CancelScope) -> None:
        with scope:
            results[i] = await generator.generate(ask([40 + i, 41, 42], 1 + i))

    scopes = [anyio.CancelScope() for _ in range(24)]
    async with anyio.create_task_group() as group:
        for i, scope in enumerate(scopes):
            group.start_soon(one, i, scope)
        for i in range(0, 24, 3):
            await anyio.sleep(0.003)
            scopes[i].cancel()
    assert set(range(24)) - set(range(0, 24, 3)) <= set(results)
    for i, result in results.items():
        assert result.token_ids.tolist() == micro_models.greedy(model, [40 + i, 41, 42], 1 + i)


async def test_more_requests_than_the_engine_takes_at_once(generator: TransformersGenerator) -> None:
    async with anyio.create_task_group() as group:
        for i in range(100):
            group.start_soon(generator.generate, ask([8 + i, 9], 3))


async def test_the_event_loop_runs_while_the_model_computes(
    generator: TransformersGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model does not begin before the loop has said so, while it has been told to compute."""
    told, may_begin = anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    advance = BatchModel.advance

    def held(self: BatchModel, *args: Any) -> Any:
        loop.call_soon_threadsafe(told.set)
        assert may_begin.wait(40), "the event loop stood still while the model was to compute"
        return advance(self, *args)

    monkeypatch.setattr(BatchModel, "advance", held)
    async with anyio.create_task_group() as requests:
        requests.start_soon(generator.generate, ask([8, 9], 3))
        await told.wait()
        may_begin.set()
