"""Which generators disagree about a version they all say they serve. Pure.

After every update a generator says what its weights make of one fixed prompt (`UpdateReport.probe`). Checksums find
damaged bytes; this finds what was loaded wrongly from sound ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Nats, largest difference of one token. One engine repeats itself exactly; two kinds of engine differ by rounding:
# vLLM against transformers on a CPU up to 5e-5 in float32 and 0.24 in bfloat16.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest difference of two probes, in nats; infinite when they are not of one prompt.

    >>> distance([-1.0, -2.0], [-1.0, -2.5])
    0.5
    """
    if len(a) != len(b):
        return float("inf")
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)


def disagreeing(probes: Mapping[str, Sequence[float]], tolerance: float) -> tuple[str, ...]:
    """Names of those not to be believed: all but the majority that agrees, or everybody when there is none.

    >>> disagreeing({"a": [-1.0], "b": [-1.0], "c": [-3.0]}, 0.1)
    ('c',)
    >>> disagreeing({"a": [-1.0], "c": [-3.0]}, 0.1)
    ('a', 'c')
    """
    agreeing = {
        name: {other for other, said in probes.items() if distance(own, said) <= tolerance}
        for name, own in probes.items()
    }
    largest: set[str] = max(agreeing.values(), key=len, default=set())
    believed = largest if 2 * len(largest) > len(probes) else set()
    return tuple(name for name in probes if name not in believed)
