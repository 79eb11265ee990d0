"""The part of a judging request that is the same for every transcript, whatever it asks.

The text of each kind lies in `prompts/<version>.txt`. Everything that does not depend on the transcript is the system
message, so that endpoints with a prefix cache reuse it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

REASON: dict[str, object] = {"type": "string", "maxLength": 140}  # a dozen words; a small model rambles without end

_SPLIT = "=== user ===\n"
_BOUNDS = (b"maxlength", b"minitems", b"maxitems")

Entry = dict[str, dict[str, object]]  # JSON schema by property


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint is asked about any transcript."""

    system: str  # system message
    user_frame: tuple[str, str]  # what stands before and after the quoted transcript
    system_json: msgspec.Raw  # the system message as encoded JSON
    response_format: msgspec.Raw  # JSON schema of the reply, encoded
    unbounded_format: msgspec.Raw  # the same without limits of length, which some servers do not know
    max_tokens: int  # limit of the reply

    def user(self, quotation: str) -> str:
        """The user message around a quoted transcript."""
        before, after = self.user_frame
        return f"{before}{quotation}{after}"


def fill(version: str, count: int, name: str, listing: str) -> tuple[str, tuple[str, str]]:
    """System message and user frame of `prompts/<version>.txt`, for `count` things listed in place of `{name}`."""
    # The listing goes in last: what looks like a placeholder within it stays as it is.
    system, user = (part.replace("{count}", str(count)) for part in _template(version))
    before, _, after = user.rstrip("\n").partition("{transcript}")
    return system.replace(f"{{{name}}}", listing).rstrip("\n"), (before, after)


def encode_system(system: str) -> msgspec.Raw:
    """The system message as it goes out."""
    return msgspec.Raw(msgspec.json.encode({"role": "system", "content": system}))


def names_bound(problem: bytes) -> bool:
    """Whether a server's refusal of a schema is about its limits of length."""
    return any(bound in problem.lower() for bound in _BOUNDS)


def encode_format(name: str, count: int, entry: Entry, *, bounded: bool) -> msgspec.Raw:
    """The response format for a reply `{name: [entry, ...]}` of `count` entries, given the schema of each property.

    Strict: every property is required, in the order given, and no other is allowed.

    bounded: limits of length are part of the schema
    """
    properties = entry if bounded else {key: _unbounded(schema) for key, schema in entry.items()}
    item = {"type": "object", "properties": properties, "required": list(entry), "additionalProperties": False}
    items = {"type": "array", "items": item, "minItems": count, "maxItems": count}
    schema = {
        "type": "object",
        "properties": {name: items if bounded else _unbounded(items)},
        "required": [name],
        "additionalProperties": False,
    }
    return msgspec.Raw(
        msgspec.json.encode({"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}})
    )


def _unbounded(schema: dict[str, object]) -> dict[str, object]:
    return {word: value for word, value in schema.items() if word.lower().encode() not in _BOUNDS}


@cache
def _template(version: str) -> tuple[str, str]:
    text = resources.files("judge.prompts").joinpath(f"{version}.txt").read_text(encoding="utf-8")
    system, _, user = text.partition(_SPLIT)
    return system, user
