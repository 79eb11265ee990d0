"""What a checkpoint folder says of itself, readable without loading torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stream_rl.errors import StreamRLError
from stream_rl.types import AdapterRecord

STATE_FILE = "state.json"


class CheckpointUnusable(StreamRLError):
    """A checkpoint cannot be loaded into this learner. The message says what differs."""


class CheckpointState(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says of itself."""

    version: int  # updates its parameters have seen
    run_id: str  # run that wrote it
    num_ranks: int  # learner processes it was written by
    zero_stage: int  # how its shards are cut
    model_digest: str  # names, dtypes and shapes of the parameters
    config_digest: str  # of the learner's options, to tell whether a run goes on unchanged
    torch_rng: str  # hex; every rank has the same
    adapter: AdapterRecord | None = None  # the parameters are factors of this adapter; None: all of the model


def read_state(folder: Path) -> CheckpointState:
    """The state of a complete checkpoint. Raises `CheckpointUnusable`."""
    try:
        return msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=CheckpointState)
    except OSError as error:
        raise CheckpointUnusable(f"{folder}: not a complete checkpoint: {STATE_FILE}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CheckpointUnusable(f"{folder}: {STATE_FILE} is damaged: {error}") from error


def latest(run_dir: Path) -> Path | None:
    """The complete checkpoint of the highest version under `run_dir/checkpoints`; None if there is none."""
    root = run_dir / "checkpoints"
    folders = [f for f in root.iterdir() if f.name.isdigit() and (f / STATE_FILE).is_file()] if root.is_dir() else []
    return max(folders, key=lambda f: int(f.name), default=None)
