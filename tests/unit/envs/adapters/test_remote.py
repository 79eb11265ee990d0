"""A world behind HTTP: our server, our client, and servers that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import anyio
import pytest
from anyio.to_thread import run_sync

from envs.adapters.remote import Remote
from envs.adapters.server import serve
from envs.pool import WorkerPool
from envs.registry import create
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import ConfigError, EnvironmentFailed, UsageError
from stream_rl.types import Task

COUNTED = "tests.unit.envs.worlds:Counted"
TASK = Task(environment="elsewhere", split="train", index=4)


class Served:
    """Our own server over real workers."""

    def __init__(self, address: str, pool: WorkerPool) -> None:
        self.address = address
        self.pool = pool


@asynccontextmanager
async def served(**more: Any) -> AsyncIterator[Served]:
    addresses: list[str] = []
    up = anyio.Event()

    def ready(address: str) -> None:
        addresses.append(address)
        up.set()

    async def run(pool: WorkerPool) -> None:
        await serve(pool, COUNTED, on_ready=ready, **more)

    async with WorkerPool([EnvironmentConfig(name=COUNTED)]) as pool, anyio.create_task_group() as group:
        group.start_soon(run, pool)
        await up.wait()
        yield Served(addresses[0], pool)
        group.cancel_scope.cancel()


async def at(url: str, **options: Any) -> Remote:
    return await run_sync(partial(Remote, url=url, **options))


async def test_episodes_over_http() -> None:
    async with served() as there:
        first, second = await at(there.address), await at(f"{there.address}/")
        assert (first.num_tasks("train"), first.num_tasks("held_out")) == (12, 3)
        assert (await run_sync(first.reset, TASK, 5)).text == f"{COUNTED}/train/4 seed 5"
        await run_sync(second.reset, TASK, 6)
        assert not (await run_sync(first.step, "a")).done
        assert (await run_sync(second.step, "a")).text.startswith("1 in ")
        assert not (await run_sync(first.step, "b")).done
        end = await run_sync(first.step, "c")
        assert (end.done, end.success, end.reward) == (True, True, 1.0)
        await run_sync(first.reset, TASK, 7)
        assert (await run_sync(first.step, "a")).text.startswith("1 in ")
        await run_sync(first.close)
        await run_sync(first.close)
        with pytest.raises(EnvironmentFailed, match="call reset first"):
            await run_sync(first.step, "a")
        await run_sync(second.close)
        async with aiohttp.ClientSession() as session, session.get(f"{there.address}/health") as answer:
            assert (await answer.json())["sessions"] == 0


async def test_a_world_that_fails_takes_its_session_along() -> None:
    async with served() as there:
        world = await at(there.address)
        await run_sync(world.reset, TASK, 5)
        with pytest.raises(EnvironmentFailed, match=r"500: .*the roof fell in"):
            await run_sync(world.step, "raise")
        with pytest.raises(EnvironmentFailed, match="call reset first"):
            await run_sync(world.step, "a")
        await run_sync(world.reset, TASK, 5)
        with pytest.raises(EnvironmentFailed, match="SIGKILL"):
            await run_sync(world.step, "kill")
        assert (await run_sync(world.reset, TASK, 5)).text  # the server has started its worker again
        await run_sync(world.close)


async def test_requests_that_make_no_sense() -> None:
    wrong: list[tuple[str, Any, int, str]] = [
        ("reset", b"{", 400, "truncated"),
        ("reset", b'{"session": "s"}', 400, "task"),
        ("reset", json.dumps({"session": "", "task": {"environment": "w", "split": "train", "index": 0}}), 400, "128"),
        ("reset", json.dumps({"session": "s", "task": {"environment": "w", "split": "x", "index": 0}}), 400, "split"),
        ("step", json.dumps({"session": "nobody's", "action": "a"}), 404, "nobody's"),
        ("close", json.dumps({"session": "nobody's"}), 200, ""),
        ("nowhere", b"{}", 404, "nowhere"),
    ]
    async with served() as there, aiohttp.ClientSession() as session:
        for path, body, status, said in wrong:
            async with session.post(f"{there.address}/{path}", data=body) as answer:
                assert answer.status == status
                if said:
                    assert said in (await answer.json())["error"]


async def test_idle_sessions_end_and_a_full_server_says_so() -> None:
    async with served(capacity=1, idle_s=2.0) as there:
        first = await at(there.address)
        second = await at(there.address, attempts=1)
        await run_sync(first.reset, TASK, 1)
        with pytest.raises(EnvironmentFailed, match="503: all 1 sessions are taken"):
            await run_sync(second.reset, TASK, 1)
        patient = await at(there.address, attempts=10)
        await run_sync(patient.reset, TASK, 1)  # comes again until the idle session has ended
        with pytest.raises(EnvironmentFailed, match="404: no session"):
            await run_sync(first.step, "a")
        for client in (first, second, patient):
            await run_sync(client.close)


async def test_a_key_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_KEY", "sesame")
    async with served(key="sesame") as there:
        with pytest.raises(EnvironmentFailed, match="401: the bearer token"):
            await at(there.address)
        world = await at(there.address, key_env="WORLD_KEY")
        assert (await run_sync(world.reset, TASK, 5)).text
        await run_sync(world.close)


async def test_an_open_address_needs_a_key() -> None:
    async with WorkerPool([]) as pool:
        with pytest.raises(UsageError, match="--key-env"):
            await serve(pool, "w", host="0.0.0.0")
        with pytest.raises(UsageError, match="cannot listen on"):
            await serve(pool, "w", port=70_000)


@contextmanager
def strange(answers: Callable[[str, int], tuple[int, bytes] | None]) -> Iterator[tuple[str, list[str]]]:
    """A server whose `answers(path, call number)` are sent as they are; None: the connection is dropped."""
    calls: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path = self.path.strip("/")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if path != "health":
                calls.append(path)
            answer = (200, _HEALTHY) if path == "health" else answers(path, len(calls))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_HEALTHY = json.dumps({"world": "strange", "protocol": 1, "colour": "unknown fields are ignored"}).encode()
_BEGUN = json.dumps({"text": "begun"}).encode()


def test_reset_is_tried_again_and_step_is_not() -> None:
    def answers(path: str, call: int) -> tuple[int, bytes] | None:
        return (200, _BEGUN) if path == "reset" and call == 3 else None

    with strange(answers) as (url, calls):
        world = Remote(url=url, attempts=3)
        assert world.reset(TASK, 1).text == "begun"
        with pytest.raises(EnvironmentFailed, match=r"step: no answer: RemoteDisconnected"):
            world.step("a")
        assert calls == ["reset", "reset", "reset", "step"]
        with pytest.raises(EnvironmentFailed, match="tried 3 times"):
            world.reset(TASK, 1)


def test_answers_that_are_not_what_was_agreed() -> None:
    said = {"a": b"<html>", "b": b'{"text": 3}', "c": b"\xff"}
    for body in said.values():
        with strange(lambda path, call, body=body: (200, _BEGUN if path == "reset" else body)) as (url, _):  # type: ignore[misc]
            world = Remote(url=url)
            world.reset(TASK, 1)
            with pytest.raises(EnvironmentFailed, match="not what was agreed"):
                world.step("a")


def test_a_slow_answer_is_waited_for_no_longer_than_agreed() -> None:
    hold = threading.Event()

    def answers(path: str, call: int) -> tuple[int, bytes] | None:
        if path == "step":
            hold.wait(40)
        return 200, _BEGUN

    with strange(answers) as (url, _):
        world = Remote(url=url, timeout_s=1.0)
        world.reset(TASK, 1)
        with pytest.raises(EnvironmentFailed, match="step: no answer: TimeoutError"):
            world.step("a")
        hold.set()


def test_options_are_checked_and_a_missing_server_is_named() -> None:
    for options in (
        {"url": "localhost:80"},
        {"url": "http://x", "timeout_s": 0},
        {"url": "http://x", "key_env": "NO_KEY"},
    ):
        with pytest.raises(ConfigError):
            Remote(**options)
    with pytest.raises(ConfigError, match=r"environments\.3\.options: remote cannot be made .*127\.0\.0\.1:9"):
        create("remote", {"url": "http://127.0.0.1:9"}, "environments.3")
