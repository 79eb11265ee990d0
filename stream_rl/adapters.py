"""Which tensors of a LoRA file belong to which matrix of the base, and whether they fit. Pure, no torch.

Files are named as peft names them (`adapter_model.safetensors`), so that a published version is an adapter that other
software reads. The matrix `L.weight` [out, in] has the factors `base_model.model.L.lora_A.weight` [rank, in] and
`base_model.model.L.lora_B.weight` [out, rank] (https://huggingface.co/docs/peft/developer_guides/checkpoint).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stream_rl.errors import WeightsRejected

PREFIX = "base_model.model."
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_WEIGHT = ".weight"
_NAMED = 5  # tensors an error lists


class Factors(msgspec.Struct, frozen=True, kw_only=True):
    """The tensors that make one matrix's difference."""

    a: str  # [rank, in]
    b: str  # [out, rank]


def factors_of(matrix: str) -> Factors:
    """Names of a matrix's factors.

    >>> factors_of("model.layers.0.mlp.up_proj.weight").a
    'base_model.model.model.layers.0.mlp.up_proj.lora_A.weight'
    """
    layer = PREFIX + matrix.removesuffix(_WEIGHT)
    return Factors(a=f"{layer}.lora_A{_WEIGHT}", b=f"{layer}.lora_B{_WEIGHT}")


def fit(factors: Mapping[str, tuple[int, ...]], base: Mapping[str, tuple[int, ...]], rank: int) -> dict[str, Factors]:
    """The factors of every adapted matrix, by its name, from the shapes of both files' tensors.

    Raises `WeightsRejected` if a matrix is missing, a factor is missing, a shape is wrong, or a tensor is no factor.
    """
    found = {matrix: pair for matrix in base if (pair := factors_of(matrix)).a in factors or pair.b in factors}
    strange = set(factors) - {name for pair in found.values() for name in (pair.a, pair.b)}
    if strange or not found:
        raise WeightsRejected(
            f"the base has no matrix for {sorted(strange)[:_NAMED]}; its own are called {sorted(base)[:_NAMED]}"
        )
    for matrix, pair in found.items():
        rows, columns = base[matrix] if len(base[matrix]) == 2 else (0, 0)
        for name, wanted in ((pair.a, (rank, columns)), (pair.b, (rows, rank))):
            if factors.get(name) != wanted:
                raise WeightsRejected(
                    f"`{name}` should be {list(wanted)}, a rank {rank} factor of `{matrix}` {list(base[matrix])}; "
                    + (f"it is {list(factors[name])}" if name in factors else "it is missing")
                )
    return found
