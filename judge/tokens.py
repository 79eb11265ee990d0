"""How many tokens a request will be counted as, before the endpoint has said so. Pure."""

from __future__ import annotations

import msgspec

_RATE = 0.1  # of the moving means


class RequestSize(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request before it is sent."""

    chars: int  # of the prompt
    max_tokens: int  # limit of the reply


class TokenEstimate:
    """Learns from reported usage how long prompts and replies are at one endpoint.

    Until then: four characters a token, and replies of half their limit.
    """

    def __init__(self) -> None:
        self._tokens_per_char = 0.25
        self._reply_share = 0.5  # of max_tokens
        self._learned = False

    def of(self, size: RequestSize) -> int:
        """Tokens of prompt and reply together."""
        return round(self._tokens_per_char * size.chars + self._reply_share * size.max_tokens)

    def learn(self, size: RequestSize, prompt_tokens: int, completion_tokens: int) -> None:
        """Take in reported usage; 0 prompt tokens means the endpoint does not count."""
        if prompt_tokens <= 0:
            return
        rate = _RATE if self._learned else 1.0
        self._learned = True
        self._tokens_per_char += rate * (prompt_tokens / max(1, size.chars) - self._tokens_per_char)
        self._reply_share += rate * (completion_tokens / max(1, size.max_tokens) - self._reply_share)
