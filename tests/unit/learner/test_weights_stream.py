"""The `stream` transport over a real socket: learner's server, generator's reader, and what goes wrong between them."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import torch
from torch import Tensor

from learner.weights.files import FilesPublisher
from learner.weights.port import TensorSpec
from learner.weights.stream import ChunkServer, open_chunk_server
from stream_rl import fingerprint
from stream_rl.errors import ConfigError, WeightsRejected
from stream_rl.generate.pull import Pull
from stream_rl.generate.scripted import ScriptedGenerator
from stream_rl.generate.weights_stream import StreamedGenerator, fetch
from stream_rl.link.chunks import CHUNK_BYTES, WINDOW, Ask, checksum
from stream_rl.types import WeightsManifest

RUN = "run"
SPECS = (  # 9 MiB and a bit: ten pieces
    TensorSpec(name="a", dtype=torch.float32, shape=(9 << 18,)),
    TensorSpec(name="b", dtype=torch.bfloat16, shape=(3,)),
)


def tensors(value: float) -> list[Tensor]:
    torch.manual_seed(int(value))
    return [torch.randn(9 << 18), torch.full((3,), value, dtype=torch.bfloat16)]


def publish(directory: Path, address: str, version: int = 1) -> WeightsManifest:
    publisher = FilesPublisher(directory, RUN, transport="stream", address=address)
    return publisher.publish(version, SPECS, tensors(version))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip_last_bit(path: str) -> None:
    whole = bytearray(Path(path).read_bytes())
    whole[-1] ^= 1
    Path(path).write_bytes(whole)


def equal(a: str, b: str) -> bool:
    return Path(a).read_bytes() == Path(b).read_bytes()


async def test_a_pulled_copy_is_the_published_file(tmp_path: Path) -> None:
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        assert (manifest.transport, manifest.address) == ("stream", server.address)
        local = await fetch(manifest, tmp_path / "in")
    assert equal(local.path, manifest.path)
    assert Path(local.path).parent == tmp_path / "in"
    assert fingerprint.verify(local) == manifest.fingerprint
    assert names(tmp_path / "in") == ["v00001.safetensors"]


async def test_two_readers_pull_at_once(tmp_path: Path) -> None:
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        async with anyio.create_task_group() as tasks:
            for name in ("one", "two"):
                tasks.start_soon(fetch, manifest, tmp_path / name)
    for name in ("one", "two"):
        assert fingerprint.of_file(tmp_path / name / "v00001.safetensors") == manifest.fingerprint


async def test_a_generator_takes_the_pulled_version_and_keeps_no_file(tmp_path: Path) -> None:
    inner = ScriptedGenerator(lambda prompt: [1], run_id=RUN)
    generator = StreamedGenerator(inner, tmp_path / "in")
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        report = await generator.update(manifest)
        again = await generator.update(manifest)  # live already: nothing is pulled
    assert (report.version, report.fingerprint) == (1, manifest.fingerprint)
    assert again.pause_s == 0
    assert (generator.version, generator.engine) == (1, "scripted")
    assert names(tmp_path / "in") == []


async def test_what_the_learner_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address, version=5)
        for told, wrong in {
            "version 3 .*keeps only the newest": msgspec.structs.replace(manifest, version=3),
            "this learner serves run 'run'": msgspec.structs.replace(manifest, run_id="other"),
            "the file ends before": msgspec.structs.replace(manifest, num_bytes=manifest.num_bytes + 1),
        }.items():
            with pytest.raises(WeightsRejected, match=told):
                await fetch(wrong, tmp_path / "in")
    assert names(tmp_path / "in") == []  # nothing half pulled stays


async def test_a_learner_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """It accepts and does not answer; then it does not even accept."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        manifest = publish(tmp_path / "out", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(WeightsRejected, match="nothing came 3 times in a row"):
            await fetch(manifest, tmp_path / "in", silence_s=0.05)
    with pytest.raises(WeightsRejected, match="nothing came 3 times in a row"):
        await fetch(manifest, tmp_path / "in", silence_s=0.05)


