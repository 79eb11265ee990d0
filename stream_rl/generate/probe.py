"""What a set of weights says about a fixed short prompt: the check that what was loaded is what computes. Pure.

The log-probabilities of the prompt's own tokens and of the most likely next one depend on every layer, whatever the
layout an engine repacked its weights into. Generators that serve one version must agree on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stream_rl.errors import WeightsRejected

PROMPT_TOKENS = 16
_STRIDE = 2654435761  # Knuth's multiplicative hash: ids from the whole vocabulary, the same for every engine


def prompt(vocab_size: int) -> list[int]:
    """The ids every generator of this vocabulary is asked about.

    >>> prompt(1000)[:4]
    [0, 761, 522, 283]
    """
    return [i * _STRIDE % vocab_size for i in range(PROMPT_TOKENS)]


def check(version: int, logprobs: Sequence[float]) -> tuple[float, ...]:
    """The probe of a version, if it can be one: one finite number, at most 0, a prompt token. Else `WeightsRejected`.

    `logprobs` are those of the prompt's second to last token and of the greedy one after it, at temperature 1.
    """
    if len(logprobs) != PROMPT_TOKENS:
        raise WeightsRejected(
            f"version {version}: the engine gave {len(logprobs)} log-probabilities of the {PROMPT_TOKENS} it was asked"
        )
    bad = [value for value in logprobs if not (math.isfinite(value) and value < 1e-4)]
    if bad:
        raise WeightsRejected(
            f"version {version} gives log-probabilities such as {bad[0]}: the weights are damaged or have diverged; "
            "no token was sampled from them"
        )
    return tuple(float(value) for value in logprobs)
