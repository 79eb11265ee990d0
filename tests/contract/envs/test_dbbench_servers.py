"""SQLite and a real MariaDB behind one interface: the same truth about upstream's data, and no way to harm others."""

from __future__ import annotations

import logging
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pymysql
import pytest

from envs.dbbench.backend import Backend, StatementFailed, quoted, state
from envs.dbbench.backends import backend_for
from envs.dbbench.check import replay_gold
from envs.dbbench.data import load
from envs.dbbench.mariadb import PrivateServer, programs
from envs.dbbench.mysql_server import MySQLServer
from envs.dbbench.player import Player
from envs.dbbench.records import Table
from envs.dbbench.statements import Refused
from envs.dbbench.world import DBBench
from stream_rl.errors import EnvironmentLost
from stream_rl.types import Task

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "dbbench"
LIMIT_S = 1.0
TABLE = Table(name="Big Games", columns=("Team", "Crowd"), rows=(("José", "24,000"), ("Zoë", "130")))

needs_mariadb = pytest.mark.skipif(programs() is None, reason="MariaDB's server is not installed")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="upstream's data is not at ../shared/data/dbbench")


@pytest.fixture(scope="module")
def mysql() -> Backend:
    if programs() is None:
        pytest.skip("MariaDB's server is not installed")
    return backend_for("mysql", statement_limit_s=LIMIT_S)


