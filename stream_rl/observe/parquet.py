"""Every rollout of a run as a Parquet file: one row each, nested turns and token sequences, documented columns.

Read it with `pyarrow.parquet`, pandas, polars, DuckDB or `datasets.load_dataset("parquet", ...)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.errors import UsageError
from stream_rl.observe.archive import ArchivedRollout
from stream_rl.types import Sample, Trajectory, Turn

ROW_GROUP_BYTES = 16 << 20  # records of the ledger in one row group: memory needed is some times that
ROW_GROUP_ROWS = 4096
_INSTALL = "exporting trajectories needs the package pyarrow: pip install 'stream-rl[parquet]'"

# Column -> what it holds. The order is that of the file.
COLUMNS: dict[str, str] = {
    "trajectory_id": "group id and member, unique in the run",
    "group_id": "the group it belongs to",
    "member": "0 to G - 1",
    "purpose": '"train" or "eval"',
    "environment": "world",
    "split": '"train" or "held_out"',
    "task_index": "position in the split's seeded order",
    "seed": "of the group's lease; null for an evaluation",
    "round": "the round (update) the group belongs to; null for an evaluation",
    "group_state": "where the group stands: leased, produced, judged, candidate, selected, trained, discarded; null "
    "for an evaluation",
    "discard_reason": "of a discarded group",
    "guidance": "rubric ids shown to the rollout",
    "hint": "rubric ids or written criteria the group's teacher was told; null: no teacher",
    "first_prompt": "the world's first observation",
    "reward": "sum of the turns' rewards",
    "success": "the task was solved",
    "score": "the world's graded score, 0 to 1",
    "error": "why the rollout is invalid; null for a valid one",
    "seconds": "wall time of the episode",
    "sampled_tokens": "tokens the policy generated",
    "oldest_version": "policy version of the oldest token; null when nothing was sampled",
    "turns": "in order: the action as decoded, the world's answer, `valid`, `cut` at the token limit, `reward`, "
    "`generate_s` and `environment_s`, and where its tokens are: [`start`, `stop`) of the sequence `sample`, sampled "
    "by policy versions `spans`",
    "samples": "trainable token sequences: `token_ids`, `loss_mask` (true where the policy sampled the token), "
    "`behavior_logprobs` (0 elsewhere; temperature included), `head` (the messages the first `head_tokens` ids were "
    "rendered from), `thinking`",
    "tags": "the judge's answers, one a rubric: `rubric`, `value` (positive, violation, not_applicable, abstained), "
    "`reason`; null: not judged",
    "criterion_scores": "how far it satisfies each written criterion, 0 to 1, null for a missing one; null: not scored",
    "judge_endpoint": "who answered",
    "judge_model": "the model's name",
    "judge_tokens": "prompt and completion tokens of the tagging and the scoring together; null: neither",
}


# Fields of a turn as they are; its spans are nested.
_TURN = ("action", "observation", "valid", "cut", "reward", "generate_s", "environment_s", "sample", "start", "stop")


class ParquetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    rows: int  # rollouts
    row_groups: int  # of the file
    num_bytes: int  # of the file


def check_installed() -> None:
    """Raise `UsageError` with what to install where Parquet cannot be written."""
    _pyarrow()


def write_parquet(rollouts: Iterator[ArchivedRollout], file: Path) -> ParquetFacts:
    """Write all rollouts. The file appears when it is whole; memory is bounded by a row group, not by the run."""
    pa, pq = _pyarrow()
    schema = _schema(pa)
    partial = file.with_name(f".{file.name}.partial")
    rows: list[dict[str, Any]] = []
    size = count = groups = 0
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:

        def flush() -> None:
            nonlocal size, count, groups
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema), row_group_size=len(rows))
            count, groups, size = count + len(rows), groups + 1, 0
            rows.clear()

        for rollout in rollouts:
            rows.append(_row(rollout))
            size += rollout.num_bytes
            if size >= ROW_GROUP_BYTES or len(rows) >= ROW_GROUP_ROWS:
                flush()
        if rows:
            flush()
    os.replace(partial, file)
    return ParquetFacts(rows=count, row_groups=groups, num_bytes=file.stat().st_size)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise UsageError(_INSTALL) from None
    return pyarrow, pyarrow.parquet


def _schema(pa: Any) -> Any:
    text, whole, real, yes = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    texts = pa.list_(text)
    span = pa.struct({"version": whole, "num_tokens": whole})
    turn = pa.struct(
        {
            "action": text,
            "observation": text,
            "valid": yes,
            "cut": yes,
            "reward": real,
            "generate_s": real,
            "environment_s": real,
            "sample": whole,
            "start": whole,
            "stop": whole,
            "spans": pa.list_(span),
        }
    )
    sample = pa.struct(
        {
            "token_ids": pa.list_(pa.int32()),
            "loss_mask": pa.list_(yes),
            "behavior_logprobs": pa.list_(pa.float32()),
            "head": pa.list_(pa.struct({"role": text, "content": text})),
            "head_tokens": whole,
            "thinking": yes,
        }
    )
    kinds = {
        **dict.fromkeys(("member", "task_index", "seed", "round", "sampled_tokens", "oldest_version"), whole),
        **dict.fromkeys(("reward", "score", "seconds"), real),
        **dict.fromkeys(("guidance", "hint"), texts),
        "success": yes,
        "judge_tokens": whole,
        "turns": pa.list_(turn),
        "samples": pa.list_(sample),
        "tags": pa.list_(pa.struct({"rubric": text, "value": text, "reason": text})),
        "criterion_scores": pa.list_(real),
    }
    return pa.schema(
        [pa.field(name, kinds.get(name, text), metadata={"description": told}) for name, told in COLUMNS.items()]
    )


def _row(rollout: ArchivedRollout) -> dict[str, Any]:
    group, verdict, scores = rollout.group, rollout.verdict, rollout.scores
    said = [answer for answer in (verdict, scores) if answer is not None]
    return {
        **_episode(rollout.trajectory),
        "purpose": rollout.purpose,
        "seed": group.seed if group else None,
        "round": group.round if group else None,
        "group_state": group.state if group else None,
        "discard_reason": group.reason if group else None,
        "hint": list(group.hint) if group and group.hint is not None else None,
        "tags": None if verdict is None else [msgspec.to_builtins(tag) for tag in verdict.tags],
        "criterion_scores": None if scores is None else list(scores.scores),
        "judge_endpoint": next((r.endpoint for r in said), None),
        "judge_model": next((r.model for r in said), None),
        "judge_tokens": sum(r.prompt_tokens + r.completion_tokens for r in said) if said else None,
    }


def _episode(t: Trajectory) -> dict[str, Any]:
    return {
        "trajectory_id": t.id,
        "group_id": t.group_id,
        "member": t.member,
        "environment": t.task.environment,
        "split": t.task.split,
        "task_index": t.task.index,
        "guidance": list(t.guidance),
        "first_prompt": t.first_prompt,
        "reward": t.reward,
        "success": t.success,
        "score": t.score,
        "error": t.error,
        "seconds": t.seconds,
        "sampled_tokens": t.num_sampled_tokens,
        "oldest_version": t.oldest_version,
        "turns": [_turn(turn) for turn in t.turns],
        "samples": [_sample(sample) for sample in t.samples],
    }


def _turn(turn: Turn) -> dict[str, Any]:
    spans = [{"version": span.version, "num_tokens": span.num_tokens} for span in turn.spans]
    return {**{name: getattr(turn, name) for name in _TURN}, "spans": spans}


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "token_ids": sample.token_ids,
        "loss_mask": sample.loss_mask,
        "behavior_logprobs": sample.behavior_logprobs,
        "head": [{"role": m.role, "content": m.content} for m in sample.head],
        "head_tokens": sample.head_tokens,
        "thinking": sample.thinking,
    }
