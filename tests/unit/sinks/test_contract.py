"""One contract over all sinks: what was written is there when it is closed, and a resumed run is one run.

Each is read back by its own package, and skipped, saying so, where that is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_rl.sinks.points import point_of
from stream_rl.sinks.port import Point, RunFacts
from stream_rl.sinks.prometheus import FILE
from stream_rl.sinks.registry import ENTRIES
from stream_rl.sinks.wandb import AXIS
from tests.unit.observe.samples import eval_record, metrics_line

# Third parties warn about each other's deprecations.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(120)]

LOG_BLOCK = 32768  # bytes, of W&B's transaction log
Found = dict[str, list[tuple[int, float]]]  # name -> (step, value) in order of step
Read = Callable[[Path], Found]


def update(step: int, success: float) -> Point:
    return _point(
        {"type": "update", **metrics_line(step, train_s=4.0 * (step + 1), success={"train": success, "by_env": {}})}
    )


def evaluation(version: int, success: float) -> Point:
    return _point({"type": "eval", **eval_record(version, train_s=4.0 * version, success=success)})


def _point(event: dict[str, Any]) -> Point:
    point = point_of(event)
    assert point is not None
    return point


def read_tensorboard(folder: Path) -> Found:
    module = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    assert b'"lr"' in events.Tensors("config")[0].tensor_proto.string_val[0]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def read_wandb(folder: Path) -> Found:
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found: Found = {}
    for file in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")):
        assert file.name == "run-abc123.wandb", "its id is the run's"
        for data in transaction_log(file.read_bytes()):
            record = records.Record()
            record.ParseFromString(data)
            row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            for name, value in row.items():
                if not name.startswith("_") and name != AXIS:
                    points = [p for p in found.get(name, []) if p[0] != row[AXIS]]  # of two at a step the newer
                    found[name] = sorted([*points, (row[AXIS], value)])
    return found


def transaction_log(data: bytes) -> Iterator[bytes]:
    """Records of an offline run: seven bytes of header, then blocks as in LevelDB's log format."""
    assert data[:4] == b":W&B"
    place, parts = 7, b""
    while place + 7 <= len(data):
        if (left := LOG_BLOCK - place % LOG_BLOCK) < 7:  # too little for a record's own header: filled with zeros
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def read_trackio(folder: Path) -> Found:
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    assert storage.get_runs("stream_rl") == ["run"]
    found: Found = {}
    for row in storage.get_logs("stream_rl", "run"):
        for name, value in row.items():
            if name not in ("step", "timestamp"):
                points = [p for p in found.get(name, []) if p[0] != row["step"]]
                found[name] = sorted([*points, (row["step"], value)])
    return found


def read_prometheus(folder: Path) -> Found:
    text = (folder / FILE).read_text(encoding="utf-8")
    value = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    step = int(value["stream_rl_update"])
    version = int(value["stream_rl_eval_version"])
    return {
        "success/train": [(step, value["stream_rl_update_success_train"])],
        "eval/success/overall": [(version, value['stream_rl_eval_success{environment="overall"}'])],
    }


READERS: dict[str, Read] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "trackio": read_trackio,
    "prometheus": read_prometheus,
}


@pytest.fixture(params=list(ENTRIES))
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A sink that can be tested here, kept away from accounts and from the user's own files."""
    package = ENTRIES[request.param].package
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'stream-rl[{package}]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for variable in ("WANDB_PROJECT", "TRACKIO_PROJECT", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(variable, raising=False)
    found: str = request.param
    return found


def test_a_run_and_its_resumption_are_one_history(name: str, tmp_path: Path) -> None:
    """Updates 0 to 3 were made; the process dies; version 2 was the newest checkpoint; updates 2 and 3 are made again.

    The evaluation of version 2 was made before and is kept.
    """
    kept = evaluation(2, 0.5)
    facts = RunFacts(name="run", run_id="abc123", folder=tmp_path, config={"learner": {"lr": 1e-4}})
    first = ENTRIES[name].start(facts)
    for point in (evaluation(0, 0.25), update(0, 0.1), update(1, 0.2), kept, update(2, 0.9), update(3, 0.9)):
        first.write(point)
    first.close()
    if name == "wandb":  # names a folder by the second; nobody resumes a run within one
        time.sleep(1.0)
    resumed = RunFacts(
        name="run", run_id="abc123", folder=tmp_path, config=facts.config, resumed_at=2, kept_evaluation=kept
    )
    second = ENTRIES[name].start(resumed)
    for point in (update(2, 0.3), update(3, 0.4), evaluation(4, 0.75)):
        second.write(point)
    second.close()
    found = READERS[name](tmp_path)
    train, held_out = found["success/train"], found["eval/success/overall"]
    if name == "prometheus":  # the newest only
        assert (train, held_out) == ([(3, 0.4)], [(4, 0.75)])
    else:
        assert [step for step, _ in train] == [0, 1, 2, 3]
        assert [value for _, value in train] == pytest.approx([0.1, 0.2, 0.3, 0.4]), "those made again count"
        assert held_out == [(0, 0.25), (2, 0.5), (4, 0.75)]
