"""The `nccl` transport up to the collective, which needs GPUs: vLLM's trainer and worker engines, our sockets.

Only what touches CUDA is replaced: opening the NCCL group, and the packed broadcast, which becomes a queue.
"""

from __future__ import annotations

import importlib
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import torch

from learner.weights.files import FilesPublisher
from learner.weights.nccl import NcclSender, open_nccl_sender
from learner.weights.port import TensorSpec
from stream_rl.errors import ConfigError, WeightsRejected
from stream_rl.generate.weights_nccl import NcclCalls
from stream_rl.link.zmq_link import session_route
from stream_rl.types import WeightsManifest

pytestmark = [
    pytest.mark.timeout(180),  # importing vLLM is 6 s of a free core
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

RUN = "run"
SPECS = (
    TensorSpec(name="weight", dtype=torch.float32, shape=(2, 3)),
    TensorSpec(name="bias", dtype=torch.bfloat16, shape=(2,)),
)


class Group:
    """In place of an NCCL communicator: what rank 0 broadcasts, the worker takes."""

    def __init__(self) -> None:
        self.tensors: queue.Queue[tuple[str, torch.Tensor]] = queue.Queue()
        self.flips: set[str] = set()  # tensors that are damaged on the way
        self.destroyed = 0

    def destroy(self) -> None:
        self.destroyed += 1


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    nccl_engine = importlib.import_module("vllm.distributed.weight_transfer.nccl_engine")
    vllm_weights = importlib.import_module("stream_rl.generate.vllm_weights")
    made = Group()

    def join_as_trainer(info: Any) -> Group:
        assert (info.master_address, info.world_size) == ("127.0.0.1", 2)  # the learner's rank 0 and one worker
        return made

    def join_as_worker(info: Any, parallel: Any) -> Group:
        assert (info.rank_offset, info.world_size) == (1, 2)
        return made

    def produce(*, iterator: Iterator[tuple[str, torch.Tensor]], group: Group, **_: object) -> None:
        for name, tensor in iterator:
            group.tensors.put((name, -tensor if name in group.flips else tensor))

    def consume(*, iterator: Any, group: Group, post_unpack_func: Any, **_: object) -> None:
        for name, (shape, dtype) in iterator:
            sent, tensor = group.tensors.get(timeout=60)
            assert (sent, list(tensor.shape), tensor.dtype) == (name, shape, dtype)
            post_unpack_func([(name, tensor)])

    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", join_as_trainer)
    monkeypatch.setattr(nccl_engine, "worker_init_process_group", join_as_worker)
    monkeypatch.setattr(nccl_engine, "packed_nccl_broadcast_producer", produce)
    monkeypatch.setattr(nccl_engine, "packed_nccl_broadcast_consumer", consume)
    monkeypatch.setattr(vllm_weights, "initialize_layerwise_reload", lambda model: None)
    monkeypatch.setattr(vllm_weights, "finalize_layerwise_reload", lambda model, config: None)
    monkeypatch.setattr(vllm_weights, "_repack_tied", lambda model: None)
    return made


class Model(torch.nn.Module):
    """A model as vLLM's are: it loads by name and says what it loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3))
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def load_weights(self, weights: Any) -> set[str]:
        parameters = dict(self.named_parameters())
        names = set()
        for name, tensor in weights:
            with torch.no_grad():
                parameters[name].copy_(tensor)
            names.add(name)
        return names


class Engine:
    """Stands where `AsyncLLM` does: hands calls to the real worker engine, in a thread as vLLM's worker process is."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.calls: list[str] = []
        self.label = ""
        parallel = type("Parallel", (), {"world_size": 1})()
        self.vllm_config = type("VllmConfig", (), {"parallel_config": parallel, "model_config": None})()
        from stream_rl.generate.vllm_weights import CheckedNcclEngine

        self._worker = CheckedNcclEngine(None, self.vllm_config, torch.device("cpu"), model)

    async def init_weight_transfer_engine(self, request: Any) -> None:
        self.calls.append("init")
        info = self._worker.parse_init_info(request.init_info)
        await anyio.to_thread.run_sync(self._worker.init_transfer_engine, info)

    async def start_weight_update(self) -> None:
        self.calls.append("start")
        await anyio.to_thread.run_sync(self._worker.start_weight_update)

    async def update_weights(self, request: Any) -> None:
        self.calls.append("update")
        info = self._worker.parse_update_info(request.update_info)
        await anyio.to_thread.run_sync(self._worker.receive_weights, info)

    async def finish_weight_update(self, label: str) -> None:
        self.calls.append("finish")
        await anyio.to_thread.run_sync(self._worker.finish_weight_update)
        self.label = label


def values(version: int) -> list[torch.Tensor]:
    return [torch.arange(6.0).reshape(2, 3) + version, torch.full((2,), float(version), dtype=torch.bfloat16)]


class Stage:
    """A sender, and versions it can send."""

    def __init__(self, sender: NcclSender, directory: Path) -> None:
        self.publisher = FilesPublisher(directory, RUN, transport="nccl", address=sender.address)

    def publish(self, version: int) -> WeightsManifest:
        return self.publisher.publish(version, SPECS, values(version))


async def test_versions_reach_two_generators_that_join_at_different_times(tmp_path: Path, group: Group) -> None:
    first, second = Engine(Model()), Engine(Model())
    one, two = NcclCalls(first, session_route()), NcclCalls(second, session_route())
    async with open_nccl_sender(tmp_path, RUN, torch.device("cpu"), deadline_s=20) as sender:
        stage = Stage(sender, tmp_path)
        await one.load(stage.publish(1))
        for calls in (one, two):
            await calls.load(stage.publish(2))
    assert first.calls == ["init", "start", "update", "finish", "start", "update", "finish"]
    assert second.calls == ["init", "start", "update", "finish"]
    for engine in (first, second):
        assert engine.label == "2"
        assert torch.equal(engine.model.weight, values(2)[0])
        assert torch.equal(engine.model.bias, values(2)[1].float())
    assert group.destroyed == 2  # a group for each generator, left at the end


async def test_a_tensor_damaged_on_the_way_is_named_and_never_loaded(tmp_path: Path, group: Group) -> None:
    engine = Engine(Model())
    group.flips = {"weight"}
    async with open_nccl_sender(tmp_path, RUN, torch.device("cpu"), deadline_s=20) as sender:
        manifest = Stage(sender, tmp_path).publish(1)
        with pytest.raises(WeightsRejected, match=r"other bytes than were published: \['weight'\]"):
            await NcclCalls(engine, session_route()).load(manifest)
    assert "finish" not in engine.calls
    assert torch.equal(engine.model.weight, torch.zeros(2, 3))
    assert group.tensors.empty()  # it stayed in the collective to its end
    assert group.destroyed == 1


async def test_what_cannot_be_sent_is_refused_before_anything_is_touched(tmp_path: Path, group: Group) -> None:
    engine = Engine(Model())
    async with open_nccl_sender(tmp_path, RUN, torch.device("cpu"), deadline_s=20) as sender:
        manifest = Stage(sender, tmp_path).publish(3)
        for told, wrong in {
            "version 2 is not kept any more": msgspec.structs.replace(manifest, version=2),
            "serves run 'run', not 'other'": msgspec.structs.replace(manifest, run_id="other"),
        }.items():
            with pytest.raises(WeightsRejected, match=told):
                await NcclCalls(engine, session_route()).load(wrong)
        await NcclCalls(engine, session_route()).load(manifest)
    assert engine.calls == ["init", "start", "update", "finish"]


async def test_a_transfer_that_hangs_is_given_up_and_others_go_on(tmp_path: Path, group: Group) -> None:
    class Stuck(Engine):
        async def start_weight_update(self) -> None:
            await anyio.sleep_forever()

    well, again, session = Engine(Model()), Engine(Model()), session_route()
    async with open_nccl_sender(tmp_path, RUN, torch.device("cpu"), deadline_s=1.5) as sender:
        manifest = Stage(sender, tmp_path).publish(1)

        async def hang() -> None:
            with anyio.move_on_after(3.0) as scope:  # the generator's own deadline; the learner's came before
                await NcclCalls(Stuck(Model()), session).load(manifest)
            assert scope.cancelled_caught

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            tasks.start_soon(NcclCalls(well, session_route()).load, manifest)
        await NcclCalls(again, session).load(manifest)
    assert (well.label, again.label) == ("1", "1")
    assert again.calls[0] == "init"  # the group it hung in is not used again


async def test_a_malformed_address_is_the_manifests_fault(tmp_path: Path, group: Group) -> None:
    publisher = FilesPublisher(tmp_path, RUN, transport="nccl", address="nowhere")
    with pytest.raises(WeightsRejected, match="nowhere"):
        await NcclCalls(Engine(Model()), session_route()).load(publisher.publish(1, SPECS, values(1)))


async def test_addresses_other_machines_could_reach_are_refused(tmp_path: Path, group: Group) -> None:
    with pytest.raises(ConfigError, match="CURVE"):
        async with open_nccl_sender(tmp_path, RUN, torch.device("cpu"), deadline_s=1, address="tcp://0.0.0.0:0"):
            pass