async def test_a_broken_connection_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the third piece the server hangs up once. What had come is not asked for again."""
    asked: list[int] = []
    answer = ChunkServer._answer

    def breaking(self: ChunkServer, connection: socket.socket, ask: Ask, file: Any, buffer: memoryview) -> None:
        asked.append(ask.offset)
        if len(asked) == 4:
            raise ConnectionResetError
        answer(self, connection, ask, file, buffer)

    monkeypatch.setattr(ChunkServer, "_answer", breaking)
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        local = await fetch(manifest, tmp_path / "in")
    assert fingerprint.verify(local) == manifest.fingerprint
    pieces = list(range(0, manifest.num_bytes, CHUNK_BYTES))
    assert asked[:4] == pieces[:4]
    assert sorted(set(asked)) == pieces
    assert len(pieces) < len(asked) <= len(pieces) + WINDOW  # at most what was under way


async def test_a_version_that_is_being_pulled_may_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ChunkServer._answer

    def forgetting(self: ChunkServer, connection: socket.socket, ask: Ask, file: Any, buffer: memoryview) -> None:
        Path(manifest.path).unlink(missing_ok=True)
        answer(self, connection, ask, file, buffer)

    monkeypatch.setattr(ChunkServer, "_answer", forgetting)
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        local = await fetch(manifest, tmp_path / "in")
    assert fingerprint.verify(local) == manifest.fingerprint


async def test_a_piece_damaged_on_the_way_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second piece, and no other, is sent with a checksum that its bytes do not have."""
    asked: list[int] = []

    def lying(data: memoryview) -> int:
        asked.append(len(asked))
        return checksum(data) ^ (asked[-1] == 1)

    monkeypatch.setattr("learner.weights.stream.checksum", lying)
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        local = await fetch(manifest, tmp_path / "in")
    assert fingerprint.verify(local) == manifest.fingerprint
    assert len(asked) == len(range(0, manifest.num_bytes, CHUNK_BYTES)) + 1


async def test_a_fetch_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """The learner accepts and says nothing; the deadline of the update is shorter than the patience of the pull."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        manifest = publish(tmp_path / "out", address)
        pull = Pull(manifest, tmp_path / "in" / "v00001.safetensors", silence_s=30)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(_fails, pull))
            connection, _ = await anyio.to_thread.run_sync(silent.accept)
            pull.stop()
        connection.close()
        with anyio.move_on_after(0.2) as scope:
            await fetch(manifest, tmp_path / "in", silence_s=30)
        assert scope.cancelled_caught
    assert not (tmp_path / "in" / "v00001.safetensors").exists()


async def _fails(pull: Pull) -> None:
    with pytest.raises(WeightsRejected, match="stopped"):
        await anyio.to_thread.run_sync(pull.run)


async def test_a_file_damaged_at_the_learner_is_found_before_it_is_loaded(tmp_path: Path) -> None:
    """The pieces are sent as they lie there, so only the tensors' checksums can tell."""
    generator = StreamedGenerator(ScriptedGenerator(lambda prompt: [1], run_id=RUN), tmp_path / "in")
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
        flip_last_bit(manifest.path)  # which is one of the last tensor
        with pytest.raises(WeightsRejected, match=r"damaged or overwritten after it was published in `b`"):
            await generator.update(manifest)
    assert generator.version == 0
    assert names(tmp_path / "in") == []


async def test_addresses_other_machines_could_reach_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="other machines"):
        async with open_chunk_server(tmp_path, RUN, "0.0.0.0"):
            pass


async def test_a_malformed_address_is_the_manifests_fault(tmp_path: Path) -> None:
    async with open_chunk_server(tmp_path / "out", RUN) as server:
        manifest = publish(tmp_path / "out", server.address)
    with pytest.raises(WeightsRejected, match="nowhere"):
        await fetch(msgspec.structs.replace(manifest, address="nowhere"), tmp_path / "in")
