"""As much of uvicorn as the zygote uses, over the standard library. One request at a time."""

from __future__ import annotations

import http.server
import socket
from typing import Any


class Config:
    def __init__(self, app: Any, **settings: object) -> None:
        self.app = app


class Server:
    def __init__(self, config: Config) -> None:
        self._app = config.app

    def run(self, sockets: list[socket.socket]) -> None:
        server = http.server.HTTPServer(sockets[0].getsockname(), self._app, bind_and_activate=False)
        server.socket.close()
        server.socket = sockets[0]
        server.serve_forever()
