"""`[generate]` with servers of one's own: what cannot work is refused when the configuration is read."""

from __future__ import annotations

from typing import Any

import pytest

from stream_rl.config import from_dict
from stream_rl.errors import ConfigError

A, B = "http://a:8000", "http://b:8000"


def test_each_producer_has_its_server() -> None:
    config = from_dict({"generate": {"engine": "vllm-http", "producers": 2, "servers": [A, B]}})
    assert config.generate.servers == (A, B)


@pytest.mark.parametrize(
    ("generate", "told"),
    [
        ({"engine": "vllm-http"}, "1 producers for 0 addresses"),
        ({"engine": "vllm-http", "producers": 1, "servers": [A, B]}, "1 producers for 2 addresses"),
        ({"engine": "vllm-http", "producers": 2, "servers": [A, A]}, "may stand once"),
        ({"engine": "vllm", "servers": [A]}, "vllm-http"),
    ],
)
def test_what_cannot_work_is_refused(generate: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        from_dict({"generate": generate})
