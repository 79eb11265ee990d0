"""The composition root: each role is put together here from concrete parts, and nowhere else."""

from __future__ import annotations

import argparse
import gc
import os
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from stream_rl.app.child import BoardPipe, until
from stream_rl.app.evaluator import evaluate
from stream_rl.app.parity import parity
from stream_rl.app.parts import judge_pid_file, judge_pids, num_held_out, open_pool, run_of, start_generator
from stream_rl.app.windows import windows
from stream_rl.config import Config, JudgeConfig, JudgeEndpoint
from stream_rl.link.codec import Decoder
from stream_rl.messages import ToLearner, ToOrchestrator, ToProducer
from stream_rl.observe.loop_lag import LoopLag
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.ports import Judge
from stream_rl.rubrics import vocabulary
from stream_rl.rubrics.writing import WritingOptions, load_template

if TYPE_CHECKING:
    from judge.cache import CachedJudge
    from judge.client import OpenAIJudge

_JUDGE_WORKERS = 512  # questions the judge holds at once; its endpoints decide how many of them are asked
_PROGRESS_S = 0.25  # between two movements of a progress bar


async def policy(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """Make or find the start policy; tell its folder."""
    from stream_rl.app.embedded_policy import ensure_policy

    run, config = run_of(arguments)
    last = 0.0

    def progress(what: str, step: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_S or step == total:
            last = now
            board({"type": "policy", "what": what, "step": step, "total": total})

    def build() -> Path:
        return ensure_policy(config.policy.model, config.policy.init, None, progress)

    path = await anyio.to_thread.run_sync(build, abandon_on_cancel=True)
    run.policy.write_text(str(path), encoding="utf-8")
    board({"type": "ready", "path": str(path)})


async def judge(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """The embedded rule judge, until told to stop. Started again, it takes the same port if that is free."""
    from judge.server import serve

    run, config = run_of(arguments)
    delay_s = config.judge.endpoints[arguments.index].delay_s
    port_file = run.root / f"judge_port_{arguments.index}"
    pid_file = judge_pid_file(run, arguments.index)
    port = int(port_file.read_text(encoding="ascii")) if port_file.exists() else 0

    def ready(address: str) -> None:
        port_file.write_text(address.rsplit(":", 1)[1].split("/")[0], encoding="ascii")
        pid_file.write_text(str(os.getpid()), encoding="ascii")
        board({"type": "ready", "address": address})

    await until(stop, partial(serve, delay_s=delay_s), "127.0.0.1", port, ready)
    port_file.unlink(missing_ok=True)
    pid_file.unlink(missing_ok=True)


async def orchestrator(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """The owner of the run's state."""
    from judge.client import OpenAIJudge
    from stream_rl.app.watching import serve_page
    from stream_rl.link.zmq_hub import open_hub
    from stream_rl.observe.cpu import CpuClock
    from stream_rl.orchestrator.ledger import Ledger
    from stream_rl.orchestrator.service import Orchestrator

    run, config = run_of(arguments)
    words = vocabulary.load(config.judge.vocabulary)
    version = _checkpoint_version(arguments.checkpoint)
    embedded = [i for i, endpoint in enumerate(config.judge.endpoints) if endpoint.url == "embedded"]
    judges = {"judges": partial(judge_pids, run, embedded)} if embedded else {}
    ledger = Ledger(run.ledger, run.run_id)
    ledger.rewind(version, time.time())
    async with AsyncExitStack() as stack:
        endpoints = _with_addresses(config.judge.endpoints, arguments.judge)
        asked: OpenAIJudge | None = None  # who attaches and detaches
        remembered: Judge | None = None
        if endpoints:
            judging = config.judge
            asked = remembered = await stack.enter_async_context(
                OpenAIJudge(endpoints, words, chunk=judging.chunk, hedge_share=judging.hedge_share)
            )
            if any(endpoint.url != "embedded" for endpoint in config.judge.endpoints):  # rules cost nothing to ask
                remembered = await stack.enter_async_context(_cached(asked, run, words, judging))
        address = f"tcp://127.0.0.1:{config.port}"
        hub = await stack.enter_async_context(open_hub(address, receive=Decoder(ToOrchestrator)))
        service = Orchestrator(
            config=msgspec.structs.replace(config, judge=msgspec.structs.replace(config.judge, endpoints=endpoints)),
            run=run,
            hub=hub,
            ledger=ledger,
            judge=remembered,
            second_judge=asked,
            judge_workers=_JUDGE_WORKERS,
            judges=asked,
            vocabulary=words,
            board=board,
            version=version,
            loop_lag=LoopLag(),
            embedded_judges=len(embedded),
            cpu=CpuClock("orchestrator", beside=judges).lap,
        )
        if arguments.resumed:
            line = max(read_json_lines(run.metrics), key=lambda record: record["step"], default={})
            service.go_on_from(
                wall_s=line.get("wall_s", 0.0),
                train_s=line.get("train_s", 0.0),
                evaluated=max((r["step"] for r in read_json_lines(run.eval)), default=-1),
            )
        run.address.write_text(hub.address, encoding="ascii")
        async with anyio.create_task_group() as tasks:
            if config.page.serve:
                page = await tasks.start(serve_page, run, config, words, config.page.port)
                board({"type": "page", "address": page})
            board({"type": "ready", "address": hub.address})
            await service.run(stop)
            tasks.cancel_scope.cancel()


async def producer(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """One generator with its environment workers."""
    from stream_rl.generate.weights_stream import StreamedGenerator
    from stream_rl.link.zmq_link import open_link
    from stream_rl.observe.cpu import CpuClock
    from stream_rl.producer.service import Producer
    from stream_rl.renderer import load_renderer

    run, config = run_of(arguments)
    renderer = await anyio.to_thread.run_sync(load_renderer, arguments.model)
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(config))
        generator = await start_generator(
            *(config, run, arguments.model, arguments.index),
            server=arguments.server,
            key_env=arguments.server_key_env,
            believe=False,  # a server outlives processes, and what went wrong in them: it gets the newest weights first
        )
        stack.push_async_callback(generator.aclose)
        if config.weights.transport == "stream":
            generator = StreamedGenerator(generator, Path(arguments.weights) / f"pulled-{arguments.index}")
        name = f"producer-{arguments.index}"
        receive: Decoder[ToProducer] = Decoder(ToProducer)
        link = await stack.enter_async_context(
            open_link(arguments.address, role="producer", name=name, receive=receive)
        )
        service = Producer(
            link,
            generator,
            pool,
            renderer,
            vocabulary.load(config.judge.vocabulary),
            capacity=config.generate.concurrency,
            max_model_len=config.generate.max_model_len,
            windows=windows(config),
            num_held_out=num_held_out(config, pool),
            writing=_writing(config),
            mode=config.weights.mode,
            cpu=CpuClock("producers", children="generators", parts={"environments": lambda: pool.pids}).lap,
        )
        gc.collect()
        gc.freeze()  # what start-up made stays; every turn makes garbage, and the collector need not walk it all again
        gc.set_threshold(100_000, 50, 100)  # nor what hundreds of rollouts hold, after every 700 objects
        board({"type": "ready"})
        await until(stop, service.run)


async def learner(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """One rank of the learner; rank 0 has the link."""
    from learner.service import LearnerOptions, run_rank
    from stream_rl.link.zmq_link import open_link

    run, config = run_of(arguments)
    generate = config.generate
    options = LearnerOptions(
        run_id=run.run_id,
        run_dir=str(run.root),
        model=arguments.model,
        weights_dir=arguments.weights,
        seed=config.seed,
        temperature=generate.temperature,
        max_model_len=generate.max_model_len,
        episode_tokens=config.episode_tokens,
        max_lag=config.lag_limit,
        keep_versions=config.async_depth + 2,
        algorithm=config.algorithm,
        learner=config.learner,
        weights=config.weights,
        dtype=config.policy.dtype,
        resume_from=arguments.checkpoint,
    )
    if os.environ["RANK"] != "0":
        await until(stop, run_rank, options, None)
        return
    receive: Decoder[ToLearner] = Decoder(ToLearner)
    async with open_link(arguments.address, role="learner", name="learner", receive=receive) as link:
        await until(stop, run_rank, options, link)


ROLES = {
    "policy": policy,
    "judge": judge,
    "orchestrator": orchestrator,
    "producer": producer,
    "learner": learner,
    "evaluate": evaluate,
    "parity": parity,
}


def _cached(judge: OpenAIJudge, run: RunDirectory, words: vocabulary.Vocabulary, config: JudgeConfig) -> CachedJudge:
    from judge.cache import CachedJudge

    return CachedJudge(
        judge,
        run.judge_cache,
        vocabulary=words,
        models=lambda: [endpoint.model for endpoint in judge.standing()],
        chunk=config.chunk,
    )


def _with_addresses(endpoints: tuple[JudgeEndpoint, ...], judges: list[str]) -> tuple[JudgeEndpoint, ...]:
    """Replace "embedded" by the address the supervisor was told ("0=http://...")."""
    addresses = dict(item.split("=", 1) for item in judges)
    return tuple(
        msgspec.structs.replace(endpoint, url=addresses[str(i)]) if endpoint.url == "embedded" else endpoint
        for i, endpoint in enumerate(endpoints)
    )


def _writing(config: Config) -> WritingOptions | None:
    """How the policy writes rubric bundles, where the run asks it to."""
    if not config.needs_bundles:
        return None
    algorithm = config.algorithm
    return WritingOptions(template=load_template(algorithm.writing_prompt), bundle_tokens=algorithm.bundle_tokens)


def _checkpoint_version(folder: str | None) -> int:
    return int(Path(folder).name) if folder else 0
