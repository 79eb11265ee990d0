"""What one end of a link is willing to hold, and how long it waits."""

from __future__ import annotations

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.link.frames import SHORTEST_SILENCE_S

MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one end. The window is what a peer may have sent without acknowledgement: it bounds memory on both.

    A message must fit the byte window by itself, so one that is allowed at all always passes an empty window.

    >>> Limits(window_items=8, heartbeat_s=0.05, silence_s=0.5).window_items
    8
    """

    window_items: int = 256  # messages received and not acknowledged, at most
    window_bytes: int = 64 * MIB  # the same in bytes of payload
    max_message_bytes: int = 64 * MIB  # one message; larger ones are refused where they are sent
    heartbeat_s: float = 1.0  # an end that sent nothing for this long sends its standing
    silence_s: float = 20.0  # a peer heard nothing of for this long is dead; also how long a first answer may take
    goodbye_s: float = 5.0  # an orderly end waits at most this long for acknowledgements and the answer

    def __post_init__(self) -> None:
        for name in ("window_items", "window_bytes", "max_message_bytes", "heartbeat_s", "silence_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"limits.{name}", f"{getattr(self, name)} must be greater than 0.")
        if self.goodbye_s < 0:
            raise ConfigError("limits.goodbye_s", f"{self.goodbye_s} must not be negative.")
        if self.max_message_bytes > self.window_bytes:
            raise ConfigError(
                "limits.max_message_bytes",
                f"a message of {self.max_message_bytes} bytes never fits window_bytes = {self.window_bytes}; "
                f"need max_message_bytes <= window_bytes.",
            )
        if self.silence_s < SHORTEST_SILENCE_S:
            raise ConfigError("limits.silence_s", f"{self.silence_s} is shorter than {SHORTEST_SILENCE_S}.")
        if self.silence_s < 2 * self.heartbeat_s:
            raise ConfigError(
                "limits.silence_s",
                f"{self.silence_s} would call a peer dead after one late heartbeat of {self.heartbeat_s}; "
                "need silence_s >= 2 * heartbeat_s.",
            )
