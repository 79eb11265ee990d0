"""The learner's part of a metrics line: sums over tokens, added over micro-batches and ranks, then made means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from learner.correction import Mismatch, effective_sample_share
from learner.distill import Gap
from learner.row_facts import row_facts
from learner.rows import Rows
from learner.within import Choice
from stream_rl.types import Trajectory

STATES = ("rollout_wait", "judge_wait", "unpack", "prox", "teacher", "train", "publish", "checkpoint", "other")
_OWN_KEYS = ("rollout_wait", "judge_wait", "prox", "teacher", "train", "publish")


class Sums:
    """Named float64 sums of one update on one rank. Every rank uses the same names, so that they can be reduced."""

    def __init__(self, lags: Sequence[int]) -> None:
        names = ["loss", "tokens", "entropy", "clipped", "rejected", "capped"]
        names += ["padded_tokens", "real_tokens", "teacher_tokens", "reference_tokens"]
        names += [
            f"{mean}.{part}" for mean in ("kl_reference", "correction", "distill") for part in ("total", "tokens")
        ]
        names += [f"mismatch.{field}" for field in Mismatch._fields] + [f"gap.{field}" for field in Gap._fields]
        names += [f"lag.{lag}.{what}" for lag in lags for what in ("tokens", "kl")]
        self._values = dict.fromkeys(names, 0.0)
        self.lags = tuple(lags)

    def add(self, name: str, value: float) -> None:
        """Add to one sum. Raises `KeyError` for a name that other ranks would not have."""
        self._values[name] += value

    def add_mismatch(self, found: Mismatch) -> None:
        """Add the sums of one micro-batch."""
        for field, value in found._asdict().items():
            self.add(f"mismatch.{field}", value)

    def add_gap(self, found: Gap) -> None:
        """Add the sums of one micro-batch."""
        for field, value in found._asdict().items():
            self.add(f"gap.{field}", value)

    def reduced(self, reduce: Callable[[Sequence[float]], Sequence[float]]) -> Mapping[str, float]:
        """The sums over all ranks; `reduce` is a collective."""
        return dict(zip(self._values, reduce(list(self._values.values())), strict=True))


def update_metrics(
    total: Mapping[str, float], lags: Sequence[int], rows: Rows, grad_norms: Sequence[float | None]
) -> dict[str, Any]:
    """Means of one update. `grad_norms`: one an optimiser step, None where it was skipped for want of any gradient."""
    tokens = total["tokens"]
    seen = total["mismatch.tokens"]
    scored = total["gap.tokens"]
    taken = [norm for norm in grad_norms if norm is not None]
    d_mean = _mean(total["gap.total"], scored)
    squares = _mean(total["gap.squares"], scored)
    d_std = None if d_mean is None or squares is None else max(0.0, squares - d_mean**2) ** 0.5
    real = _mean(total["real_tokens"], total["padded_tokens"])
    facts = row_facts(rows.rows)
    return {
        "loss": _mean(total["loss"], len(grad_norms)),
        "kl_behavior": _mean(total["mismatch.kl"], seen),
        "kl_reference": _mean(total["kl_reference.total"], total["kl_reference.tokens"]),
        "entropy": _mean(total["entropy"], tokens),
        "grad_norm": _mean(sum(taken), len(taken)),
        "clip_share": _mean(total["clipped"], tokens),
        "ess": effective_sample_share(seen, total["mismatch.weight"], total["mismatch.weight_squared"]),
        "mismatch": {
            "tv": _mean(total["mismatch.tv"], seen),
            "capped_share": _mean(total["capped"], tokens),
            "rejected_share": _mean(total["rejected"], tokens),
            "kl_by_lag": {str(lag): _mean(total[f"lag.{lag}.kl"], total[f"lag.{lag}.tokens"]) for lag in lags},
        },
        "distill": {
            "d_mean": d_mean,
            "d_std": d_std,
            "share": _mean(scored, tokens),
            "loss": _mean(total["distill.total"], total["distill.tokens"]),
            "correction_abs": _mean(total["correction.total"], total["correction.tokens"]),
            "dropped_rows": rows.dropped_teachers,
        },
        "tokens": {
            **facts["tokens"],
            "teacher": int(total["teacher_tokens"]),
            "reference": int(total["reference_tokens"]),
        },
        "rows": facts["rows"],
        "advantage": facts["advantage"],
        "steps": {"taken": len(taken), "skipped": len(grad_norms) - len(taken)},
        "sequence_tokens": int(total["real_tokens"]),
        "padding_share": None if real is None else 1 - real,
    }


def response_metrics(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Lengths of what valid trajectories sampled, and the share of their turns cut at the token limit."""
    lengths = [t.num_sampled_tokens for t in trajectories if t.valid]
    cut = Counter(turn.cut for t in trajectories if t.valid for turn in t.turns)
    return {
        "response": {"tokens_mean": _mean(sum(lengths), len(lengths)), "tokens_max": max(lengths, default=0)},
        "cut_share": _mean(cut[True], cut.total()),
    }


def choice_metrics(choices: Sequence[Choice]) -> dict[str, Any]:
    """How well the hints the learner chose point at good turns, in members that had no part in the choice."""
    rhos = [choice.held_out_rho for choice in choices if choice.held_out_rho is not None]
    return {
        "within_rho": _mean(sum(rhos), len(rhos)),
        "undecided_groups": sum(choice.index is None for choice in choices),
    }


def time_metrics(states: Mapping[str, float]) -> dict[str, Any]:
    """Seconds by state under the names of a metrics line; `unpack` and `checkpoint` are part of `other_s`.

    The parts of `learner` add up to its `total_s`; what is inside `other_s` is shown beside it.
    """
    own = {f"{state}_s": states[state] for state in _OWN_KEYS}
    total = sum(states.values())
    rest = total - sum(own.values())
    return {
        "learner": {**own, "other_s": rest, "total_s": total},
        "learner_other": {"unpack_s": states["unpack"], "checkpoint_s": states["checkpoint"]},
    }


def _mean(total: float, count: float) -> float | None:
    """None where nothing was measured: it is not zero."""
    return total / count if count else None
