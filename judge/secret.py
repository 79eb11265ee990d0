"""A key that can be sent, and not be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError


class Secret:
    """Holds an API key; empty for an endpoint without one. Its text form never contains the key."""

    __slots__ = ("_forms", "_key")

    def __init__(self, key: str) -> None:
        self._key = key
        in_json = json.dumps(key)[1:-1]
        forms = {key, quote(key, safe=""), in_json, in_json.replace("/", "\\/")}
        # Longest first: what is left of a longer form would still tell most of the key.
        self._forms = tuple(sorted(forms, key=len, reverse=True)) if key else ()

    def headers(self) -> dict[str, str]:
        """What a request needs to be let in."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def redact(self, text: str) -> str:
        """`text` without the key: servers like to quote one that they refuse."""
        for form in self._forms:
            text = text.replace(form, "***")
        return text

    def __repr__(self) -> str:
        return "Secret(***)" if self._key else "Secret()"


def read_key(config: JudgeEndpoint, index: int, environ: Mapping[str, str]) -> Secret:
    """The key of an endpoint. Raises `ConfigError` naming a variable that is not set or holds what cannot be sent."""
    if not config.key_env:
        return Secret("")
    key = environ.get(config.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"judge.endpoints.{index}.key_env",
            f"the environment variable {config.key_env} is not set; export the key of {config.url} under that name.",
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"judge.endpoints.{index}.key_env",
            f"the environment variable {config.key_env} holds characters that no HTTP header can carry; "
            "export the key again, without line ends.",
        )
    return Secret(key)
