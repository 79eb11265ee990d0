from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from learner.checkpoint import model_digest
from learner.checkpoint_state import CheckpointState, CheckpointUnusable, latest, read_state
from learner.options import LearnerOptions
from learner.weights.port import TensorSpec

STATE = CheckpointState(
    version=2, run_id="run", num_ranks=1, zero_stage=1, model_digest="m", config_digest="c", torch_rng="00"
)


def write(run_dir: Path, name: str, *, whole: bool = True) -> Path:
    folder = run_dir / "checkpoints" / name
    folder.mkdir(parents=True)
    if whole:
        (folder / "state.json").write_bytes(msgspec.json.encode(STATE))
    return folder


def test_latest_ignores_what_was_not_finished(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    write(tmp_path, "000009")
    wanted = write(tmp_path, "000020")
    write(tmp_path, "000040", whole=False)
    write(tmp_path, ".000060.partial")
    write(tmp_path, "notes")
    assert latest(tmp_path) == wanted
    assert read_state(wanted) == STATE


def test_unreadable_states_say_which_folder(tmp_path: Path) -> None:
    half = write(tmp_path, "000040", whole=False)
    with pytest.raises(CheckpointUnusable, match=r"000040.*not a complete"):
        read_state(half)
    (half / "state.json").write_text("{")
    with pytest.raises(CheckpointUnusable, match=r"000040.*damaged"):
        read_state(half)


def test_model_digest_sees_names_types_and_shapes_but_no_order() -> None:
    a = TensorSpec(name="a", dtype=torch.float32, shape=(2, 3))
    b = TensorSpec(name="b", dtype=torch.float32, shape=(4,))
    assert model_digest([a, b]) == model_digest([b, a])
    others = [
        msgspec.structs.replace(a, name="c"),
        msgspec.structs.replace(a, dtype=torch.bfloat16),
        msgspec.structs.replace(a, shape=(3, 2)),
    ]
    digests = {model_digest([other, b]) for other in others}
    assert len(digests | {model_digest([a, b])}) == 4


def test_options_travel_as_json_and_their_digest_ignores_places() -> None:
    options = LearnerOptions(
        run_id="r",
        run_dir="/d",
        model="m",
        weights_dir="/w",
        seed=0,
        temperature=1.0,
        max_model_len=64,
        episode_tokens=20,
        max_lag=1,
    )
    assert msgspec.json.decode(msgspec.json.encode(options), type=LearnerOptions) == options
    assert options.digest == msgspec.structs.replace(options, run_dir="/elsewhere", resume_from="/c").digest
    assert options.digest != msgspec.structs.replace(options, temperature=0.7).digest
