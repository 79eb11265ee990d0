"""A running run at this moment: one line for each role, from the orchestrator's status. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stream_rl.observe.records import number, table
from stream_rl.observe.words import alarm, fields, plus_minus, sentence, show

_NAME_CELLS = 14


def render_status(status: Mapping[str, Any]) -> str:
    """The text of `stream-rl status`: the run, then a line a role, the newest success, and alarms.

    Of a run that is over, `status` holds no roles but its `last_event`.
    """
    return "\n".join(f"{name:<{_NAME_CELLS}}{text}" for name, text in _lines(status))


def _lines(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    version, updates = show(status.get("version")), status.get("updates")
    of = "" if updates is None else f" of {updates}"
    wall, train = show(number(status, "wall_s"), ".0f"), show(number(status, "train_s"), ".0f")
    doing = show(status.get("doing", status.get("phase")))
    yield (
        "run",
        f"{show(status.get('run'))}, {doing}, version {version}{of}, {wall} s, {train} s of it training",
    )
    if "permits" in status:
        yield from _roles(status)
    lag = show(number(status, "lag", "max"), ".0f")
    yield "training", f"success {show(number(status, 'success', 'train'), '.3f')}, lag at most {lag}"
    newest = table(status, "eval")
    if newest:
        success = plus_minus(number(newest, "success", "overall"), number(newest, "stderr"))
        yield "held-out", f"success {success} at version {show(newest.get('version'))}"
    for raised in _items(status, "alarms"):
        yield "alarm", alarm(raised)
    if last := table(status, "last_event"):
        yield "last event", sentence(last)


def _roles(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    permits, groups = table(status, "permits"), table(status, "groups")
    held = f"{show(permits.get('taken'))} of {show(permits.get('capacity'))} permits taken"
    yield "orchestrator", f"{held}, groups: {fields(groups) or 'none'}, async depth {show(status.get('async_depth'))}"
    for producer in _items(status, "producers"):
        yield (
            show(producer.get("name")),
            f"{show(producer.get('engine'))}, version {show(producer.get('version'))}, "
            f"{show(producer.get('rollouts'))} of {show(producer.get('capacity'))} rollouts",
        )
    if not _items(status, "producers"):
        yield "producers", "none is connected"
    yield "learner", _learner(table(status, "learner"))
    judge = table(status, "judge")
    waiting = f"{show(judge.get('waiting'))} transcripts wait"
    yield "judge", f"{judge['problem']}; {waiting}" if judge.get("problem") else waiting
    for endpoint in _items(judge, "endpoints"):
        yield "", endpoint_line(endpoint)


def endpoint_line(endpoint: Mapping[str, Any]) -> str:
    """How one judge endpoint is doing: state, requests in flight, times, faults, cost."""
    tokens = (number(endpoint, "prompt_tokens") or 0.0) + (number(endpoint, "completion_tokens") or 0.0)
    problem = endpoint.get("problem")
    return (
        f"{show(endpoint.get('url'))} ({show(endpoint.get('model'))}) {show(endpoint.get('state'))}, "
        f"{show(endpoint.get('in_flight'))} of {show(endpoint.get('limit'))} in flight, "
        f"p50 {show(number(endpoint, 'p50_s'), '.2f')} s, p95 {show(number(endpoint, 'p95_s'), '.2f')} s, "
        f"{show(number(endpoint, 'error_share'), '.0%')} failed, {show(number(endpoint, 'abstain_share'), '.0%')} "
        f"abstained, {tokens:,.0f} tokens, price {show(number(endpoint, 'price'), '.4g')}"
        + (f"; last failure: {problem}" if problem else "")
    )


def _learner(learner: Mapping[str, Any]) -> str:
    if not learner:
        return "not connected"
    doing = "waits for groups" if learner.get("waiting") else "trains"
    return f"version {show(learner.get('version'))}, {doing}"


def _items(status: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    values = status.get(key)
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list | tuple) else []
