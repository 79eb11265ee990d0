"""Generators that die while a run goes on, as real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from stream_rl.observe.rundir import read_json_lines
from tests.process.runner import Up, gone, overrides, pid_of, run
from tests.unit.generate.server_twin import ServerTwin, serving

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@pytest.mark.vllm
def test_a_vllm_engine_killed_while_weights_come_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    """kill -9 of the engine's own process at the moment an update is announced; its producer survives to tell."""
    settings = overrides("generate.engine=vllm", "updates=4", "async_depth=1", "eval.every=0")
    up = Up(tmp_path, "--name", "t", *settings)
    up.until(lambda event: event["type"] == "update" and event["step"] >= 1, within_s=150)
    os.kill(pid_of(tmp_path, "EngineCore"), signal.SIGKILL)
    up.until(lambda event: event["type"] == "role_restarted", within_s=150)
    up.succeed(within_s=250)
    assert gone(tmp_path) == []
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["version"] for line in lines] == [1, 2, 3, 4]
    assert all(line["lag"]["max"] <= 1 for line in lines)
    assert all(line["kl_behavior"] < 1e-4 for line in lines if line["lag"]["max"] == 0)


@contextmanager
def _listening(twin: ServerTwin) -> Iterator[str]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(twin)) as url:
        yield url


def test_servers_come_and_go_while_a_run_goes_on(tmp_path: Path) -> None:
    """Refused, attached, gone, dropped, detached: as the user sees it. The server is scripted, all else is real."""
    # A scripted generator of its own says nothing of its weights that a scripted server would have to agree with.
    settings = overrides("generate.engine=scripted", "updates=100000", "eval.every=0")
    up = Up(tmp_path, "--name", "t", *settings)

    def goes_on() -> None:
        seen = max((event["step"] for event in up.events if event["type"] == "update"), default=-1)
        up.until(lambda event: event["type"] == "update" and event["step"] > seen + 1)

    def listed() -> dict[str, dict[str, Any]]:
        answer = run(tmp_path, "generator", "list", "--json")
        assert answer.returncode == 0, answer.stderr
        return {generator["name"]: generator for generator in json.loads(answer.stdout)}

    goes_on()
    with _listening(ServerTwin(lacks={"/server_info"})) as url:
        refused = run(tmp_path, "generator", "attach", url)
    assert refused.returncode == 2
    assert "VLLM_SERVER_DEV_MODE=1" in refused.stderr

    twin = _fitting(tmp_path)
    with _listening(twin) as url:
        attached = run(tmp_path, "generator", "attach", url, "--run", "t")
        assert attached.returncode == 0, attached.stderr
        assert f"producer-1    {url}: starting" in attached.stdout  # the first: the refused one got no producer
        up.until(lambda event: event["type"] == "producer_ready" and event["name"] == "producer-1")
        goes_on()
        there = listed()["producer-1"]
        assert (there["url"], there["state"], there["engine"]) == (url, "ready", "vllm-http")
        assert there["version"] > 0
        assert twin.loaded
        assert len(twin.asked) > 1  # one to look at it
    lost = up.until(lambda event: event["type"] == "role_restarted")
    assert lost["name"] == "producer-1"
    assert url in lost["reason"]
    goes_on()
    problem = listed()["producer-1"]["problem"]
    assert url in problem
    assert problem.startswith("tried again after")
    assert run(tmp_path, "generator", "detach", url).returncode == 0
    again = run(tmp_path, "generator", "detach", url)
    assert again.returncode == 2
    assert "was not attached" in again.stderr

    with _listening(_fitting(tmp_path)) as other:
        assert run(tmp_path, "generator", "attach", other).returncode == 0
    dropped = up.until(lambda event: event["type"] == "generator_dropped")  # gone before it ever served
    assert dropped["name"] == "producer-2"
    assert "no vLLM server can be reached" in dropped["reason"]
    assert listed()["producer-2"]["problem"].startswith("dropped: ")
    goes_on()

    up.interrupt()
    up.succeed(within_s=60)
    assert gone(tmp_path) == []


def _fitting(folder: Path) -> ServerTwin:
    """A server over the run's policy."""
    policy = Path((folder / "runs" / "t" / "policy").read_text(encoding="utf-8"))
    twin = ServerTwin()
    twin.shape = json.loads((policy / "config.json").read_text(encoding="utf-8"))
    twin.config["model_config"]["max_model_len"] = 1 << 20
    return twin
