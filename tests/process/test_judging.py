"""The judging stage of real runs: judges are killed, attached, detached, all gone, and lie about keys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from judge.server import answer
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from tests.process.runner import Up, gone, overrides, pid_of, run

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

UPDATES = 24
PER_MINUTE = 180  # of the first judges: people are slower than the run would be
DEADLINE_S = 8
STARTED_WITHIN_S = 200.0  # a busy machine takes long to load torch
FLAT_BYTES = 8 << 20
CORE = "Zq9wXvJtKp7LmN2"  # no encoding of the key changes this part of it
KEY = f"sk-test/{CORE}+4=="
KEY_ENV = "STREAM_RL_TEST_KEY"


class JudgeProcess:
    """`stream-rl judge serve`, as a user starts it."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stream_rl.cli", "judge", "serve", "--port", str(port)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, f"it said {said!r}"
        self.url = found[0]
        self.port = urlsplit(self.url).port or 0

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., JudgeProcess]]:
    """Starts judges, outside the folder whose processes must be gone at the end; none outlives the test."""
    started: list[JudgeProcess] = []

    def serve(*, port: int = 0) -> JudgeProcess:
        started.append(JudgeProcess(Path("/"), port=port))
        return started[-1]

    yield serve
    for judge in started:
        judge.kill()


@pytest.fixture
def up_in(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `up` in the test's folder. A run that a failed test left alive is killed, and its roles go with it."""
    started: list[Up] = []

    def begin(*arguments: str) -> Up:
        started.append(Up(tmp_path, *arguments))
        return started[-1]

    yield begin
    for up in started:
        if up.process.poll() is None:
            up.kill()


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _update(step: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] == "update" and event["step"] >= step


def _updates(run_dir: RunDirectory) -> int:
    """Updates so far."""
    return len(list(read_json_lines(run_dir.metrics)))


def _judge(problem: bool) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] == "judge" and bool(event["problem"]) == problem


