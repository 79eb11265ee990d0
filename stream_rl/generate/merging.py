"""LoRA factors added to the base they were trained on, W = W0 + scale * B A: whole matrices, for any engine to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from stream_rl import adapters, fingerprint, model_folder
from stream_rl.types import AdapterRecord


def merge(base: Tensor, a: Tensor, b: Tensor, *, scale: float, dtype: torch.dtype) -> Tensor:
    """`base` [out, in] + scale * `b` [out, rank] @ `a` [rank, in], computed in float32 and rounded once to `dtype`.

    The base is taken as the learner holds it, in `dtype`. Hu et al. 2021, LoRA, eq. 3.
    """
    return torch.addmm(base.to(dtype).float(), b.float(), a.float(), alpha=scale).to(dtype)


def read_factors(path: str) -> dict[str, Tensor]:
    """Every tensor of an adapter file, on the CPU."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@torch.no_grad()
def merged(
    folder: Path,
    factors: Mapping[str, Tensor],
    adapter: AdapterRecord,
    *,
    dtype: torch.dtype,
    device: str = "cpu",
    whole: bool = True,
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the model in `folder` with the factors added; without `whole`, adapted ones alone.

    One at a time, in the order of `model_folder.shapes_of`. Others are as they lie on the disk. Raises
    `WeightsRejected` if the factors do not fit the base.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in factors.items()}
    fitting = adapters.fit(shapes, model_folder.shapes_of(folder), adapter.rank)
    for path in model_folder.weight_files(folder):
        with safe_open(path, framework="pt", device=device) as file:
            for name in fingerprint.shapes_of(path):
                pair = fitting.get(name)
                if pair is not None:
                    a, b = factors[pair.a].to(device), factors[pair.b].to(device)
                    yield name, merge(file.get_tensor(name), a, b, scale=adapter.scale, dtype=dtype)
                elif whole:
                    yield name, file.get_tensor(name)
