"""How `up` starts each role: command lines, variables, threads. Pure, but for a free port and `OMP_WAIT_POLICY`."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stream_rl.app.supervisor import Plans, RolePlan
from stream_rl.config import Config
from stream_rl.observe.rundir import RunDirectory


def sockets_folder(run_id: str) -> Path:
    """Where a generator's engine keeps the sockets of its own processes; short, since socket names may not be long."""
    return Path(tempfile.gettempdir()) / f"stream_rl-{run_id}"


def engine_variables(folder: Path) -> dict[str, str]:
    """Variables of a process that starts a generator. vLLM never removes its sockets: whoever made the folder does."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"VLLM_RPC_BASE_PATH": str(folder)}


def plans(
    config: Config, run: RunDirectory, *, weights: Path, resume_from: Path | None = None, resumed: bool = False
) -> Plans:
    """Everything `up` starts for this run. A resumed one goes on from a checkpoint folder, if it had one."""
    base = ("--run", str(run.root))
    resume = ("--checkpoint", str(resume_from)) if resume_from else ()

    def orchestrator(judges: Mapping[str, str]) -> RolePlan:
        urls = [part for name, url in judges.items() for part in ("--judge", f"{name.removeprefix('judge-')}={url}")]
        told = ("--resumed",) if resumed else ()
        arguments = ("orchestrator", *base, *resume, *told, *urls)
        return RolePlan(name="orchestrator", arguments=arguments, environment=_threads(1))

    def workers(address: str, model: str) -> tuple[RolePlan, ...]:
        common = (*base, "--address", address, "--model", model, "--weights", str(weights))
        port = _free_port() if config.learner.ranks > 1 else 0
        learners = tuple(
            RolePlan(
                name=f"learner-{rank}",
                arguments=("learner", *common, *resume),
                environment={
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(config.learner.ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    **_threads(config.learner.threads),
                },
            )
            for rank in range(config.learner.ranks)
        )
        producers = tuple(producer(address, model, i, ()) for i in range(config.generate.producers))
        return (*learners, *producers)

    def producer(address: str, model: str, index: int, more: tuple[str, ...]) -> RolePlan:
        common = (*base, "--address", address, "--model", model, "--weights", str(weights))
        return RolePlan(
            name=f"producer-{index}",
            arguments=("producer", *common, "--index", str(index), *more),
            environment={**_threads(config.generate.threads), **engine_variables(sockets_folder(run.run_id))},
            restart=True,
        )

    def guest(address: str, model: str, index: int, server: str, key_env: str) -> RolePlan:
        more = ("--server", server, *(("--server-key-env", key_env) if key_env else ()))
        return msgspec.structs.replace(producer(address, model, index, more), guest=True)

    return Plans(
        policy=RolePlan(name="policy", arguments=("policy", *base), environment=_threads(0)),
        services=tuple(
            RolePlan(
                name=f"judge-{i}", arguments=("judge", *base, "--index", str(i)), environment=_threads(1), restart=True
            )
            for i, endpoint in enumerate(config.judge.endpoints)
            if endpoint.url == "embedded"
        ),
        orchestrator=orchestrator,
        workers=workers,
        guest=guest,
    )


def _threads(count: int) -> dict[str, str]:
    """Thread variables of numeric libraries; they are read once, at import. 0 leaves them alone."""
    if not count:
        return {}
    return {
        "OMP_NUM_THREADS": str(count),
        "MKL_NUM_THREADS": str(count),
        # Roles share the cores. Threads that wait for each other by spinning take them from those they wait for: beside
        # other work a SmolLM2 update on two threads costs three times the CPU time.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def _free_port() -> int:
    """A port that is free now. Ranks of one machine meet on it a moment later."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
