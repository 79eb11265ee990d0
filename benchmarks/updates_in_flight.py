"""Weight updates of a real engine under load: how long the pause is, and whether every token is accounted for.

Sessions sample without end while versions of the embedded policy, each a little different, are loaded one after the
other. After every update the probe, asked of the engine while it is paused, is compared with a plain forward of the
version's file; of some versions an engine is started afresh and says the same prompts greedily when idle.

    python -m benchmarks.updates_in_flight --updates 50 --sessions 32 --fresh 3
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from stream_rl import fingerprint
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.generate import probe
from stream_rl.generate.options import GeneratorOptions, model_shape
from stream_rl.generate.vllm_engine import VllmGenerator
from stream_rl.ports import GenerateRequest, GenerateResult, Generator
from stream_rl.types import UpdateReport, WeightsManifest

_RUN = "benchmark"
_TURN_TOKENS = 40
_GREEDY_TOKENS = 24
_STEP = 1e-3  # standard deviation of what a version adds to each parameter


class Versions:
    """Files of the policy that drift by a random walk, and what a plain forward says of each."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._folder = folder
        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._random = torch.Generator().manual_seed(0)

    def publish(self, version: int) -> WeightsManifest:
        with torch.no_grad():
            for parameter in self._model.parameters():
                parameter.add_(torch.empty_like(parameter).normal_(0, _STEP, generator=self._random))
        path = self._folder / f"v{version:05d}.safetensors"
        tied = "lm_head.weight" if self._model.config.tie_word_embeddings else None
        save_file({k: v.contiguous() for k, v in self._model.state_dict().items() if k != tied}, path)
        return fingerprint.manifest_of(path, run_id=_RUN, version=version)

    @torch.inference_mode()
    def probe(self, ids: list[int]) -> list[float]:
        table = torch.log_softmax(self._model(torch.tensor([ids]), use_cache=False).logits[0], -1)
        said = table.gather(1, torch.tensor([*ids[1:], int(table[-1].argmax())])[:, None])[:, 0]
        return [float(value) for value in said.tolist()]

    def model_of(self, model: Path, manifest: WeightsManifest) -> str:
        """A model folder that holds the version's file."""
        folder = self._folder / f"model-{manifest.version}"
        folder.mkdir()
        for name in ("config.json", "generation_config.json"):
            if (model / name).exists():
                (folder / name).symlink_to((model / name).resolve())
        (folder / "model.safetensors").symlink_to(manifest.path)
        return str(folder)


class Session:
    """One caller that asks again and again, and what it was told."""

    def __init__(self, generator: Generator, seed: int, vocab_size: int) -> None:
        self._generator = generator
        self._random = random.Random(seed)
        self._vocab_size = vocab_size
        self.results: list[GenerateResult] = []

    async def run(self, over: anyio.Event) -> None:
        while not over.is_set():
            ids = [self._random.randrange(self._vocab_size) for _ in range(60 + self._random.randrange(100))]
            self.results.append(await self._generator.generate(_request(ids, _TURN_TOKENS, 1.0)))


def _request(ids: list[int], max_tokens: int, temperature: float) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=np.asarray(ids, dtype=np.int32), max_tokens=max_tokens, temperature=temperature, stop_token_ids=()
    )


async def _greedy(generator: Generator, vocab_size: int) -> list[tuple[list[int], list[float]]]:
    """What an idle generator says to a few prompts, one after the other."""
    said = []
    for seed in range(4):
        numbers = random.Random(seed)
        ids = [numbers.randrange(vocab_size) for _ in range(50 + 20 * seed)]
        result = await generator.generate(_request(ids, _GREEDY_TOKENS, 0.0))
        said.append((result.token_ids.tolist(), result.logprobs.tolist()))
    return said


def _pairs(
    here: list[tuple[list[int], list[float]]], there: list[tuple[list[int], list[float]]]
) -> list[tuple[float, float]]:
    return [pair for (_, a), (_, b) in zip(here, there, strict=True) for pair in zip(a, b, strict=True)]


