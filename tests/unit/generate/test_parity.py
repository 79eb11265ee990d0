from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.parity import Parity, judge, measure
from stream_rl.generate.transformers_engine import TransformersGenerator
from tests import micro_models

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def found(mean: float, largest: float, *, temperature: float = 1.0) -> Parity:
    return Parity(temperature=temperature, num_tokens=100, mean=mean, max=largest)


@pytest.mark.parametrize(
    ("dtype", "mean", "largest"), [("float32", 6.9e-6, 4.6e-5), ("bfloat16", 4.8e-2, 0.24), ("float32", 0.0, 0.0)]
)
def test_rounding_passes(dtype: str, mean: float, largest: float) -> None:
    assert judge([found(mean, largest), found(mean, largest, temperature=0.7)], dtype) is None


def test_raw_log_probabilities_are_told_by_the_other_temperature() -> None:
    reason = judge([found(1e-6, 1e-5), found(0.12, 0.9, temperature=0.7)], "float32")
    assert reason is not None
    assert "processed_logprobs" in reason


def test_other_weights_are_told_by_the_size() -> None:
    reason = judge([found(3.0, 9.0), found(4.0, 12.0, temperature=0.7)], "bfloat16")
    assert reason is not None
    assert "other weights" in reason


def test_another_dtype_is_told_by_being_between() -> None:
    reason = judge([found(4.8e-2, 0.24), found(5e-2, 0.3, temperature=0.7)], "float32")
    assert reason is not None
    assert "another dtype" in reason


def test_numbers_that_are_none_do_not_pass() -> None:
    assert judge([found(float("nan"), float("nan")), found(0.0, 0.0, temperature=0.7)], "float32") is not None


async def test_an_engine_over_the_same_weights_agrees_and_over_others_does_not(tmp_path: Path) -> None:
    models = [micro_models.make(0), micro_models.make(1)]
    folders = [micro_models.save(model, tmp_path / str(i)) for i, model in enumerate(models)]
    options = GeneratorOptions(model=folders[0], max_model_len=128, concurrency=16, run_id="r")
    generator = await TransformersGenerator.start(options)
    same = await measure(generator, options)
    assert [(parity.temperature, parity.num_tokens) for parity in same] == [(1.0, 256), (0.7, 256)]
    assert max(parity.max for parity in same) < 1e-4
    assert judge(same, "float32") is None
    other = GeneratorOptions(model=folders[1], max_model_len=128, concurrency=16, run_id="r")
    assert "other weights" in (judge(await measure(generator, other), "float32") or "")
    await generator.aclose()
