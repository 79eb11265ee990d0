"""vLLM's own API server over an engine that runs already, in this event loop: real routes without a second start."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest


@asynccontextmanager
async def serving(llm: Any, model: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Its address on a free loopback port, in development mode, with token ids in and out."""
    import uvicorn
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.serve.dev.server_info import api_router as server_info
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    monkeypatch.setattr(server_info, "_get_system_env_info_cached", dict)  # it runs `pip list`
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", model, "--tokens-only"])
    tasks = await llm.get_supported_tasks()
    app = build_app(arguments, tasks, llm.model_config)
    await init_app_state(llm, app.state, arguments, tasks)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it queues connections until the server takes them
        async with anyio.create_task_group() as group:
            group.start_soon(server._serve, [listener])
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True
