"""An engine without a model, at a model's pace: it samples evenly at random, and stands in where speed is asked."""

from __future__ import annotations

import math

import numpy as np

from stream_rl.generate.options import GeneratorOptions, model_shape
from stream_rl.generate.scripted import ScriptedGenerator


def stand_in(options: GeneratorOptions, *, turn_s: float, spread: float) -> ScriptedGenerator:
    """A generator whose turns take `turn_s` in the median, and a log-normal time around it.

    spread: standard deviation of the logarithm of a turn's seconds

    Turns of different rollouts do not slow each other. A token is any of the model's vocabulary with equal
    probability, and carries the logarithm of that. Raises `ConfigError` for a folder that holds no model.
    """
    vocab_size = model_shape(options.model).vocab_size
    rng = np.random.default_rng(options.seed)

    def script(prompt_ids: tuple[int, ...]) -> list[int]:
        said: list[int] = rng.integers(vocab_size, size=options.max_model_len).tolist()
        return said

    def seconds(prompt_ids: tuple[int, ...]) -> float:
        return turn_s * math.exp(spread * rng.standard_normal())

    return ScriptedGenerator(
        script,
        run_id=options.run_id,
        version=options.version,
        vocab_size=vocab_size,
        max_model_len=options.max_model_len,
        prefill_s=seconds,
        logprob=-math.log(vocab_size),
    )
