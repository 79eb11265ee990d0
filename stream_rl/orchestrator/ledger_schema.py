"""The ledger's tables, and what ledgers of earlier releases lack."""

from __future__ import annotations

import sqlite3

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
  group_id TEXT PRIMARY KEY, position INTEGER NOT NULL, round INTEGER NOT NULL, environment TEXT NOT NULL,
  split TEXT NOT NULL, task_index INTEGER NOT NULL, seed INTEGER NOT NULL, guidance TEXT NOT NULL,
  state TEXT NOT NULL, attempts INTEGER NOT NULL, reason TEXT, hint TEXT, admitted INTEGER NOT NULL,
  reroll_of TEXT, reroll INTEGER NOT NULL DEFAULT 0, owed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS transitions (
  id INTEGER PRIMARY KEY, group_id TEXT NOT NULL, state TEXT NOT NULL, detail TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS trajectories (
  trajectory_id TEXT PRIMARY KEY, group_id TEXT NOT NULL, purpose TEXT NOT NULL, success INTEGER NOT NULL,
  reward REAL NOT NULL, sampled_tokens INTEGER NOT NULL, error TEXT, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS verdicts (trajectory_id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS offers (group_id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS scores (trajectory_id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS second_verdicts (trajectory_id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS versions (version INTEGER PRIMARY KEY, manifest BLOB NOT NULL, live INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (version INTEGER PRIMARY KEY, path TEXT NOT NULL);
"""

_INDICES = """
CREATE INDEX IF NOT EXISTS groups_by_round ON groups (round, state);
CREATE UNIQUE INDEX IF NOT EXISTS groups_by_reroll ON groups (reroll_of);
CREATE INDEX IF NOT EXISTS trajectories_by_group ON trajectories (group_id);
"""


def prepare(db: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an earlier release up to date."""
    db.executescript(_TABLES)
    columns = {name for _, name, *_ in db.execute("PRAGMA table_info(groups)")}
    db.execute("BEGIN IMMEDIATE")
    try:
        if "admitted" not in columns:  # made before rounds had a window: every group is in its first round there
            db.execute("ALTER TABLE groups ADD COLUMN admitted INTEGER NOT NULL DEFAULT 0")
            db.execute("UPDATE groups SET admitted = round")
        # Made before discarded groups were rolled again as such: no re-roll is owed there. The next tasks in the order
        # filled their places, and fill those that are still free.
        for name, kind in (
            ("reroll_of", "TEXT"),
            ("reroll", "INTEGER NOT NULL DEFAULT 0"),
            ("owed", "INTEGER NOT NULL DEFAULT 0"),
        ):
            if name not in columns:
                db.execute(f"ALTER TABLE groups ADD COLUMN {name} {kind}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.executescript(_INDICES)
