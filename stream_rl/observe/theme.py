"""How charts look: one drawing, as a picture for paper, and as an SVG whose colours follow the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The live page's colours by the names of its style sheet. A drawing uses the light ones; each is unique here, so that
# an SVG's colours can be replaced by their names.
LIGHT = {
    "card": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#57606a",
    "line": "#d8dbe0",
    "c0": "#1d4e89",
    "c1": "#c45a00",
    "c2": "#1a7f37",
    "c3": "#8a3ffc",
    "c4": "#b5179e",
    "c5": "#00838f",
    "c6": "#8d6e00",
    "c7": "#6e7781",
}
DARK = {
    "card": "#181d23",
    "ink": "#e6e9ed",
    "soft": "#9aa4b0",
    "line": "#333b45",
    "c0": "#79b0f2",
    "c1": "#ffa657",
    "c2": "#56d364",
    "c3": "#c297ff",
    "c4": "#ff85d5",
    "c5": "#4dd0e1",
    "c6": "#e3c04b",
    "c7": "#8b949e",
}

# The main work of every role is blue, waiting orange or yellow, standing still grey. In the order of a bar.
_STATES = {
    "train": "c0",
    "generate": "c0",
    "asking": "c0",
    "handling": "c0",
    "compute": "c0",
    "prox": "c5",
    "teacher": "c3",
    "write": "c3",
    "environment": "c2",
    "ledger": "c2",
    "publish": "c4",
    "paused_for_sync": "c4",
    "other": "c7",
    "queued": "c6",
    "judge_wait": "c6",
    "wait_for_credit": "c6",
    "rollout_wait": "c1",
    "waiting": "c1",
    "wait_for_place": "c1",
    "idle": "line",
    "wait_for_lease": "line",
}
_SERIES = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")


def state_colour(state: str) -> str:
    """Of a state of any role, the same in every chart."""
    return LIGHT[_STATES.get(state, "c7")]


def in_order(states: Iterable[str]) -> list[str]:
    """Each state once, work first, standing still last; one that is unknown stands before those that wait."""
    places = {state: place for place, state in enumerate(_STATES)}
    return sorted(dict.fromkeys(states), key=lambda state: places.get(state, places["other"]))


def series_colour(place: int) -> str:
    """Of the n-th of several things side by side."""
    return LIGHT[_SERIES[place % len(_SERIES)]]


@contextmanager
def styled() -> Iterator[None]:
    """Figures made, and saved, in this block look like the rest."""
    import matplotlib as mpl  # heavy: half a second

    ink, soft, line = LIGHT["ink"], LIGHT["soft"], LIGHT["line"]
    with mpl.rc_context(
        {
            "text.color": ink,
            "axes.titlecolor": ink,
            "axes.labelcolor": soft,
            "xtick.color": line,
            "ytick.color": line,
            "xtick.labelcolor": soft,
            "ytick.labelcolor": soft,
            "axes.edgecolor": line,
            "grid.color": line,
            "figure.facecolor": LIGHT["card"],
            "axes.facecolor": LIGHT["card"],
            "legend.facecolor": LIGHT["card"],
            "legend.edgecolor": line,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.titlelocation": "left",
            "font.size": 9.5,
            "svg.fonttype": "none",
            "svg.hashsalt": "report",
        }
    ):
        yield


def write_png(figure: Any, path: Path) -> Path:
    """Returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def to_svg(figure: Any, title: str) -> str:
    """An `<svg>` element to put into a page that defines the colours as `--NAME`; `title` is read to who cannot see.

    Text stays text, in the page's font. Ids carry the title, so that several drawings can share a page.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    for name, colour in LIGHT.items():
        text = text.replace(colour, f"var(--{name})")
    key = re.sub(r"\W+", "-", title)
    text = re.sub(r'id="', f'id="{key}-', text)
    text = re.sub(r"(url\(#|href=\"#)", rf"\1{key}-", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    return re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"|<svg ', _opening(title), text, count=1)


def _opening(title: str) -> Any:
    label = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")

    def opening(match: re.Match[str]) -> str:
        return f'<svg role="img" aria-label="{label}" {match[1] or ""}'

    return opening
