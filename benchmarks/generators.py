"""Turns a second of a generator under the load of the embedded default, and what each turn costs in CPU time.

Sessions play episodes of 14 turns. A turn's prompt is the whole history, 60 to 230 tokens; it samples 2 to 6 tokens
and gets an observation of 7. Stop tokens are not used, so the lengths do not depend on the random weights.

    python -m benchmarks.generators --engine vllm --set block_size=128
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
import numpy as np

from stream_rl.generate.options import GeneratorOptions
from stream_rl.ports import GenerateRequest, Generator
from tests import micro_models

_TURNS = 14
_OBSERVATION_TOKENS = 7
_TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """What the sessions did so far."""

    def __init__(self) -> None:
        self.turns = 0
        self.tokens = 0
        self.latencies_s: list[float] = []


async def session(generator: Generator, load: Load, seed: int) -> None:
    numbers = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [numbers.randrange(8, micro_models.VOCAB) for _ in range(count)]

    while True:
        history = ids(60 + numbers.randrange(10))
        for _ in range(_TURNS):
            began = time.monotonic()
            result = await generator.generate(
                GenerateRequest(
                    prompt_ids=np.asarray(history, dtype=np.int32),
                    max_tokens=numbers.randint(2, 6),
                    temperature=1.0,
                    stop_token_ids=(),
                )
            )
            load.latencies_s.append(time.monotonic() - began)
            load.turns += 1
            load.tokens += len(result.token_ids)
            history += result.token_ids.tolist() + ids(_OBSERVATION_TOKENS)


def cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


async def start(engine: str, options: GeneratorOptions, changes: dict[str, Any]) -> Generator:
    if engine == "transformers":
        from stream_rl.generate.transformers_engine import TransformersGenerator

        return await TransformersGenerator.start(options)
    from stream_rl.generate import vllm_engine

    chosen = vllm_engine.engine_arguments

    def changed(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return chosen(*args, **kwargs) | changes

    vllm_engine.engine_arguments = changed  # what this benchmark is for
    return await vllm_engine.VllmGenerator.start(options)


async def measure(arguments: argparse.Namespace) -> None:
    changes = dict(pair.split("=", 1) for pair in arguments.set)
    with tempfile.TemporaryDirectory() as folder:
        options = GeneratorOptions(
            model=micro_models.save(micro_models.make(0), Path(folder) / "model"),
            max_model_len=micro_models.MAX_LEN,
            concurrency=arguments.concurrency,
            run_id="benchmark",
        )
        began = time.monotonic()
        generator = await start(arguments.engine, options, {k: _value(v) for k, v in changes.items()})
        start_s = time.monotonic() - began
        load = Load()
        async with anyio.create_task_group() as group:
            for seed in range(arguments.sessions):
                group.start_soon(session, generator, load, seed)
            await anyio.sleep(3.0)
            children = descendants(os.getpid())
            before = load.turns, load.tokens, time.monotonic(), cpu_s(os.getpid()), sum(map(cpu_s, children))
            load.latencies_s.clear()
            await anyio.sleep(arguments.seconds)
            turns, tokens = load.turns - before[0], load.tokens - before[1]
            seconds = time.monotonic() - before[2]
            own, engine = cpu_s(os.getpid()) - before[3], sum(map(cpu_s, children)) - before[4]
            latencies = sorted(load.latencies_s)
            group.cancel_scope.cancel()
        await generator.aclose()
    print(
        f"{arguments.engine} {' '.join(arguments.set) or 'as configured'}, {arguments.sessions} sessions: "
        f"{turns / seconds:.0f} turns/s, {tokens / seconds:.0f} tokens/s, "
        f"CPU s a 1000 turns: {1000 * own / turns:.2f} here + {1000 * engine / turns:.2f} engine, "
        f"turn p50 {1000 * latencies[len(latencies) // 2]:.0f} ms, start {start_s:.1f} s"
    )


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="argument of vLLM's engine")
    anyio.run(measure, parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
