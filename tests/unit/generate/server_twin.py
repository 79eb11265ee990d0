"""A vLLM server's routes over a scripted model, with what a server may lack left out on purpose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import web


class ServerTwin:
    """`lacks` holds routes that answer 404, `refuses` those that answer 500; `key` asks for a bearer token."""

    def __init__(self, *, lacks: set[str] = frozenset(), refuses: set[str] = frozenset(), key: str = "") -> None:  # type: ignore[assignment]
        self.lacks = lacks
        self.refuses = refuses
        self.key = key
        self.label = "default"
        self.shape: dict[str, Any] = {
            "vocab_size": 320,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "hidden_size": 8,
        }
        self.engine_lives = True
        self.drops = 0  # of the next requests for tokens, connections that break without an answer
        self.samples = anyio.Event()  # not paused
        self.samples.set()
        self.config: dict[str, Any] = {
            "model_config": {"max_model_len": 512, "dtype": "torch.float32", "logprobs_mode": "processed_logprobs"},
            "parallel_config": {"worker_extension_cls": "stream_rl.generate.vllm_probe.ProbeExtension"},
            "weight_transfer_config": {"backend": "stream_rl_files"},
        }
        self.finish_reason = "length"
        self.loaded: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.arrived = anyio.Event()  # a request for tokens is here
        self.hold = anyio.Event()  # tokens are given once it is set
        self.hold.set()

    @property
    def is_paused(self) -> bool:
        return not self.samples.is_set()

    def pause(self) -> None:
        self.samples = anyio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path
        self.calls.append(path)
        guarded = path.startswith(("/v1", "/inference"))  # vLLM asks for its key there only
        if guarded and self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401, text="who are you?")
        if path in self.lacks:
            return web.json_response({"detail": "Not Found"}, status=404)
        if path in self.refuses:
            return web.Response(status=500, text="no such thing here")
        body = await request.json() if request.can_read_body else {}
        match path:
            case "/server_info":
                return web.json_response({"vllm_config": self.config, "vllm_env": {}})
            case "/weight_info":
                return web.json_response({"weight_version": self.label})
            case "/is_paused":
                return web.json_response({"is_paused": self.is_paused})
            case "/pause":
                self.pause()
            case "/resume":
                self.samples.set()
            case "/update_weights":
                self.loaded.append(body["update_info"])
            case "/finish_weight_update":
                self.label = body["weight_version"]
            case "/health":
                return web.Response(status=200 if self.engine_lives else 503)
            case "/collective_rpc" if body["method"] == "stream_rl_shape":
                return web.json_response({"results": [{"head_dim": 8, "num_key_value_heads": 1} | self.shape] * 2})
            case "/collective_rpc":
                assert self.is_paused
                return web.json_response({"results": [[-1.0] * len(body["args"][0])] * 2})
            case "/inference/v1/generate":
                return await self._generate(request, body)
        return web.json_response({"message": "done"})

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        self.asked.append(body)
        if self.drops and request.transport is not None:
            self.drops -= 1
            request.transport.close()
        self.arrived.set()
        await self.hold.wait()
        await self.samples.wait()
        if not self.engine_lives:
            return web.json_response({"error": {"message": "EngineCore died"}}, status=500)
        said = list(range(8, 8 + body["sampling_params"]["max_tokens"]))
        choice = {
            "index": 0,
            "token_ids": said,
            "logprobs": {"content": [{"token_id": t, "logprob": -0.5, "rank": 1, "top_logprobs": []} for t in said]},
            "finish_reason": self.finish_reason,
            "weight_versions": [{"version": self.label, "start": 0, "end": len(said)}],
        }
        return web.json_response({"choices": [choice]})


@asynccontextmanager
async def serving(twin: ServerTwin) -> AsyncIterator[str]:
    """The twin's address while it listens on a free loopback port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", twin.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
