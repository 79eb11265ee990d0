"""What the learner's rank 0 runs beside its training so that generators get what it publishes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from learner.options import LearnerOptions
from stream_rl.errors import ConfigError


@asynccontextmanager
async def serving(options: LearnerOptions, device: torch.device) -> AsyncIterator[str]:
    """The address to write into manifests, served for the length of the block; empty where generators read files.

    Raises `ConfigError` where the transport cannot work.
    """
    directory = Path(options.weights_dir)
    match options.weights.transport:
        case "files":
            yield ""
        case "stream":
            from learner.weights.stream import open_chunk_server

            async with open_chunk_server(directory, options.run_id) as server:
                yield server.address
        case "nccl":
            if device.type != "cuda":
                raise ConfigError("weights.transport", "'nccl' needs CUDA in learner and generators; use 'files'.")
            from learner.weights.nccl import open_nccl_sender

            deadline_s = options.weights.deadline_s
            async with open_nccl_sender(directory, options.run_id, device, deadline_s=deadline_s) as sender:
                yield sender.address