async def measure(arguments: argparse.Namespace) -> int:
    model = ensure_policy(arguments.model, "pretrained", None, lambda what, step, total: None)
    vocab_size = model_shape(str(model)).vocab_size
    ids = probe.prompt(vocab_size)
    with tempfile.TemporaryDirectory(dir=_memory()) as name:
        versions = Versions(model, Path(name))
        options = GeneratorOptions(
            model=str(model), max_model_len=512, concurrency=arguments.sessions + 1, run_id=_RUN, threads=1
        )
        generator = await VllmGenerator.start(options)
        sessions = [Session(generator, seed, vocab_size) for seed in range(arguments.sessions)]
        reports: list[UpdateReport] = []
        calls_ms: list[float] = []
        worst = 0.0
        over = anyio.Event()
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(session.run, over)
            for version in range(1, arguments.updates + 1):
                await anyio.sleep(arguments.gap)
                manifest = await anyio.to_thread.run_sync(versions.publish, version)
                asked = time.monotonic()
                reports.append(await generator.update(manifest))
                calls_ms.append(1000 * (time.monotonic() - asked))
                expected = await anyio.to_thread.run_sync(versions.probe, ids)
                worst = max(worst, float(np.abs(np.subtract(reports[-1].probe, expected)).max()))
            over.set()
        seconds = time.monotonic() - began
        results = [result for session in sessions for result in session.results]
        _account(results, arguments.updates)
        pauses = sorted(1000 * report.pause_s for report in reports)
        calls_ms.sort()
        loads = sorted(1000 * report.load_s for report in reports)
        print(
            f"{arguments.updates} updates, {arguments.sessions} sessions, {len(results)} turns, "
            f"{sum(len(r.token_ids) for r in results) / seconds:.0f} tokens/s, "
            f"{sum(len(r.spans) > 1 for r in results)} turns of more than one version; every turn complete, "
            "every token in one span"
        )
        print(
            f"pause p50 {_at(pauses, 0.5):.0f} ms, p95 {_at(pauses, 0.95):.0f} ms, max {pauses[-1]:.0f} ms; "
            f"of it loading p50 {_at(loads, 0.5):.0f} ms, p95 {_at(loads, 0.95):.0f} ms; "
            f"the whole call, with verifying the file and the steps before and after, p50 {_at(calls_ms, 0.5):.0f} ms"
        )
        print(f"probe against a plain forward of the same file, largest difference of all versions: {worst:.1e} nats")
        again = 0.0
        for _ in range(arguments.fresh):
            manifest = versions.publish(generator.version + 1)
            await generator.update(manifest)
            here = await _greedy(generator, vocab_size)
            folder = versions.model_of(model, manifest)
            fresh = await VllmGenerator.start(msgspec.structs.replace(options, model=folder))
            there = await _greedy(fresh, vocab_size)
            await fresh.aclose()
            if [tokens for tokens, _ in here] != [tokens for tokens, _ in there]:
                print(f"version {manifest.version}: a fresh engine says other tokens")
                return 1
            again = max(again, *(abs(a - b) for a, b in _pairs(here, there)))
        await generator.aclose()
        print(f"{arguments.fresh} engines started afresh from the same file: same greedy tokens, largest {again:.1e}")
    return 0


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _account(results: list[GenerateResult], updates: int) -> None:
    for result in results:
        counted = sum(span.num_tokens for span in result.spans)
        numbers = [span.version for span in result.spans]
        if not (len(result.token_ids) == len(result.logprobs) == counted == _TURN_TOKENS):
            raise AssertionError(f"{len(result.token_ids)} of {_TURN_TOKENS} tokens, {counted} in spans {result.spans}")
        if numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] <= updates:
            raise AssertionError(f"versions {numbers} of one turn, after {updates} updates")


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="as policy.model")
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--gap", type=float, default=0.2, help="seconds between updates")
    parser.add_argument("--fresh", type=int, default=3, help="versions compared with an engine started afresh")
    return anyio.run(measure, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
