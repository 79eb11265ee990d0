"""The live board: one line an update, and in between what else happened, on a terminal or into a file.

On a terminal the policy's progress is a bar that redraws itself and trouble is coloured; elsewhere there is neither,
so a log stays readable. An event never fails for a field that is missing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, TextIO

from stream_rl.observe.records import number
from stream_rl.observe.rows import HEADER, WIDTH, row
from stream_rl.observe.words import fields, sentence, show

HEADER_EVERY = 20  # lines
BAR_CELLS = 30

_RED, _YELLOW, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
_BAD = frozenset({"alarm", "failing", "failed", "killed"})
_TROUBLE = frozenset(
    {
        *("discarded", "judge", "producer_left", "producer_quarantined", "role_restarted", "weights_failed"),
        "generator_dropped",
    }
)
_SILENT = frozenset({"restart"})  # a request to the supervisor, whose outcome is told


class TerminalBoard:
    """Call it with each event of the run. `is_terminal` allows redrawing and colour."""

    def __init__(self, stream: TextIO, *, is_terminal: bool) -> None:
        self._stream = stream
        self._is_terminal = is_terminal
        self._held_out: tuple[float | None, float | None] = (None, None)
        self._train_s: float | None = None
        self._rows = 0
        self._phases: set[str] = set()
        self._lost: set[str] = set()  # reasons told since the last update
        self._bar_shown = False
        self._bar_tenth = -1

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        kind = str(event.get("type"))
        match kind:
            case "policy":
                self._progress(event)
            case "start":
                self._start(event)
            case "update":
                self._update(event)
            case "phase":
                self._phase(event)
            case "discarded":
                self._discarded(event)
            case _ if kind not in _SILENT:
                if kind == "eval":
                    self._held_out = (number(event, "success", "overall"), number(event, "stderr"))
                self._tell(kind, sentence(event))

    def _start(self, event: Mapping[str, Any]) -> None:
        facts = {k: v for k, v in event.items() if k not in ("type", "at", "run") and v is not None}
        self._wrapped(f"run {show(event.get('run'))}: {fields(facts)}" if facts else f"run {show(event.get('run'))}")

    def _update(self, event: Mapping[str, Any]) -> None:
        if self._rows % HEADER_EVERY == 0:
            self._line(HEADER, _BOLD)
        self._rows += 1
        before = self._train_s
        if before is None and number(event, "step") == 0:
            before = 0.0
        self._line(row(event, held_out=self._held_out, train_s_before=before))
        self._train_s = number(event, "train_s")
        self._lost.clear()

    def _phase(self, event: Mapping[str, Any]) -> None:
        """Each phase is told once: training and evaluation take turns, and the evaluation's result is a line."""
        phase = show(event.get("phase"))
        if phase not in self._phases and phase != "stopping":
            self._phases.add(phase)
            self._tell("phase", sentence(event))

    def _discarded(self, event: Mapping[str, Any]) -> None:
        """The first of each reason since the last update; the update's own line counts them all."""
        reason = show(event.get("reason"))
        if reason not in self._lost:
            self._lost.add(reason)
            self._tell("discarded", sentence(event))

    def _progress(self, event: Mapping[str, Any]) -> None:
        step, total = number(event, "step"), number(event, "total")
        done = min(1.0, max(0.0, step / total)) if step is not None and total else 0.0
        count = f"{show(step, '.0f')} of {show(total, '.0f')} steps, {show(event.get('what'))}"
        if not self._is_terminal:
            tenth = int(10 * done)
            if tenth > self._bar_tenth:
                self._bar_tenth = tenth
                self._line(f"making the start policy: {10 * tenth:3d} %, {count}")
            return
        full = round(BAR_CELLS * done)
        bar = f"making the start policy [{'#' * full}{'.' * (BAR_CELLS - full)}] {count}"
        self._stream.write(f"\r{bar[: WIDTH - 1]:<79}")
        self._stream.flush()
        self._bar_shown = True
        if done == 1.0:
            self._end_bar()

    def _end_bar(self) -> None:
        if self._bar_shown:
            self._stream.write("\n")
            self._bar_shown = False

    def _tell(self, kind: str, text: str) -> None:
        colour = _RED if kind in _BAD else _YELLOW if kind in _TROUBLE else ""
        self._wrapped(text, colour)

    def _wrapped(self, text: str, colour: str = "") -> None:
        """Paragraphs keep their line ends: the last words of a role's log are shown as they are."""
        for paragraph in text.splitlines() or [""]:
            for line in textwrap.wrap(_printable(paragraph), WIDTH, subsequent_indent="    ") or [""]:
                self._line(line, colour)

    def _line(self, text: str, colour: str = "") -> None:
        self._end_bar()
        # Text from worlds and judges may hold anything, terminal escapes included.
        encoding = self._stream.encoding or "utf-8"
        text = _printable(text).encode(encoding, "replace").decode(encoding)
        if self._is_terminal and colour:
            text = f"{colour}{text}{_PLAIN}"
        self._stream.write(text + "\n")
        self._stream.flush()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
