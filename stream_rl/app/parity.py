"""The role behind `check`'s log-probability parity: one engine, one plain forward, one comparison."""

from __future__ import annotations

import argparse

import anyio
import msgspec

from stream_rl.app.child import BoardPipe
from stream_rl.app.parts import generator_options, run_of, start_generator
from stream_rl.errors import GenerationFailed


async def parity(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """Compare and tell. Raises `GenerationFailed` with the numbers and the likely reason when they are far apart."""
    from stream_rl.generate.parity import judge, measure

    run, config = run_of(arguments)
    generator = await start_generator(config, run, arguments.model, 0)
    try:
        found = await measure(generator, generator_options(config, run, arguments.model, 0))
    finally:
        await generator.aclose()
    told = "; ".join(f"T = {p.temperature:g}: mean {p.mean:.1e}, max {p.max:.1e} nats" for p in found)
    reason = judge(found, config.policy.dtype)
    if reason is not None:
        raise GenerationFailed(
            f"the log-probabilities of {generator.engine} are not those of a plain forward of {arguments.model} "
            f"({told}): {reason}"
        )
    board({"type": "ready", "told": told, "parity": msgspec.to_builtins(found)})