@pytest.fixture(params=["sqlite", "mysql"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "mysql":
        made: Backend = request.getfixturevalue("mysql")
        return made
    return backend_for("sqlite", statement_limit_s=LIMIT_S)


def outcome(backend: Backend, tables: tuple[Table, ...], statements: list[str]) -> list[str | None]:
    """What each statement shows; None for one that fails."""
    database = backend.open(tables)
    shown: list[str | None] = []
    for sql in statements:
        try:
            shown.append(database.execute(sql))
        except (StatementFailed, Refused):
            shown.append(None)
    database.close()
    return shown


@needs_data
def test_every_usable_gold_change_reproduces_its_hash(backend: Backend) -> None:
    report = replay_gold(DATA, backend)
    assert report["failed"] == []
    assert report["gold_total"] == 106  # 40 of dev, 66 of standard_third
    assert report["gold_reproduced"] == 105
    assert report["known_bad_rows"].keys() == {"standard_third:75"}


@needs_data
def test_a_row_mysql_cannot_make_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    load.cache_clear()
    with caplog.at_level(logging.WARNING):
        data = load(str(DATA / "dev.jsonl"))
    assert [row.id for row in data.skipped] == ["dev:5"]
    assert "empty column name" in caplog.text


def questions(table: Table) -> list[str]:
    """SELECT statements in the ways of agents, over the first columns of a table."""
    made = []
    where = quoted(table.name)
    for i, name in enumerate(table.columns[:2]):
        column, value = quoted(name), table.rows[len(table.rows) // 2][i]
        text = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
        start = re.sub(r"['\\%_]", "", value[:3])
        made += [
            f"SELECT {column} FROM {where} WHERE {column} = {text}",
            f"SELECT COUNT(*), COUNT(DISTINCT {column}) FROM {where} WHERE {column} <= {text}",
            f"SELECT MAX({column}), MIN({column}), SUM({column}), AVG({column}) FROM {where}",
            f"SELECT {column}, COUNT(*) FROM {where} GROUP BY {column} ORDER BY COUNT(*) DESC, {column}",
            f"SELECT {column} FROM {where} WHERE LOWER({column}) LIKE '%{start.lower()}%' ORDER BY {column}",
            f"SELECT {column} FROM {where} WHERE {column} > 50 OR {column} IN ({text}, 'x')",
            f"SELECT {column} FROM {where} WHERE {column} > (SELECT AVG({column}) FROM {where})",
            f"SELECT {column} FROM {where} ORDER BY REPLACE({column}, ',', '') + 0 DESC, {column} LIMIT 3",
            f"SELECT CONCAT({column}, '-', 1), LEFT({column}, 3), LENGTH({column}), {column} * 2 FROM {where}",
        ]
    return made


@needs_data
@needs_mariadb
def test_the_engines_agree_on_what_runs_on_both(mysql: Backend) -> None:
    """On gold statements that are not broken, and on `questions`. What differs is listed in docs/worlds/dbbench.md."""
    lite = backend_for("sqlite", statement_limit_s=LIMIT_S)
    both, differing = 0, []
    for record in load(str(DATA)).records[::4]:
        statements = questions(record.tables[0]) + ([] if record.changes else [record.gold])
        shown = [outcome(engine, record.tables, statements) for engine in (lite, mysql)]
        for sql, a, b in zip(statements, *shown, strict=True):
            if a is not None and b is not None:
                both += 1
                differing += [(record.id, sql, a, b)] * (a != b)
    assert both > 600
    assert differing == []


HOSTILE = [
    "DROP DATABASE mysql",
    "DROP DATABASE information_schema",
    "DROP TABLE `Big Games`",
    "CREATE DATABASE mine",
    "SELECT SLEEP(100)",
    "SELECT BENCHMARK(1000000000000, MD5('a'))",
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT MAX(n) FROM c",
    "SELECT COUNT(*) FROM " + ", ".join(f"information_schema.columns c{i}" for i in range(6)),
    "SELECT LOAD_FILE('/etc/hostname')",
    "SELECT 1 INTO OUTFILE '/tmp/dbbench-hostile'",
    "LOAD DATA INFILE '/etc/hostname' INTO TABLE `Big Games`",
    "CREATE TABLE f (a TEXT) ENGINE=CONNECT TABLE_TYPE=DOS FILE_NAME='/etc/hostname'",
    "SELECT 1; DROP DATABASE mysql",
    "/*!SET STATEMENT max_statement_time=0 FOR*/ SELECT SLEEP(100)",
    "SET GLOBAL max_connections = 1",
    "CREATE USER thief",
    "GRANT ALL ON *.* TO thief",
    "SELECT user FROM mysql.user",
    "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO SELECT 1",
    "CREATE FUNCTION f() RETURNS INT RETURN 1",
    "ATTACH DATABASE '/tmp/dbbench-hostile' AS x",
    "SHUTDOWN",
    "KILL 1",
    "SELECT REPEAT('x', 1000000000)",
]


def test_an_agent_that_attacks_harms_nobody(backend: Backend) -> None:
    neighbour = backend.open([TABLE])
    before = state(neighbour, [TABLE])
    began = time.monotonic()
    shown = outcome(backend, (TABLE,), HOSTILE)
    assert time.monotonic() - began < 45.0  # each statement is stopped in time
    hostname = Path("/etc/hostname").read_text().strip() if Path("/etc/hostname").exists() else "?"
    assert not any(hostname and text and hostname in text for text in shown)
    assert not Path("/tmp/dbbench-hostile").exists()
    assert state(neighbour, [TABLE]) == before
    assert outcome(backend, (TABLE,), ["SELECT COUNT(*) FROM `Big Games`"]) == ["[(2,)]"]
    neighbour.close()


def test_an_agent_that_spoils_its_own_tables_spoils_only_these(backend: Backend) -> None:
    first, second = backend.open([TABLE]), backend.open([TABLE])
    first.execute("DROP TABLE `Big Games`")
    with pytest.raises(StatementFailed):
        state(first, [TABLE])
    # A view in the table's place does not run with more rights, or longer, than the agent itself.
    first.execute("CREATE VIEW `Big Games` AS SELECT 'a' AS Team, 'b' AS Crowd")
    assert state(first, [TABLE]) != state(second, [TABLE])
    first.close()
    first.close()
    assert second.execute("SELECT COUNT(*) FROM `Big Games`") == "[(2,)]"
    second.close()


@needs_mariadb
def test_another_episodes_database_cannot_be_named(mysql: Backend) -> None:
    first, second = mysql.open([TABLE]), mysql.open([TABLE])
    other = re.findall(r"'([^']*)'", second.execute("SELECT DATABASE()"))[0]
    for sql in (f"DROP DATABASE {other}", f"SELECT * FROM {other}.`Big Games`", f"USE {other}"):
        with pytest.raises(StatementFailed, match="denied"):
            first.execute(sql)
    assert other not in first.execute("SHOW DATABASES")
    # One that drops its own database is out of luck, and nobody else is.
    own = re.findall(r"'([^']*)'", first.execute("SELECT DATABASE()"))[0]
    first.execute(f"DROP DATABASE {own}")
    with pytest.raises(StatementFailed):
        state(first, [TABLE])
    assert second.execute("SELECT COUNT(*) FROM `Big Games`") == "[(2,)]"
    first.close()
    second.close()


def played(backend: Literal["sqlite", "mysql"], index: int, dsn_env: str = "") -> bool:
    world = DBBench(backend=backend, dsn_env=dsn_env, statement_limit_s=LIMIT_S)
    player = Player(world.reset(Task(environment="dbbench", split="train", index=index), 0).text, random.Random(0))
    while True:
        action = player.act()
        result = world.step(action)
        player.observe(action, result.text)
        if result.done:
            world.close()
            return result.success


@needs_mariadb
def test_generated_tasks_of_every_kind_are_solved_on_the_server(mysql: Backend) -> None:
    assert all(played("mysql", index) for index in range(9))


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateServer]:
    if programs() is None:
        pytest.skip("MariaDB's server is not installed")
    server = PrivateServer()
    yield server
    server.close()
    assert not Path(server.server.socket).parent.exists()


def test_a_server_named_by_its_address_is_used_and_left_clean(
    private: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBBENCH_DSN", f"mysql://root@/?socket={private.server.socket}")
    assert played("mysql", 0, "DBBENCH_DSN")
    assert "srldb" not in databases(private)


DYING = """
import os, sys
from envs.dbbench.dsn import Server
from envs.dbbench.mysql_server import MySQLServer
from envs.dbbench.mysql_server import MySQLServer
from envs.dbbench.player import Player
from envs.dbbench.records import Table
MySQLServer(Server(socket=sys.argv[1]), statement_limit_s=1.0).open([Table(name="t", columns=("a",), rows=())])
print("made", flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_leaves_on_a_server_is_dropped_by_the_next(private: PrivateServer) -> None:
    living = MySQLServer(private.server, statement_limit_s=LIMIT_S)
    kept = living.open([TABLE])
    kept_name = re.findall(r"'([^']*)'", kept.execute("SELECT DATABASE()"))[0]
    subprocess.run([sys.executable, "-c", DYING, private.server.socket], check=False, stdout=subprocess.DEVNULL)
    left = next(name for name in databases(private).split() if name.startswith("srldb") and name != kept_name)
    # The server hears of the death in its own time; the lock is free then.
    assert asked(private, f"SELECT GET_LOCK('{left.partition('x')[0]}', 20)") == "1"
    MySQLServer(private.server, statement_limit_s=LIMIT_S).close()
    assert databases(private).count("srldb") == 1
    assert kept.execute("SELECT COUNT(*) FROM `Big Games`") == "[(2,)]"
    kept.close()
    living.close()


OWNER = """
from envs.dbbench.mariadb import PrivateServer
server = PrivateServer()
print(server.server.socket, server._keeper.pid, flush=True)
input()
"""


@needs_mariadb
def test_a_private_server_ends_with_its_owner_however_it_ends() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdin is not None
    assert owner.stdout is not None
    socket, keeper = owner.stdout.readline().split()
    assert Path(socket).exists()
    end = os.pidfd_open(int(keeper))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    assert select.select([end], [], [], 30)[0]  # the keeper has ended
    os.close(end)
    assert not Path(socket).parent.exists()


@needs_mariadb
def test_a_server_that_dies_costs_its_episodes_and_is_replaced() -> None:
    world = DBBench(backend="mysql", statement_limit_s=0.7)  # a limit of its own: a server of its own
    task = Task(environment="dbbench", split="train", index=0)
    world.reset(task, 0)
    keeper = children(os.getpid())[-1]
    server = children(keeper)[0]
    end = os.pidfd_open(keeper)
    os.kill(server, signal.SIGKILL)
    assert select.select([end], [], [], 30)[0]
    os.close(end)
    with pytest.raises(EnvironmentLost, match=r"gone|no connection"):
        world.step("Action: Operation\n```sql\nSELECT 1\n```")
    world.reset(task, 0)
    assert world.step("Action: Operation\n```sql\nSELECT 1\n```").text == "[(1,)]"
    world.close()


def children(process: int) -> list[int]:
    """Process ids, the youngest last."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def databases(private: PrivateServer) -> str:
    return asked(private, "SHOW DATABASES")


def asked(private: PrivateServer, sql: str) -> str:
    """The first column of an answer to the server's administrator."""
    connection = pymysql.connect(user="root", unix_socket=private.server.socket, ssl_disabled=True)
    with connection.cursor() as cursor:
        cursor.execute(sql)
        column = " ".join(str(row[0]) for row in cursor.fetchall())
    connection.close()
    return column
