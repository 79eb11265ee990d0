"""The live board on a terminal: what one moment of a run looks like. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_rl.observe.records import number, numbers, shares, table
from stream_rl.observe.words import plus_minus, show
from stream_rl.page.reader import ToldEvent

_BAR_CELLS = 36
_LAG_CELLS = 20
_EVENTS = 5
_INKS = ("blue", "green", "magenta", "yellow", "cyan", "red", "bright_black", "white")
_NOTHING = "-"


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """Whole cells of a bar by part, largest remainders first; they add up to `width` (to 0 where nothing is known).

    >>> cells({"generate": 2.0, "wait": 1.0}, 10)
    {'generate': 7, 'wait': 3}
    """
    exact = {name: share * width for name, share in shares(parts).items()}
    whole = {name: int(size) for name, size in exact.items()}
    missing = (width if exact else 0) - sum(whole.values())
    for name in sorted(exact, key=lambda name: whole[name] - exact[name])[:missing]:
        whole[name] += 1
    return whole


def screen(
    status: Mapping[str, Any],
    *,
    roles: Mapping[str, Mapping[str, float]],
    lag: Mapping[str, float],
    events: Sequence[ToldEvent],
    footer: str,
) -> RenderableType:
    """The whole board.

    status: the orchestrator's answer, or what a run that is over left behind
    roles: role -> state -> seconds, of the newest updates
    lag: lag in updates -> trained groups
    """
    return Group(
        _head(status),
        _roles(status, roles),
        _groups(status, lag),
        _endpoints(table(status, "judge")),
        *(
            Text(f"  {_plain(event.text)}", style="dim", no_wrap=True, overflow="ellipsis")
            for event in events[:_EVENTS]
        ),
        Text(_plain(footer), style="reverse"),
    )


def _head(status: Mapping[str, Any]) -> Text:
    phase = show(status.get("doing", status.get("phase")))
    updates = status.get("updates")
    of = "" if updates is None else f" of {updates}"
    held_out = table(status, "eval")
    success = plus_minus(number(held_out, "success", "overall"), number(held_out, "stderr"))
    return Text.assemble(
        (show(status.get("run")), "bold"),
        f"  {phase}, version {show(status.get('version'))}{of}, "
        f"{show(number(status, 'train_s'), '.0f')} s of training in {show(number(status, 'wall_s'), '.0f')} s, "
        f"async depth {show(status.get('async_depth'))}\n",
        f"success: training {show(number(status, 'success', 'train'), '.3f')}, held-out {success}",
        *(f", {name} {value:.3f}" for name, value in numbers(status, "success", "by_env").items()),
    )


def _roles(status: Mapping[str, Any], roles: Mapping[str, Mapping[str, float]]) -> Table:
    doing = dict(_doing(status))
    states = list(dict.fromkeys(state for seconds in roles.values() for state in seconds))
    out = Table("role", "now", "time in the newest updates", box=box.SIMPLE_HEAD, expand=True)
    for name in dict.fromkeys((*doing, *roles)):
        parts = roles.get(name, {})
        bar = Text()
        for state, size in cells(parts, _BAR_CELLS).items():
            bar.append("█" * size, style=_ink(states, state))
        share = shares(parts)
        for state in sorted(share, key=lambda state: -share[state]):
            if share[state] >= 0.005:
                bar.append(f" {state.replace('_', ' ')} {share[state]:.0%}", style=_ink(states, state))
        out.add_row(_printable(name), _printable(doing.get(name, _NOTHING)), bar)
    return out


def _doing(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    permits = table(status, "permits")
    lines = []
    if permits:
        lines.append(("orchestrator", f"{show(permits.get('taken'))} of {show(permits.get('capacity'))} permits"))
    lines += [
        (
            show(producer.get("name")),
            f"{show(producer.get('engine'))} v{show(producer.get('version'))}, "
            f"{show(producer.get('rollouts'))} of {show(producer.get('capacity'))} rollouts",
        )
        for producer in status.get("producers", ())
    ]
    if learner := table(status, "learner"):
        does = "waits for groups" if learner.get("waiting") else "trains"
        lines.append(("learner", f"v{show(learner.get('version'))}, {does}"))
    return lines


def _groups(status: Mapping[str, Any], lag: Mapping[str, float]) -> Table:
    out = Table("buffer", "groups", "lag", "trained groups", box=box.SIMPLE_HEAD, expand=True)
    stages = [(stage, show(count)) for stage, count in table(status, "groups").items()]
    most = max(lag.values(), default=0.0) or 1.0
    lags = [(at, "█" * round(_LAG_CELLS * n / most) + f" {n:.0f}") for at, n in sorted(lag.items(), key=_lag_number)]
    for i in range(max(len(stages), len(lags), 1)):
        left = stages[i] if i < len(stages) else ("", "")
        right = lags[i] if i < len(lags) else ("", "")
        out.add_row(*left, *right)
    return out


def _endpoints(judge: Mapping[str, Any]) -> Table:
    out = Table(
        "",
        "judge",
        "model",
        "state",
        "in flight",
        "p50 s",
        "p95 s",
        "failed",
        "abstained",
        box=box.SIMPLE_HEAD,
        expand=True,
    )
    for place, endpoint in enumerate(judge.get("endpoints", ()), 1):
        out.add_row(
            str(place),
            _printable(show(endpoint.get("url"))),
            _printable(show(endpoint.get("model"))),
            show(endpoint.get("state")),
            f"{show(endpoint.get('in_flight'))} of {show(endpoint.get('limit'))}",
            show(number(endpoint, "p50_s"), ".2f"),
            show(number(endpoint, "p95_s"), ".2f"),
            show(number(endpoint, "error_share"), ".0%"),
            show(number(endpoint, "abstain_share"), ".0%"),
        )
    waiting = f"{show(judge.get('waiting'))} transcripts wait"
    problem = judge.get("problem")
    out.caption = _printable(f"{problem}; {waiting}" if problem else waiting)
    return out


def _lag_number(item: tuple[str, float]) -> float:
    return float(item[0])


def _ink(states: Sequence[str], state: str) -> str:
    return _INKS[states.index(state) % len(_INKS)]


def _printable(text: str) -> Text:
    """Text as it is, none of it read as rich's markup."""
    return Text(_plain(text))


def _plain(text: str) -> str:
    """Without control characters, which a world or a judge may have written."""
    return "".join(c if c.isprintable() else " " for c in text)
