"""A policy's answer as a bundle of criteria. Pure; whatever the text is, it is a bundle or it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

MIN_CRITERIA, MAX_CRITERIA = 5, 8
MAX_CHARS = 200  # longer than this is no criterion
_MAX_TEXT = 8_000  # characters that are looked at
_MAX_STARTS = 32  # brackets that may begin the JSON value

_FENCE = re.compile(r"```[^\S\n]*\w*\n?(.*?)(?:```|\Z)", re.DOTALL)
_MARKED = re.compile(r"\s*(?:\(?\d{1,2}\s?[.):]|[-*+\u2022])(?=\s|[\"'*])")  # "3. ", "(3) ", "3 : ", "- "
_STOP = re.compile(r"\s\.(?=\s|\Z)")  # the stop between phrases of the embedded policy
_GUIDE = re.compile(r"\s*guide\s*:", re.IGNORECASE)
_LIST_OF_TEXTS = re.compile(r"\[\s*(?=[\"'])")  # begins a list of strings, in JSON's quotes or others
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SINGLE_BETWEEN = re.compile(r"'\s*+,\s*+'")
_SINGLE_END = re.compile(r"'\s*+\]")
_WRAPPING = " \t,;\"'`*\u201c\u201d"


def parse_bundle(text: str, *, cut: bool = False) -> tuple[str, ...] | None:
    """The criteria in `text`: 5 to 8 of them (more are cut to 8), or None.

    Understood are a JSON list or an object that holds one, fenced or not, with text around it, complete or broken off;
    numbered or bulleted lines; phrases separated by " . "; plain lines. Criteria are one line of visible characters
    each; empty ones, ones of more than 200 characters and repetitions (whatever their case, spacing and final stop)
    are dropped. `cut` says that the answer hit its token limit: what it broke off in is left out.
    """
    text = text[:_MAX_TEXT].rpartition("</think>")[2]
    bodies = [*_FENCE.findall(text), text]
    # Where there is a list, the lines around it are no criteria, however many they are.
    listed = next((strings for body in bodies if (strings := _listed(body))), None)
    readings = [listed] if listed else [_plain(body, cut) for body in bodies]
    bundles = (_distinct(reading) for reading in readings)
    return next((bundle[:MAX_CRITERIA] for bundle in bundles if len(bundle) >= MIN_CRITERIA), None)


def _listed(text: str) -> list[str]:
    """Strings of the first JSON list or object that has any; of a list that is broken, those that are complete."""
    decoder = json.JSONDecoder(strict=False)
    starts = [match.start() for match in re.finditer(r"[\[{]", text)][:_MAX_STARTS]
    for start in starts:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):  # not JSON from here on, or nested past all sense
            continue
        if strings := _strings(value):
            return strings
    if begin := _LIST_OF_TEXTS.search(text):
        body = text[begin.end() :]
        return _single_quoted(body) if body[0] == "'" else [_unquoted(q) for q in _DOUBLE_QUOTED.findall(body)]
    return []


def _strings(value: object) -> list[str]:
    """Of a list its strings, and the longest string of each of its objects; of an object its first such list."""
    if isinstance(value, list):
        return [max(texts, key=len) for item in value if (texts := _texts(item))]
    if isinstance(value, dict):
        lists = (_strings(inner) for inner in value.values() if isinstance(inner, list))
        return next((strings for strings in lists if strings), _texts(value))
    return []


def _texts(item: object) -> list[str]:
    if isinstance(item, dict):
        return [value for value in item.values() if isinstance(value, str)]
    return [item] if isinstance(item, str) else []


def _unquoted(literal: str) -> str:
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:  # an escape that JSON does not know: the text as it stands
        return literal[1:-1]


def _single_quoted(body: str) -> list[str]:
    """Items of a list in single quotes, from its first quote on. An apostrophe inside an item does no harm."""
    *items, last = _SINGLE_BETWEEN.split(body[1:])
    end = _SINGLE_END.search(last)
    return [*items, last[: end.start()]] if end else items


def _plain(text: str, cut: bool) -> Sequence[str]:
    """Criteria of an answer that is not JSON."""
    text = _GUIDE.sub("", text, count=1) if _GUIDE.match(text) else text
    lines = text.split("\n")
    marked = [i for i, line in enumerate(lines) if _MARKED.match(line)]
    if len(marked) > 1:
        items = [_MARKED.sub("", lines[i], count=1) for i in marked]
        unfinished = marked[-1] == len(lines) - 1
    elif _STOP.search(text):
        items = _STOP.split(text)
        unfinished = True  # after the last stop
    else:
        items = lines
        unfinished = True
    return items[:-1] if cut and unfinished else items


def _distinct(criteria: Iterable[str]) -> tuple[str, ...]:
    kept: dict[str, str] = {}
    for criterion in criteria:
        visible = "".join(c if c.isprintable() else " " for c in criterion)
        clean = " ".join(visible.split()).strip(_WRAPPING)
        if len(clean) <= MAX_CHARS and any(c.isalnum() for c in clean):
            kept.setdefault(clean.casefold().rstrip(" ."), clean)
    return tuple(kept.values())
