"""How long a new version takes to reach two generators, against the time of copying its bytes twice.

    python -m benchmarks.publish [--transport files stream] [--engine model|transformers|vllm] [--rounds 9]

A model of SmolLM2's shapes (269 MB in bfloat16, random numbers) is published from this process, as the learner's rank
0 does, to two generator processes that hold it. The clock runs from the call of `publish` until both have verified the
new version, loaded it into their model and said so. `copy x2` is two plain copies of the published file to two other
files of the same memory-backed folder, one after the other, in the same round. `model` is the generators' models
alone; the engines add what they do around a load (vLLM repacks, both probe).

Four processes work at once, so other load on the machine costs them more than it costs the copies: the best round is
shown beside the median.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from stream_rl import fingerprint
from stream_rl.errors import GenerationFailed
from stream_rl.generate.options import GeneratorOptions
from stream_rl.ports import GenerateRequest, GenerateResult, Generator
from stream_rl.types import UpdateReport, WeightsManifest

RUN = "benchmark"
NUM_GENERATORS = 2
MAX_LINE_BYTES = 1 << 24


class Receiver:
    """One generator process, asked by lines of JSON."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = BufferedByteReceiveStream(process.stdout)

    async def ask(self, manifest: WeightsManifest | None) -> dict[str, Any]:
        """Have a version loaded; None: wait until the generator is up."""
        if manifest is not None:
            await self._input.send(msgspec.json.encode(manifest) + b"\n")
        answer: dict[str, Any] = json.loads(await self._output.receive_until(b"\n", MAX_LINE_BYTES))
        return answer


@asynccontextmanager
async def receiver(model: Path, folder: Path, engine: str) -> AsyncIterator[Receiver]:
    """A generator process for the length of the block."""
    command = [sys.executable, "-m", "benchmarks.publish", "--receive", str(model), str(folder), engine]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    async with await anyio.open_process(command, stderr=None, env=environment) as process:
        yield Receiver(process)
        assert process.stdin is not None
        await process.stdin.aclose()
        await process.wait()


class Holder:
    """A generator that only holds its model: verifies and loads, and samples nothing."""

    engine = "model"

    def __init__(self, options: GeneratorOptions) -> None:
        from stream_rl.generate.batch_model import BatchModel

        self.version = options.version
        self._model = BatchModel(options)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        raise GenerationFailed("this generator holds a model and samples nothing")

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        began = time.monotonic()
        found = await to_thread.run_sync(fingerprint.verify, manifest)
        verified = time.monotonic()
        await to_thread.run_sync(self._model.load, manifest.path)
        ended = time.monotonic()
        self.version = manifest.version
        return UpdateReport(version=self.version, fingerprint=found, pause_s=ended - began, load_s=ended - verified)

    async def aclose(self) -> None:
        """Nothing is held but memory."""


async def receive(model: str, folder: str, engine: str) -> None:
    """The generator process: load what the lines of stdin name, until they end."""
    from stream_rl.generate.weights_stream import StreamedGenerator

    options = GeneratorOptions(model=model, dtype="bfloat16", max_model_len=256, concurrency=1, run_id=RUN)
    inner: Generator
    if engine == "vllm":
        from stream_rl.generate.vllm_engine import VllmGenerator

        inner = await VllmGenerator.start(options)
    elif engine == "model":
        inner = Holder(options)
    else:
        from stream_rl.generate.transformers_engine import TransformersGenerator

        inner = await TransformersGenerator.start(options)
    generator = StreamedGenerator(inner, Path(folder))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    out.write("{}\n")
    while line := await to_thread.run_sync(sys.stdin.readline):
        manifest = msgspec.json.decode(line, type=WeightsManifest)
        out.write(json.dumps(msgspec.to_builtins(await generator.update(manifest))) + "\n")
    await generator.aclose()


def make_model(folder: Path) -> Any:
    """SmolLM2-135M's shapes with random numbers, saved where the generators load it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return model


async def measure(model: Any, folder: Path, transport: str, engine: str, rounds: int) -> list[dict[str, float]]:
    """Seconds of each part of each round."""
    from learner.weights.files import FilesPublisher
    from learner.weights.port import TensorSpec
    from learner.weights.stream import open_chunk_server

    specs = [TensorSpec(name=n, dtype=p.dtype, shape=tuple(p.shape)) for n, p in model.named_parameters()]
    found = []
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_chunk_server(folder / "out", RUN))
        receivers = [
            await stack.enter_async_context(receiver(folder / "model", folder / f"in-{i}", engine))
            for i in range(NUM_GENERATORS)
        ]
        for each in receivers:
            await each.ask(None)
        publisher = FilesPublisher(
            folder / "out",
            RUN,
            transport="stream" if transport == "stream" else "files",
            address=server.address if transport == "stream" else "",
        )
        for version in range(1, rounds + 2):  # the first is not counted: pages and caches are cold
            tensors = (parameter.detach() for parameter in model.parameters())
            began = time.perf_counter()
            manifest = await to_thread.run_sync(publisher.publish, version, specs, tensors)
            published = time.perf_counter()
            reports: list[dict[str, Any]] = []

            async def load(each: Receiver, manifest: WeightsManifest, reports: list[dict[str, Any]]) -> None:
                reports.append(await each.ask(manifest))

            async with anyio.create_task_group() as tasks:
                for each in receivers:
                    tasks.start_soon(load, each, manifest, reports)
            ended = time.perf_counter()
            assert [report["fingerprint"] for report in reports] == [manifest.fingerprint] * NUM_GENERATORS
            found.append(
                {
                    "publish": published - began,
                    "total": ended - began,
                    "load": max(report["load_s"] for report in reports),
                    "copy": await to_thread.run_sync(copy_twice, Path(manifest.path), folder),
                    "bytes": float(manifest.num_bytes),
                }
            )
    return found[1:]


def copy_twice(path: Path, folder: Path) -> float:
    """Seconds of two copies of the file."""
    began = time.perf_counter()
    for i in range(2):
        shutil.copyfile(path, folder / f"copy-{i}")
    took = time.perf_counter() - began
    for i in range(2):
        (folder / f"copy-{i}").unlink()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", nargs="+", choices=("files", "stream"), default=["files", "stream"])
    parser.add_argument("--engine", choices=("model", "transformers", "vllm"), default="model")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", default="/dev/shm", help="a memory-backed folder")
    parser.add_argument("--receive", nargs=3, metavar=("MODEL", "FOLDER", "ENGINE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.receive:
        anyio.run(receive, *args.receive)
        return
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="publish-") as name:
        folder = Path(name)
        model = make_model(folder / "model")
        print(
            f"{'transport':>10} {'MB':>5} {'publish':>8} {'load':>7} {'total':>7} {'copy x2':>8} {'ratio':>6}  seconds"
        )
        for transport in args.transport:
            rows = anyio.run(measure, model, folder, transport, args.engine, args.rounds)
            for label, pick in (("median", statistics.median), ("best", min)):
                publish, load, total, copy, size = (
                    pick([row[key] for row in rows]) for key in ("publish", "load", "total", "copy", "bytes")
                )
                print(
                    f"{transport:>10} {size / 1e6:5.0f} {publish:8.3f} {load:7.3f} {total:7.3f} {copy:8.3f} "
                    f"{total / copy:6.2f}   {label} of {len(rows)} rounds"
                )


if __name__ == "__main__":
    main()
