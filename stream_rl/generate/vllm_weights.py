"""New weights into a running vLLM worker, through vLLM's own weight-transfer interface: from a file, or over NCCL.

Loaded inside the engine's worker, by the `vllm.general_plugins` entry point of this package. vLLM repacks linear
weights when it loads them, so start and finish go through its layerwise reload, as its own engines do.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine, NCCLWeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from stream_rl.fingerprint import checksum
from stream_rl.generate.merging import merged, read_factors
from stream_rl.types import AdapterRecord

BACKEND = "stream_rl_files"
NCCL_BACKEND = "stream_rl_nccl"
_DAMAGED = "tensors came with other bytes than were published: {}"


@dataclass
class FilesInitInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM ships no usable types
    """Nothing to agree on beforehand: every update names its file."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One update: all tensors of one file, and what they must be."""

    path: str
    checksums: dict[str, str] = field(default_factory=dict)  # tensor -> XXH3-128 of its bytes; empty: not known
    base: str = ""  # folder with the matrices an adapter is added to; empty: the file holds every parameter
    adapter: dict[str, Any] = field(default_factory=dict)  # the fields of an `AdapterRecord`


class FilesWeightTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """Reads the file the trainer wrote. Who verifies it does so before: a failure here leaves the model half loaded."""

    init_info_cls = FilesInitInfo
    update_info_cls = FileUpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: FilesInitInfo) -> None:
        """Nothing to open."""
        _quieten()

    def start_weight_update(self) -> None:
        """Take the repacked weights aside and expect checkpoint tensors."""
        self._missing = _begin(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load every tensor of the file, one at a time. Raises `ValueError` if one is not what was published.

        Who published and who verified read the file before; this reads it again, so it looks again.
        """
        if update_info.base:
            self._missing -= self.model.load_weights(self._merged(update_info))
            return
        checked = _CheckedModel(self.model, update_info.checksums) if update_info.checksums else None
        with safe_open(update_info.path, framework="pt", device=str(self.device)) as file:
            tensors = ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
            loaded = (checked or self.model).load_weights(tensors)
        if checked:
            checked.require_sound()
        self._missing -= loaded

    def finish_weight_update(self) -> None:
        """Repack what was loaded; a parameter that no tensor of the file filled is an error."""
        _finish(self.model, self.model_config, self._missing)

    def shutdown(self) -> None:
        """Nothing to close."""

    def _merged(self, update_info: FileUpdateInfo) -> Iterator[tuple[str, torch.Tensor]]:
        """The whole model of an adapter's version. Raises `ValueError` before anything is loaded if one is damaged."""
        factors = read_factors(update_info.path)
        damaged = [name for name, tensor in factors.items() if _checksum(tensor) != update_info.checksums.get(name)]
        if damaged:
            raise ValueError(_DAMAGED.format(sorted(damaged)[:5]))
        adapter = msgspec.convert(update_info.adapter, AdapterRecord)
        device, dtype = str(self.device), self.model_config.dtype
        return merged(Path(update_info.base), factors, adapter, dtype=dtype, device=device)


@dataclass
class CheckedUpdateInfo(NCCLWeightTransferUpdateInfo):  # type: ignore[misc]
    """One update over NCCL: what comes, in this order, and what it must be."""

    checksums: dict[str, str] = field(default_factory=dict)  # tensor -> XXH3-128 of its bytes


class CheckedNcclEngine(NCCLWeightTransferEngine):  # type: ignore[misc]
    """vLLM's NCCL engine, which looks at each tensor before it is loaded."""

    model: Any  # vLLM's attribute; its base class is untyped
    init_info_cls = NCCLWeightTransferEngine.init_info_cls
    update_info_cls = CheckedUpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: Any) -> None:
        """Join the group of the learner's rank 0 and this generator's workers."""
        _quieten()
        super().init_transfer_engine(init_info)

    def start_weight_update(self) -> None:
        """Take the repacked weights aside and expect checkpoint tensors."""
        self._missing = _begin(self.model)

    def receive_weights(self, update_info: CheckedUpdateInfo) -> None:
        """Receive and load all tensors. Raises `ValueError` if one is not what was published."""
        model = self.model
        checked = _CheckedModel(model, update_info.checksums)
        self.set_weight_update_target(checked, self.model_config)
        try:
            super().receive_weights(update_info)
        finally:
            self.set_weight_update_target(model, self.model_config)
        self._missing -= checked.loaded
        checked.require_sound()  # only now: who leaves a collective early leaves the sender inside it

    def finish_weight_update(self) -> None:
        """Repack what was loaded; a parameter that no tensor filled is an error."""
        _finish(self.model, self.model_config, self._missing)


class _CheckedModel:
    """Stands in for the model while tensors are received: damaged ones are kept from it."""

    def __init__(self, model: Any, checksums: dict[str, str]) -> None:
        self._model = model
        self._checksums = checksums
        self.loaded: set[str] = set()
        self.damaged: set[str] = set()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the tensors whose checksum is as published."""
        loaded: set[str] = self._model.load_weights(self._sound(weights))
        self.loaded |= loaded
        return loaded

    def require_sound(self) -> None:
        """Raises `ValueError` naming the tensors that were kept from the model."""
        if self.damaged:
            raise ValueError(_DAMAGED.format(sorted(self.damaged)[:5]))

    def _sound(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights:
            if _checksum(tensor) == self._checksums.get(name):
                yield name, tensor
            else:
                self.damaged.add(name)


def _checksum(tensor: torch.Tensor) -> str:
    return checksum(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)


def _quieten() -> None:
    """vLLM warns at every update of layers no tensor names (rotary tables, tied heads); `_finish` knows better."""
    logging.getLogger(initialize_layerwise_reload.__module__).setLevel(logging.ERROR)


def _begin(model: Any) -> set[str]:
    """Names of the parameters that have to be filled, now that the repacked ones are set aside."""
    missing = {name for name, _ in model.named_parameters()}
    initialize_layerwise_reload(model)
    return missing


def _finish(model: Any, model_config: Any, missing: set[str]) -> None:
    finalize_layerwise_reload(model, model_config)
    _repack_tied(model)
    if missing:
        raise ValueError(f"the weights left {len(missing)} parameters unset: {sorted(missing)[:5]}")


def _repack_tied(model: Any) -> None:
    """Repack every layer that shares its parameters with another one.

    The layerwise reload repacks the layers that tensors of the file name. A tied output layer gets its new numbers
    through the embedding, so on the CPU it would go on with the packed copy of the old ones.
    """
    sharing: defaultdict[int, list[Any]] = defaultdict(list)
    for layer in model.modules():
        for parameter in layer.parameters(recurse=False):
            if parameter.numel():  # a weight that was packed and then dropped is empty
                sharing[parameter.data_ptr()].append(layer)
    for layers in sharing.values():
        for layer in layers if len(layers) > 1 else ():
            layer.quant_method.process_weights_after_loading(layer)


def register() -> None:
    """Make the backends known to vLLM; called once or more in every process of the engine."""
    for name, engine in ((BACKEND, FilesWeightTransferEngine), (NCCL_BACKEND, CheckedNcclEngine)):
        if name not in WeightTransferEngineFactory._registry:
            WeightTransferEngineFactory.register_engine(name, engine)
