"""Generators that die while a run goes on, as real processes."""

from __future__ import annotations

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stream_rl.observe.rundir import read_json_lines
from tests.process.runner import Up, gone, overrides, pid_of, run

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]


@pytest.mark.vllm
def test_a_vllm_engine_killed_while_weights_come_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    """kill -9 of the engine's own process at the moment an update is announced; its producer survives to tell."""
    settings = overrides("generate.engine=vllm", "updates=4", "async_depth=1", "eval.every=0")
    up = Up(tmp_path, "--name", "t", *settings)
    up.until(lambda event: event["type"] == "update" and event["step"] >= 1, within_s=150)
    os.kill(pid_of(tmp_path, "EngineCore"), signal.SIGKILL)
    up.until(lambda event: event["type"] == "role_restarted", within_s=60)
    up.succeed(within_s=150)
    assert gone(tmp_path) == []
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["version"] for line in lines] == [1, 2, 3, 4]
    assert all(line["lag"]["max"] <= 1 for line in lines)
    assert all(line["kl_behavior"] < 1e-4 for line in lines if line["lag"]["max"] == 0)


def test_a_server_that_cannot_take_weights_is_dropped_and_the_run_goes_on(tmp_path: Path) -> None:
    """`generator attach` of something that is no vLLM server in development mode."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers 501 to everything
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = overrides("generate.engine=transformers", "updates=500", "eval.every=0")
        up = Up(tmp_path, "--name", "t", *settings)
        up.until(lambda event: event["type"] == "update")
        attached = run(tmp_path, "generator", "attach", url, "--run", "t", "--json")
        assert attached.returncode == 0, attached.stderr
        assert [(g["name"], g["url"]) for g in json.loads(attached.stdout)] == [("producer-0", ""), ("producer-1", url)]
        dropped = up.until(lambda event: event["type"] == "generator_dropped", within_s=60)
        server.shutdown()
    assert dropped["name"] == "producer-1"
    assert "VLLM_SERVER_DEV_MODE=1" in dropped["reason"]
    seen = max(event["step"] for event in up.events if event["type"] == "update")
    up.until(lambda event: event["type"] == "update" and event["step"] > seen + 1)
    assert run(tmp_path, "generator", "detach", url, "--run", "t").returncode == 0
    refused = run(tmp_path, "generator", "detach", url, "--run", "t")
    assert refused.returncode == 2
    assert "was not attached" in refused.stderr
    up.interrupt()
    up.succeed(within_s=60)
    assert gone(tmp_path) == []
