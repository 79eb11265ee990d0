"""Does a data folder behave as upstream says? Every gold INSERT, UPDATE and DELETE is run and its hash compared."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypedDict

from envs.dbbench.backend import Backend, StatementFailed, state
from envs.dbbench.backends import BackendName, backend_for
from envs.dbbench.data import load
from envs.dbbench.records import Record
from envs.dbbench.statements import Refused

log = logging.getLogger(__name__)


class GoldReport(TypedDict):
    """What a replay found. `gold_total` is the sum of the other three counts."""

    gold_total: int  # gold statements that change tables
    gold_reproduced: int  # led to the recorded hash
    known_bad: int  # rows that cannot, for a known reason; they are never tasks
    known_bad_rows: dict[str, str]  # their ids and the reasons
    failed: list[str]  # ids of all others


def replay_gold(data: str | Path, backend: Backend | BackendName = "sqlite", dsn_env: str = "") -> GoldReport:
    """Replay all gold statements of a file or folder, each on tables of its own.

    `backend` is one that is open, or "sqlite", or "mysql" (at the address in the environment variable `dsn_env`, or a
    private MariaDB). Raises `ConfigError` and `EnvironmentFailed`.
    """
    found = load(str(data))
    engine = backend_for(backend, dsn_env=dsn_env) if isinstance(backend, str) else backend
    bad = {row.id: row.reason for row in found.skipped if row.gold}
    changes = [record for record in found.records if record.changes and record.expected and record.gold]
    failed = [record.id for record in changes if not _reproduces(record, engine)]
    return GoldReport(
        gold_total=len(changes) + len(bad),
        gold_reproduced=len(changes) - len(failed),
        known_bad=len(bad),
        known_bad_rows=bad,
        failed=failed,
    )


def _reproduces(record: Record, backend: Backend) -> bool:
    database = backend.open(record.tables)
    try:
        database.execute(record.gold)
        return state(database, record.tables) == record.expected
    except (Refused, StatementFailed) as error:
        log.warning("dbbench: gold statement of %s: %s", record.id, error)
        return False
    finally:
        database.close()
