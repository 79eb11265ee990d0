"""Weights from a safetensors file into a running vLLM worker, through vLLM's own weight-transfer interface.

Loaded inside the engine's worker, by the `vllm.general_plugins` entry point of this package. vLLM repacks linear
weights when it loads them, so start and finish go through its layerwise reload, as its own engines do.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

BACKEND = "stream_rl_files"


@dataclass
class FilesInitInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM ships no usable types
    """Nothing to agree on beforehand: every update names its file."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One update: all tensors of one file."""

    path: str


class FilesWeightTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """Reads the file the trainer wrote. Who verifies it does so before: a failure here leaves the model half loaded."""

    init_info_cls = FilesInitInfo
    update_info_cls = FileUpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: FilesInitInfo) -> None:
        """Nothing to open."""
        # vLLM warns at every update of layers the file does not name (rotary tables, tied heads). What is really
        # missing is an error in `finish_weight_update`.
        logging.getLogger(initialize_layerwise_reload.__module__).setLevel(logging.ERROR)

    def start_weight_update(self) -> None:
        """Take the repacked weights aside and expect checkpoint tensors."""
        self._missing = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load every tensor of the file, one at a time."""
        with safe_open(update_info.path, framework="pt", device=str(self.device)) as file:
            loaded = self.model.load_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
        self._missing -= loaded

    def finish_weight_update(self) -> None:
        """Repack what was loaded; a parameter that no tensor of the file filled is an error."""
        finalize_layerwise_reload(self.model, self.model_config)
        _repack_tied(self.model)
        if self._missing:
            raise ValueError(
                f"the weights file left {len(self._missing)} parameters unset: {sorted(self._missing)[:5]}"
            )

    def shutdown(self) -> None:
        """Nothing to close."""


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
    """Make the backend known to vLLM; called once or more in every process of the engine."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FilesWeightTransferEngine)
