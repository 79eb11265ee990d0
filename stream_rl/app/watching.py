"""The live page, put together: files and control link of a run, credit from the learner, tokens from its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from stream_rl.app.control import asking
from stream_rl.config import Config
from stream_rl.observe.rundir import RunDirectory
from stream_rl.page.episode import Pieces, pieces_by
from stream_rl.page.reader import RunReader
from stream_rl.page.server import RunPage
from stream_rl.page.snapshot import Ask
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Trajectory

_TOKENIZER = "tokenizer.json"


async def serve_page(
    run: RunDirectory,
    config: Config,
    words: Vocabulary,
    port: int,
    *,
    task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the page of a run until cancelled, as `RunPage.serve` does: also if it is over, or in another process.

    The orchestrator is asked in one session, however long the page is open.
    """
    async with asking(run) as ask:
        await run_page(run, config, words, ask).serve(port, task_status=task_status)


def run_page(run: RunDirectory, config: Config, words: Vocabulary, ask: Ask) -> RunPage:
    """The page, not yet served. `ask`: puts a question to the orchestrator, where there is one."""

    def advantages(group: Sequence[Trajectory]) -> list[list[float]]:
        from learner.advantages import turn_advantages
        from learner.members import member_of

        found = turn_advantages([member_of(trajectory) for trajectory in group], config.algorithm)
        return [values.tolist() for values in found]

    reader = RunReader(run, words, advantages=advantages, pieces=lambda: _pieces(run, config))
    return RunPage(run.root.name, _facts(config), reader, ask)


def _facts(config: Config) -> dict[str, Any]:
    return {
        "environments": [entry.name for entry in config.environments],
        "updates": config.updates,
        "async_depth": config.async_depth,
    }


def _pieces(run: RunDirectory, config: Config) -> Pieces | None:
    """The text of each token, by the policy's own tokenizer; None where no file of it is left."""
    file = next((folder / _TOKENIZER for folder in _folders(run, config) if (folder / _TOKENIZER).is_file()), None)
    if file is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return pieces_by(lambda token_ids: str(tokenizer.decode(token_ids, skip_special_tokens=False)))


def _folders(run: RunDirectory, config: Config) -> list[Path]:
    """Where the tokenizer may be: start policy, checkpoints (newest first), the configured folder."""
    start = [Path(run.policy.read_text(encoding="utf-8"))] if run.policy.exists() else []
    return [*start, *sorted(run.checkpoints.glob("*"), reverse=True), Path(config.policy.model)]
