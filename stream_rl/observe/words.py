"""What happened, in plain words: one sentence for each kind of event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_rl.observe.records import number, numbers, table

MISSING = "-"

_ALARMS = {
    "entropy": "mean token entropy is {value}, below {limit}",
    "all_fail": "the share of groups that fail as a whole is {value}, above {limit}",
    "cut_actions": "the share of actions cut at the token limit is {value}, above {limit}",
}


def show(value: object, spec: str = "") -> str:
    """A number by format `spec`, another value as text, "-" for None and for what `spec` does not fit."""
    if value is None:
        return MISSING
    try:
        return format(value, spec)
    except (TypeError, ValueError):
        return MISSING


def plus_minus(mean: float | None, stderr: float | None) -> str:
    """ "0.412 +- 0.021", or the mean alone where there is no standard error."""
    return show(mean, ".3f") + ("" if mean is None or stderr is None else f" +- {stderr:.3f}")


def counts(by_reason: Mapping[str, float]) -> str:
    """ "stale 2, too few valid 1"."""
    return ", ".join(f"{reason.replace('_', ' ')} {n:.0f}" for reason, n in by_reason.items())


def alignment(orsd: Mapping[str, float]) -> list[str]:
    """How the written rubrics aligned with outcomes, one fact each; what was not measured is left out."""
    said = {
        "rho_mean": "chosen bundles correlate with the outcomes at {:+.2f}",
        "taught_share": "{:.0%} of the groups got a bundle",
        "undefined_share": "{:.0%} of the groups had no defined correlation",
        "malformed_share": "{:.0%} of the answers held no usable bundle",
        "bank_share": "{:.0%} of the choices where the bank made an offer went to it",
    }
    return [text.format(orsd[name]) for name, text in said.items() if name in orsd]


def alarm(event: Mapping[str, Any]) -> str:
    """What went past which limit, and what to change."""
    name = str(event.get("name"))
    value, limit = show(number(event, "value"), ".3g"), show(number(event, "limit"), ".3g")
    known = _ALARMS.get(name)
    what = known.format(value=value, limit=limit) if known else f"{name} is {value}, past {limit}"
    advice = event.get("advice")
    tail = f". What to do: {advice}" if advice else ""
    return f"ALARM at update {show(event.get('step'))}: {what}{tail}."


def evaluation(event: Mapping[str, Any]) -> str:
    """Held-out success, by world where there are several, and what the episodes were like."""
    version = event.get("version", event.get("step"))
    by_env = numbers(event, "success", "by_env")
    text = f"held-out at version {show(version)}: success " + plus_minus(
        number(event, "success", "overall"), number(event, "stderr")
    )
    if len(by_env) > 1:
        text += " (" + ", ".join(f"{name} {value:.3f}" for name, value in by_env.items()) + ")"
    text += f", {show(event.get('tasks'))} tasks x {show(event.get('rollouts'))}"
    text += f", {show(number(event, 'turns_mean'), '.1f')} turns"
    text += f", {show(number(event, 'invalid_action_share'), '.0%')} of the actions do nothing"
    if invalid := number(event, "invalid"):
        text += f", {invalid:.0f} rollouts failed"
    return text


def sentence(event: Mapping[str, Any]) -> str:
    """An event as one sentence. A kind that is not known is shown with all its fields."""
    name, reason = show(event.get("name")), show(event.get("reason"))
    match event.get("type"):
        case "alarm":
            return alarm(event)
        case "eval":
            return evaluation(event)
        case "phase":
            return f"phase: {show(event.get('phase'))}"
        case "producer_ready":
            return f"{name} is ready: {show(event.get('engine'))}, {show(event.get('capacity'))} rollouts at once"
        case "producer_left":
            return f"{name} left ({reason}); its {show(event.get('leases'))} groups are leased again"
        case "producer_quarantined":
            return f"{name} gets no more work: {reason}; it is started again"
        case "learner_ready":
            return f"the learner is ready at version {show(event.get('version'))}"
        case "weights_failed":
            peer, version = show(event.get("peer")), show(event.get("version"))
            return f"{peer} could not load version {version}: {show(event.get('error'))}"
        case "discarded":
            errors = event.get("errors")
            why = f" ({'; '.join(map(str, errors))})" if isinstance(errors, list | tuple) and errors else ""
            return f"group {show(event.get('group'))} is discarded: {reason.replace('_', ' ')}{why}"
        case "checkpoint":
            return f"checkpoint of version {show(event.get('version'))}: {show(event.get('path'))}"
        case "judge":
            problem = event.get("problem")
            return f"judge: {problem}" if problem else "judge: answers again"
        case "async_depth":
            return f"async depth is {show(event.get('depth'))} from now on"
        case "paused":
            return "paused: nothing new is leased until `stream-rl tune RUN --go-on`"
        case "unpaused":
            return "going on"
        case "role_restarted":
            code, wait = show(event.get("exit_code")), show(number(event, "wait_s"), ".0f")
            why = f": {reason}" if event.get("reason") else ""
            return f"{name} ended with {_exit_words(code)} and is started again after {wait} s{why}"
        case "generator_attached":
            return f"{show(event.get('url'))} is attached as {name}"
        case "generator_detached":
            return f"{show(event.get('url'))} is detached; the groups of {name} are leased again"
        case "generator_dropped":
            return f"{name} is dropped, the run goes on without it: {reason}"
        case "stopping":
            return f"stopping: {reason}"
        case "finished":
            return f"finished at version {show(event.get('version'))}: {reason}"
        case "failing":
            role, code = show(event.get("role")), show(event.get("exit_code"))
            return f"{role} ended with {_exit_words(code)}; the run cannot go on"
        case "page":
            return f"watch it at {show(event.get('address'))}"
        case "sink":
            return (
                f"nothing more goes to the sink {name}: {show(event.get('problem'))}; the run goes on, its numbers are "
                f"in metrics.jsonl (details: {show(event.get('log'))})"
            )
        case "failed":
            return f"FAILED: {show(event.get('error'))}"
        case "killed":
            return f"killed: {reason}"
        case kind:
            rest = fields({k: v for k, v in event.items() if k not in ("type", "at")})
            return f"{show(kind)}: {rest}" if rest else show(kind)


def fields(values: Mapping[str, Any]) -> str:
    """ "engine vllm, async depth 1"."""
    return ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in values.items())


def discards(line: Mapping[str, Any]) -> dict[str, float]:
    """Groups lost in the update of a metrics line, by reason. What selection left out was not lost."""
    found = numbers(table(line, "groups"), "discarded")
    return {reason: n for reason, n in found.items() if reason != "not_selected" and n}


def _exit_words(code: str) -> str:
    return f"signal {code[1:]}" if code.startswith("-") and len(code) > 1 else f"exit code {code}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return f"({fields(value)})"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(map(_plain, value)) or "none"
    return show(value)
