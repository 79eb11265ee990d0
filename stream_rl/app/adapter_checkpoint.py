"""A checkpoint that holds adapters, made a model folder by itself: base and factors added up."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from learner.checkpoint_state import read_state
from stream_rl import adapters, model_folder
from stream_rl.errors import UsageError, WeightsRejected

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"


class _AdapterConfig(msgspec.Struct, frozen=True):
    base_model_name_or_path: str


def holds_adapter(checkpoint: Path) -> bool:
    """Whether the folder is a checkpoint of adapters."""
    return (checkpoint / adapters.CONFIG_FILE).is_file()


def write_merged(checkpoint: Path, target: Path) -> list[str]:
    """Write `config.json` and merged weights of the checkpoint into `target`; returns the names of the files.

    Everything is in the dtype the adapters were trained in. Raises `UsageError` if the base is gone or is not what
    the adapters were trained on.
    """
    from learner.weights import safetensors  # heavy: torch
    from learner.weights.port import TensorSpec
    from stream_rl.generate.merging import merged, read_factors

    adapter = read_state(checkpoint).adapter
    config = msgspec.json.decode((checkpoint / adapters.CONFIG_FILE).read_bytes(), type=_AdapterConfig)
    base = Path(config.base_model_name_or_path)
    try:
        if adapter is None or model_folder.fingerprint_of(base) != adapter.base:
            raise WeightsRejected(f"{base} is not the model they were trained on, or was changed since")
        factors = read_factors(str(checkpoint / adapters.WEIGHTS_FILE))
        dtype = next(iter(factors.values())).dtype
        specs = [
            TensorSpec(name=name, dtype=dtype, shape=shape) for name, shape in model_folder.shapes_of(base).items()
        ]
        tensors = (tensor.to(dtype) for _, tensor in merged(base, factors, adapter, dtype=dtype))
        safetensors.write(target / _WEIGHTS, specs, tensors)
        described = json.loads((base / _CONFIG).read_bytes()) | {"dtype": str(dtype).removeprefix("torch.")}
        (target / _CONFIG).write_text(json.dumps(described, indent=2), encoding="utf-8")
    except (OSError, WeightsRejected) as error:
        raise UsageError(f"{checkpoint}: its adapters cannot be added to their base: {error}") from error
    return [_CONFIG, _WEIGHTS]
