"""Charts of what a whole run came to: time by role, staleness by origin, costs, discards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stream_rl.observe.records import shares, sum_numbers
from stream_rl.observe.summary import Summary
from stream_rl.observe.theme import LIGHT, in_order, series_colour, state_colour

_MANY = 6  # roles of one kind that are still shown one by one
_LABELLED = 0.09  # share of a bar that has room for its name
_ROW, _HEAD = 0.36, 0.9  # inches
_ORIGINS = {
    "sync": "weights on their way",
    "generation": "generation",
    "judge": "judge",
    "buffer": "waiting for its round",
    "learner": "waiting for the learner",
}


def roles_chart(s: Summary) -> Any:
    """One bar of 100 % for each role, and for the slots of those that do many things at once. None without any."""
    rows = {**({"learner": s.learner} if s.learner else {}), **condensed(s.roles)}
    rows |= {f"{name}: places" if "producer" in name else f"{name}: questions": slots
             for name, slots in condensed({name: _used(name, slots) for name, slots in s.slots.items()}).items()
             if slots}  # fmt: skip
    if not rows:
        return None
    states = in_order(state for parts in rows.values() for state, share in parts.items() if share)
    figure = _figure(9, _HEAD + _ROW * (len(rows) + (len(states) + 6) // 7))
    axes = figure.subplots()
    for place, parts in enumerate(rows.values()):
        left = 0.0
        for state in states:
            share = parts.get(state, 0.0)
            if not share:
                continue
            axes.barh(place, share, left=left, height=0.7, color=state_colour(state), edgecolor=LIGHT["card"], lw=1)
            if share >= _LABELLED:
                ink = LIGHT["ink"] if state_colour(state) == LIGHT["line"] else LIGHT["card"]
                axes.text(left + share / 2, place, f"{share:.0%}", ha="center", va="center", color=ink, fontsize=8.5)
            left += share
    axes.set_yticks(range(len(rows)), labels=list(rows))
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5))
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    handles = [axes.barh(0, 0, color=state_colour(state), label=state.replace("_", " ")) for state in states]
    figure.legend(handles=handles, loc="outside upper left", ncols=7, fontsize="small")
    return figure


def lag_chart(s: Summary) -> Any:
    """How old trained groups were, and in which phase they aged. None without a trained group."""
    if not s.lag_histogram:
        return None
    figure = _figure(9, 2.6)
    left, right = figure.subplots(1, 2)
    total = sum(s.lag_histogram.values())
    left.bar(list(s.lag_histogram), [n / total for n in s.lag_histogram.values()], color=LIGHT["c3"], width=0.7)
    left.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    left.set(title="lag of trained groups", xlabel="updates", ylabel="groups")
    if s.lag_origins:
        names = [_ORIGINS.get(origin, origin) for origin in s.lag_origins]
        values = list(s.lag_origins.values())
        right.barh(names, values, color=[series_colour(i) for i in range(len(names))], height=0.7)
        right.invert_yaxis()
        right.set(title="where it arose", xlabel="updates of a group, in the mean")
        _numbered(right, values, "{:.2f}")
    else:
        right.set_axis_off()
    return figure


def cost_chart(s: Summary) -> Any:
    """The policy's tokens by what became of them, and seconds that devices were held. None without either.

    The judge's tokens are another model's, and often a hundred times as many: they have no bar.
    """
    if not s.device_s and not any(s.tokens.values()):
        return None
    figure = _figure(9, 2.8)
    left, right = figure.subplots(1, 2)
    tokens = {name: n for name, n in s.tokens.items() if n and not name.startswith("judge")}
    _bars(left, tokens, "tokens of the policy", "{:,.0f}", LIGHT["c0"])
    _bars(right, {name: v for name, v in s.device_s.items() if v}, "seconds of devices", "{:,.0f} s", LIGHT["c2"])
    return figure


def discards_chart(s: Summary) -> Any:
    """What became of the groups, and rollouts of those that will never be trained. None where there were none."""
    if not s.discarded:
        return None
    figure = _figure(9, 1.1 + 0.34 * (len(s.discarded) + 1))
    left, right = figure.subplots(1, 2)
    groups = {"trained": s.groups["selected"], **s.discarded}
    _bars(left, groups, "groups", "{:,.0f}", LIGHT["c1"])
    left.patches[0].set_color(LIGHT["c0"])
    _bars(right, s.discarded_rollouts, "rollouts of those that were not", "{:,.0f}", LIGHT["c1"])
    right.set_ylim(left.get_ylim())
    return figure


def condensed(roles: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Shares by state. More roles of one kind than can be read one by one become one row, their mean.

    >>> condensed({f"producer-{i}": {"idle": i / 10, "generate": 1 - i / 10} for i in range(10)})
    {'10 x producer': {'idle': 0.45, 'generate': 0.55}}
    """
    kinds: dict[str, list[str]] = {}
    for name in roles:
        kinds.setdefault(re.sub(r"-\d+", "", name), []).append(name)
    out: dict[str, dict[str, float]] = {}
    for kind, names in kinds.items():
        if len(names) > _MANY:
            mean = sum_numbers(roles[name] for name in names)
            out[f"{len(names)} x {kind}"] = {state: round(s / len(names), 9) for state, s in mean.items()}
        else:
            out |= {name: dict(roles[name]) for name in names}
    return out


def _used(name: str, slots: Mapping[str, float]) -> dict[str, float]:
    """Judging has as many slots as it ever needed at once: what they do while unused says nothing."""
    return shares({state: s for state, s in slots.items() if name != "judging" or state != "idle"})


def _bars(axes: Any, values: Mapping[str, float], title: str, spec: str, colour: str) -> None:
    if not values:
        axes.set_axis_off()
        return
    axes.barh([name.replace("_", " ") for name in values], list(values.values()), color=colour, height=0.7)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    _numbered(axes, list(values.values()), spec)


def _numbered(axes: Any, values: Sequence[float], spec: str) -> None:
    """The number behind each bar, with room for it."""
    axes.set_xlim(0, 1.25 * max(values, default=0.0) or 1.0)
    axes.tick_params(length=0)
    for place, value in enumerate(values):
        axes.annotate(
            spec.format(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=LIGHT["soft"],
        )  # fmt: skip


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # heavy: half a second

    return Figure(figsize=(width, height), layout="constrained")
