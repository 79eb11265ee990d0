"""A prompt file: how an episode is told to the policy anew each turn, and where its answer holds the action. Pure.

A file has five sections, each begun by a line `=== NAME ===`: `system` (may be missing), `first` (the prompt of the
first turn), `later` (that of every other turn), `plain` and `thinking` (how to answer; one of them stands where the
other sections say `{answer}`). A paragraph with `{history}` or `{admissible}` is left out when there is nothing to put
there; paragraphs are separated by blank lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.types import Message

_HEADING = re.compile(r"^=== (.*?) ===[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\{([a-z_]+)\}")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_SECTIONS = ("system", "first", "later", "plain", "thinking")
_NEEDED = {"first": {"observation"}, "later": {"task", "history", "observation"}}
_ALLOWED: dict[str, set[str]] = {
    "system": {"answer"},
    "first": {"observation", "admissible", "answer"},
    "later": {"task", "steps", "shown", "step", "history", "observation", "admissible", "answer"},
    "plain": set(),
    "thinking": set(),
}
_OPEN, _CLOSE = "<action>", "</action>"
_FIRST_OBSERVATION = "(what you were told with the task)"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was taken."""

    observation: str  # what the policy saw before it
    action: str  # what the world was given


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An episode between two actions: all that a prompt may tell of it."""

    task: str  # the world's first observation
    steps: tuple[Step, ...] = ()  # every action so far, in order
    observation: str  # what is seen now; the task itself before the first action
    admissible: tuple[str, ...] = ()  # actions the world would accept now; empty if it does not say


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed prompt file for one way of answering."""

    system: str  # system message; empty: none is sent
    first: tuple[str, ...]  # paragraphs of the first turn's user message
    later: tuple[str, ...]  # paragraphs of every other one
    tagged: bool  # the answer is asked for in tags

    def messages(self, moment: Moment, shown: int) -> tuple[Message, ...]:
        """The prompt at `moment`, with the last `shown` of its steps; `shown` is at most their number.

        What a world says is put in once: a placeholder in its text stays as it is.
        """
        if not moment.steps:
            values = {"observation": moment.observation, "admissible": "\n".join(moment.admissible)}
            return self._with_system(_fill(self.first, values))
        values = {
            "task": moment.task,
            "steps": str(len(moment.steps)),
            "step": str(len(moment.steps) + 1),
            "shown": str(shown),
            "history": _told(moment.steps, shown),
            "observation": moment.observation,
            "admissible": "\n".join(moment.admissible),
        }
        return self._with_system(_fill(self.later, values))

    def action(self, answer: str) -> str:
        """What the world is given: the inside of the last complete pair of tags, if the template asks for tags.

        An answer without such a pair goes to the world as a whole, which will not understand it and says so.
        """
        if not self.tagged:
            return answer
        stop = answer.rfind(_CLOSE)
        start = answer.rfind(_OPEN, 0, max(stop, 0))
        return answer if start < 0 else answer[start + len(_OPEN) : stop].strip()

    def _with_system(self, user: str) -> tuple[Message, ...]:
        message = Message(role="user", content=user)
        return (Message(role="system", content=self.system), message) if self.system else (message,)


def parse_template(text: str, source: str, *, thinking: bool, path: str) -> Template:
    """The template in `text`, with the instructions for `thinking` or plain answers in it.

    Raises `ConfigError` at `path` for a section or placeholder that is missing, unknown or where it cannot be filled,
    and for a `thinking` section that does not ask for `<action>` tags: without them the world would be given the
    thoughts.
    """
    sections = _sections(text, source, path)
    answer = sections["thinking" if thinking else "plain"]
    if thinking and not (_OPEN in answer and _CLOSE in answer):
        _refuse(path, source, f"its section `thinking` must ask for the action between {_OPEN} and {_CLOSE}.")
    for section, allowed in _ALLOWED.items():
        found = set(_PLACE.findall(sections[section]))
        for place in sorted(found - allowed):
            near = difflib.get_close_matches(place, sorted(allowed), n=1)
            _refuse(
                path,
                source,
                f"its section `{section}` has {{{place}}}, which nothing is put into; "
                f"known there: {_places(allowed) or 'none'}.",
                nearest=f"{{{near[0]}}}" if near else None,
            )
        if missing := _NEEDED.get(section, set()) - found:
            _refuse(path, source, f"its section `{section}` does not say where {_places(missing)} goes.")
    system, first, later = (_fill((sections[name],), {"answer": answer}) for name in ("system", "first", "later"))
    return Template(system=system, first=_paragraphs(first), later=_paragraphs(later), tagged=_OPEN in answer)


def _sections(text: str, source: str, path: str) -> dict[str, str]:
    before, *pieces = _HEADING.split(text.replace("\r\n", "\n"))
    headings, bodies = pieces[::2], pieces[1::2]
    for heading in headings:
        if heading not in _SECTIONS:
            near = difflib.get_close_matches(heading, _SECTIONS, n=1)
            known = ", ".join(_SECTIONS)
            _refuse(
                path, source, f"it has a section `{heading}`; known are {known}.", nearest=near[0] if near else None
            )
        if headings.count(heading) > 1:
            _refuse(path, source, f"its section `{heading}` stands twice.")
    missing = [section for section in _SECTIONS[1:] if section not in headings]
    if before.strip() or missing:
        told = f"it has no section `{missing[0]}`" if missing else "it has text before its first section"
        _refuse(path, source, f"{told}; a section begins with a line `=== NAME ===`.")
    found = {heading: body.strip() for heading, body in zip(headings, bodies, strict=True)}
    return {"system": "", **found}


def _paragraphs(section: str) -> tuple[str, ...]:
    return tuple(_BLANK_LINES.split(section))


def _fill(paragraphs: Sequence[str], values: Mapping[str, str]) -> str:
    """Placeholders that have a value replaced, in one pass; paragraphs left out where history or actions are empty."""
    empty = [f"{{{name}}}" for name in ("history", "admissible") if name in values and not values[name]]
    kept = [paragraph for paragraph in paragraphs if not any(place in paragraph for place in empty)]
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), "\n\n".join(kept))


def _told(steps: Sequence[Step], shown: int) -> str:
    """The last steps as pairs. The first observation is not told again: the task is."""
    first = len(steps) - shown
    return "\n".join(
        f"Observation {number}: {step.observation if number > 1 else _FIRST_OBSERVATION}\n"
        f"Action {number}: {step.action}"
        for number, step in enumerate(steps[first:], first + 1)
    )


def _places(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))


def _refuse(path: str, source: str, problem: str, *, nearest: str | None = None) -> NoReturn:
    raise ConfigError(path, f"the prompt file {source!r} cannot be used: {problem}", nearest=nearest)
