"""The live page of a real run in a real Chromium: drawn, browsed, and a judge attached from it while the run trains."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.runner import Up, gone, overrides, run

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

STARTED_WITHIN_MS = 120_000  # a busy machine takes long to load torch
SHOWN_WITHIN_MS = 60_000
WIDTHS = {"desk": 1280, "phone": 390}
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHARTS = ("chart-success", "chart-held-out", "chart-reward", "chart-policy", "chart-wait", "chart-lag-over")


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium under Playwright. Skips where either is missing."""
    chromium = _chromium()
    if chromium is None:
        pytest.skip("no Chromium: install one, or name it in CHROMIUM")
    try:
        api = importlib.import_module("playwright.sync_api")
    except ModuleNotFoundError:
        pytest.skip("no Playwright: pip install playwright")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))  # a new, empty profile
        yield found
        found.close()


@pytest.fixture
def judge() -> Iterator[str]:
    """The address of a rule judge that the run does not know of."""
    command = [sys.executable, "-m", "stream_rl.cli", "judge", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd="/")
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A run that trains for as long as the test looks."""
    started = Up(
        tmp_path,
        *overrides(
            "generate.engine=transformers",
            "updates=100000",
            "judge.endpoints=[{url='embedded'}]",
            "max_lag=3",
            "eval.every=50",
        ),
        "--name",
        "watched",
    )
    yield started
    if started.process.poll() is None:
        started.kill()
    assert gone(tmp_path) == []


def _open(browser: Any, address: str, width: int, *, dark: bool) -> tuple[Any, list[str]]:
    """A page in a context of its own, and what it complains about."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.set_default_timeout(SHOWN_WITHIN_MS)
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda r: problems.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.goto(address)
    return page, problems


def test_a_run_is_watched_and_changed_from_a_browser(browser: Any, up: Up, judge: str) -> None:
    address = up.until(lambda e: e["type"] == "page", within_s=STARTED_WITHIN_MS / 1000)["address"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    up.until(lambda e: e["type"] == "update" and e["step"] >= 2, within_s=STARTED_WITHIN_MS / 1000)

    page, problems = _open(browser, address, WIDTHS["desk"], dark=False)
    for chart in CHARTS:
        page.wait_for_selector(f"#{chart} svg path.curve", state="attached")
    for chart in ("chart-lag", "chart-depth"):
        page.wait_for_selector(f"#{chart} svg rect.bar", state="attached")
    page.wait_for_selector("#role-bars .role:has-text('learner') .strip span", state="attached")
    page.wait_for_selector("#heat tbody tr:has-text('exploration')")
    assert page.inner_text("#run-name") == "watched"

    before = page.inner_text("#run-state")
    page.wait_for_function("text => document.getElementById('run-state').textContent !== text", arg=before)

    page.click(".members button.failed, .members button.solved")
    page.wait_for_selector("#episode .turn .token")
    assert "log-probability" in page.inner_text("#colour")
    page.wait_for_selector("#episode #tags, #episode:has-text('No verdict')")

    page.fill("#attach input[name=url]", judge)
    page.click("#attach button[type=submit]")
    page.wait_for_selector(f"#endpoints tbody tr:has-text('{judge}')")
    facts = json.loads(run(up.folder, "judge", "list", "--run", "watched", "--json").stdout)
    assert judge in [endpoint["url"] for endpoint in facts]
    page.click(f"#endpoints button[data-url='{judge}']")
    page.wait_for_selector(f"#judges-note:has-text('{judge} is detached')")

    page.click("#pause")
    page.wait_for_selector("#tune-note:has-text('paused')")
    assert json.loads(run(up.folder, "status", "watched", "--json").stdout)["paused"] is True
    page.click("#pause")
    page.wait_for_selector("#tune-note:has-text('going on')")
    assert problems == []

    phone, troubles = _open(browser, address, WIDTHS["phone"], dark=True)
    phone.wait_for_selector("#chart-success svg path.curve", state="attached")
    phone.click(".members button")
    phone.wait_for_selector("#episode .turn")
    assert phone.evaluate("document.documentElement.scrollWidth") == WIDTHS["phone"]
    dark = phone.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", dark)[:3])) < 64
    assert troubles == []

    page.context.close()
    phone.context.close()
    up.interrupt()
    assert up.end() == 0
