from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.page.guard import SECURITY_HEADERS
from tests.unit.page.test_server import Orchestrator, serving


@pytest.mark.parametrize("running", [True, False])
async def test_prometheus_is_told_how_the_run_stands_and_the_newest_update(running: bool, tmp_path: Path) -> None:
    async with (
        serving(tmp_path, Orchestrator(running=running)) as session,
        session.get("/metrics") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers["X-Frame-Options"] == SECURITY_HEADERS["X-Frame-Options"]
        lines = (await response.text()).splitlines()
    assert "stream_rl_update_loss 0.5" in lines
    assert ("stream_rl_version 3.0" in lines) is running
    assert ("stream_rl_running 0.0" in lines) is not running