def _facts(folder: Path, *arguments: str) -> Any:
    result = run(folder, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@contextmanager
def _ledger(run_dir: RunDirectory) -> Iterator[Ledger]:
    ledger = Ledger(run_dir.ledger, run_dir.run_id)
    try:
        yield ledger
    finally:
        ledger.close()


def test_judges_come_and_go_and_all_fall_silent_while_the_run_goes_on(
    tmp_path: Path, start: Callable[..., JudgeProcess], up_in: Callable[..., Up]
) -> None:
    """Two judges; one is killed, a third attached, one detached, the last killed, and brought back."""
    run_dir = RunDirectory(tmp_path / "runs" / "t")
    dies, leaves, comes = start(), start(), start()
    limits = f"requests_per_minute={PER_MINUTE},deadline_s={DEADLINE_S}"
    up = up_in(
        *("--name", "t"),
        *overrides(
            "generate.engine=transformers",
            f"updates={UPDATES}",
            "async_depth=1",
            "eval.every=0",
            f'judge.endpoints=[{{url="{dies.url}",{limits}}},{{url="{leaves.url}",{limits}}}]',
        ),
    )
    up.until(_update(0), within_s=STARTED_WITHIN_S)
    control = ("--run", "t")
    slow = ("--model", "rules", "--deadline", str(DEADLINE_S), "--requests-per-minute", str(PER_MINUTE))

    dies.kill()
    attached = _facts(tmp_path, "judge", "attach", comes.url, *slow, *control)
    assert [e["url"] for e in attached] == [dies.url, leaves.url, comes.url]
    detached = _facts(tmp_path, "judge", "detach", leaves.url, *control)
    assert [e["url"] for e in detached if e["state"] != "draining"] == [dies.url, comes.url]
    again = run(tmp_path, "judge", "attach", comes.url, *slow, *control)
    assert again.returncode == 1
    assert f"{comes.url} with model 'rules' is attached already" in again.stderr
    up.until(_update(_updates(run_dir) + 1))  # on what is left of the judges
    dead, alive = _facts(tmp_path, "judge", "list", *control)
    assert (dead["url"], alive["url"]) == (dies.url, comes.url)
    assert "cannot connect" in dead["problem"]
    assert (alive["state"], alive["problem"]) == ("up", "")
    assert alive["answered"] > 0

    comes.kill()
    up.until(_judge(problem=True))
    orchestrator = pid_of(tmp_path, "role orchestrator")
    waiting = _facts(tmp_path, "status", "t")
    before = _resident_bytes(orchestrator)
    assert "judge.required = false goes on without" in waiting["judge"]["problem"]
    assert [e["url"] for e in waiting["judge"]["endpoints"]] == [dies.url, comes.url]
    assert "no judge endpoint answers; the run waits for one" in run(tmp_path, "status", "t").stdout
    still = _facts(tmp_path, "status", "t")
    assert still["judge"]["problem"]
    assert still["permits"]["taken"] <= still["permits"]["capacity"] == 8  # (async_depth 1 + 1) * 4 candidates
    assert sum(still["groups"].values()) <= 8
    assert _resident_bytes(orchestrator) - before < FLAT_BYTES

    start(port=comes.port)
    up.until(_judge(problem=False))
    _facts(tmp_path, "judge", "attach", leaves.url, "--model", "rules", *control)  # no limits: the rest goes quickly
    up.succeed()
    assert gone(tmp_path) == []

    assert [line["step"] for line in read_json_lines(run_dir.metrics)] == list(range(UPDATES))
    events = list(read_json_lines(run_dir.events))
    moves = [(e["type"], e["url"]) for e in events if e["type"] in ("judge_attached", "judge_detached")]
    assert moves == [
        ("judge_attached", comes.url),
        ("judge_detached", leaves.url),
        ("judge_attached", leaves.url),
    ]
    silences = [bool(e["problem"]) for e in events if e["type"] == "judge"]
    assert silences == [True, False] * (len(silences) // 2)
    _assert_nothing_lost(run_dir, {dies.url, leaves.url, comes.url})


def _assert_nothing_lost(run_dir: RunDirectory, judges: set[str]) -> None:
    """Every group has an end, none was rolled out twice, and all that was trained was judged."""
    with _ledger(run_dir) as ledger:
        counts = ledger.counts()
        assert counts == {"trained": 2 * UPDATES, "discarded:not_selected": 2 * UPDATES}
        assert ledger.next_position() == 4 * UPDATES
        rows = ledger.groups()
        assert {row.attempts for row in rows} == {1}
        for row in rows:
            verdicts = {v.trajectory_id: v for v in ledger.verdicts(row.group_id)}
            assert set(verdicts) == {t.id for t in ledger.trajectories(row.group_id) if t.valid}
            assert not any(v.abstained for v in verdicts.values())
            assert {v.endpoint for v in verdicts.values()} <= judges


class Echoing(ThreadingHTTPServer):
    """A judge that refuses every key by telling it to everybody, until told to accept."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.refusing = True
        self.keys: set[str] = set()  # Authorization headers it was sent
        self.judged = threading.Event()


class _Echo(BaseHTTPRequestHandler):
    server: Echoing

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sent = self.headers["Authorization"]
        self.server.keys.add(sent)
        if self.server.refusing:
            told = {"message": f"no such key: {sent}", "link": f"http://keys/?key={quote(KEY, safe='')}"}
            text = json.dumps({"error": told, "escaped": sent.split()[1].replace("/", "\\/")})
            self._reply(401, text.replace("\\\\/", "\\/"), {"WWW-Authenticate": f'Bearer error="{sent}"'})
            return
        content = json.dumps(answer(body)[0])
        self._reply(200, f'{{"model":"{KEY}","choices":[{{"message":{{"content":{content}}}}}]}}', {})
        self.server.judged.set()

    def do_GET(self) -> None:
        self._reply(200, json.dumps({"data": [{"id": f"models of {KEY}"}]}), {})

    def _reply(self, status: int, text: str, headers: dict[str, str]) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def echoing() -> Iterator[Echoing]:
    with Echoing() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_run_goes_on_without_verdicts_and_never_shows_the_key(
    tmp_path: Path, echoing: Echoing, up_in: Callable[..., Up], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    run_dir = RunDirectory(tmp_path / "runs" / "t")
    shown = tmp_path / "shown"  # everything any command said
    shown.mkdir()

    def say(name: str, *arguments: str, code: int = 0) -> str:
        result = run(tmp_path, *arguments)
        (shown / name).write_text(result.stdout + result.stderr, encoding="utf-8")
        assert result.returncode == code, result.stderr
        return result.stdout + result.stderr

    ping = ("judge", "ping", echoing.url, "--key-env", KEY_ENV)
    assert f"the key in {KEY_ENV} is not accepted for {echoing.url}" in say("ping", *ping, code=1)
    judge = f'judge.endpoints=[{{url="{echoing.url}",key_env="{KEY_ENV}",deadline_s={DEADLINE_S}}}]'
    settings = overrides("generate.engine=transformers", "updates=500", "eval.every=0", judge)
    refused = say("refused", "up", "--name", "refused", *settings, code=1)
    assert f"the key in {KEY_ENV} is not accepted" in refused
    assert not (tmp_path / "runs").exists()

    up = up_in("--name", "t", *settings, "--set", "judge.required=false")
    up.until(_update(1), within_s=STARTED_WITHIN_S)
    assert f"{echoing.url} (rules)" in say("status", "status", "t")
    assert "HTTP 401" in say("list", "judge", "list", "--run", "t", "--json")
    echoing.refusing = False
    assert echoing.judged.wait(150)
    up.until(_update(_updates(run_dir) + 4))
    say("list_later", "judge", "list", "--run", "t")
    up.interrupt()
    up.succeed()
    assert gone(tmp_path) == []
    say("report", "report", "t")
    say("report_json", "report", "t", "--json")
    (shown / "events").write_text(json.dumps(up.events), encoding="utf-8")

    with _ledger(run_dir) as ledger:
        trained = [v for row in ledger.groups() if row.state == "trained" for v in ledger.verdicts(row.group_id)]
    assert any(v.abstained for v in trained)
    assert any(not v.abstained for v in trained)
    reasons = " ".join({tag.reason for v in trained if v.abstained for tag in v.tags})
    assert "HTTP 401" in reasons
    assert "***" in reasons
    assert all(v.endpoint == "" for v in trained if v.abstained)
    assert echoing.keys == {f"Bearer {KEY}"}
    leaks = [path for path in tmp_path.rglob("*") if path.is_file() and CORE.encode() in path.read_bytes()]
    assert leaks == []
