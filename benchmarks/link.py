"""How fast a link carries messages from one process to another, each decoded and acknowledged.

    python -m benchmarks.link [--rounds 5] [--address tcp://127.0.0.1:0]

A producer process sends; this process is the hub, which decodes every message and acknowledges it at once. The clock
runs in the producer from the first send until everything is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import anyio
import numpy as np

from stream_rl.link.codec import Decoder, encode
from stream_rl.link.zmq_hub import open_hub
from stream_rl.link.zmq_link import open_link
from stream_rl.messages import ToOrchestrator, ToProducer, TrajectoryDone
from stream_rl.ports import Received
from stream_rl.types import Message, Sample, Task, Trajectory

WORK = (("2 kB", 0, 20_000), ("5,000 tokens", 5_000, 4_000))


def message(num_tokens: int) -> TrajectoryDone:
    """A trajectory of `num_tokens`, or for 0 a small one of 2 kB, mostly text."""
    tokens = num_tokens or 60
    sample = Sample(
        token_ids=np.arange(tokens, dtype=np.int32),
        loss_mask=np.ones(tokens, dtype=np.bool_),
        behavior_logprobs=np.zeros(tokens, dtype=np.float32),
        head=(Message(role="user", content="x" * 1_100),),
        head_tokens=0,
    )
    trajectory = Trajectory(
        id="g/0",
        group_id="g",
        member=0,
        task=Task(environment="household", split="train", index=0),
        samples=(sample,),
        turns=(),
        reward=0.0,
        success=False,
        score=0.0,
    )
    return TrajectoryDone(trajectory=trajectory)


async def produce(address: str, num_tokens: int, count: int) -> float:
    """Send `count` messages. Returns the seconds until the last was acknowledged."""
    sent = message(num_tokens)
    async with open_link(address, role="producer", name="bench", receive=Decoder[ToProducer](ToProducer)) as link:
        started = time.perf_counter()
        for _ in range(count):
            await link.send(sent)
        await link.settle()
        return time.perf_counter() - started


async def measure(address: str, num_tokens: int, count: int, rounds: int) -> list[float]:
    """Messages a second of each round."""
    rates = []
    async with open_hub(address, receive=Decoder[ToOrchestrator](ToOrchestrator)) as hub:

        async def serve() -> None:
            async for event in hub:
                if isinstance(event, Received):
                    event.ack()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            for _ in range(rounds):
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.link",
                    "--produce",
                    hub.address,
                    str(num_tokens),
                    str(count),
                ]
                done = await anyio.run_process(command, stderr=None)
                rates.append(count / float(json.loads(done.stdout)))
            tasks.cancel_scope.cancel()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--address", default="tcp://127.0.0.1:0")
    parser.add_argument("--produce", nargs=3, metavar=("ADDRESS", "TOKENS", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.produce:
        address, num_tokens, count = args.produce
        print(json.dumps(anyio.run(produce, address, int(num_tokens), int(count))))
        return
    print(f"{'message':>14} {'bytes':>8} {'messages/s':>12} {'min':>8} {'max':>8} {'MB/s':>8}")
    for name, num_tokens, count in WORK:
        size = sum(map(len, encode(message(num_tokens))))
        rates = anyio.run(measure, args.address, num_tokens, count, args.rounds)
        median = statistics.median(rates)
        print(f"{name:>14} {size:8d} {median:12.0f} {min(rates):8.0f} {max(rates):8.0f} {median * size / 1e6:8.1f}")


if __name__ == "__main__":
    main()
