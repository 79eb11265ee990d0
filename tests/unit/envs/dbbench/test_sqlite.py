"""SQLite as a MySQL server: its meaning of text and numbers, and what an agent cannot do with it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.dbbench import collation
from envs.dbbench.backend import StatementFailed, show, state
from envs.dbbench.patterns import PatternRefused, like, regexp
from envs.dbbench.records import Table
from envs.dbbench.sqlite_backend import SQLiteBackend, SQLiteDatabase
from envs.dbbench.statements import Refused

TABLE = Table(
    name="Big Games",
    columns=("Team", "Crowd", "Share"),
    rows=(("José", "24,000", "9.5%"), ("jose", "7", "12"), ("Zoë", "130", ""), ("[none]", "18", "2.25")),
)


@pytest.fixture
def database() -> Iterator[SQLiteDatabase]:
    made = SQLiteBackend(statement_limit_s=30.0).open([TABLE])
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[SQLiteDatabase]:
    made = SQLiteBackend(statement_limit_s=0.3).open([TABLE])
    yield made
    made.close()


def run_all(database: SQLiteDatabase, statements: list[str]) -> None:
    for sql in statements:
        database.execute(sql)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        # what MySQL 8 answers for each of these
        ("SELECT Team FROM `Big Games` WHERE Team = 'JOSE'", "[('José',), ('jose',)]"),
        ('SELECT Team FROM `Big Games` WHERE Team = "ZOE"', "[('Zoë',)]"),
        ("SELECT Crowd FROM `Big Games` WHERE Crowd > 19", "[('24,000',), ('130',)]"),
        ("SELECT Crowd FROM `Big Games` WHERE Crowd BETWEEN 18 AND 24", "[('24,000',), ('18',)]"),
        ("SELECT Crowd FROM `Big Games` WHERE Crowd IN (7, 18)", "[('7',), ('18',)]"),
        ("SELECT Crowd FROM `Big Games` WHERE Crowd > '2'", "[('24,000',), ('7',)]"),
        ("SELECT Team FROM `Big Games` WHERE Crowd > (SELECT AVG(Crowd) FROM `Big Games`)", "[('Zoë',)]"),
        ("SELECT Team FROM `Big Games` ORDER BY Team DESC LIMIT 1", "[('Zoë',)]"),
        ("SELECT SUM(Crowd), COUNT(DISTINCT Team) FROM `Big Games`", "[(179.0, 3)]"),
        ("SELECT Team FROM `Big Games` WHERE LOWER(Team) LIKE 'JOS%'", "[('José',), ('jose',)]"),
        ("SELECT Crowd + 1, Crowd % 5 FROM `Big Games` LIMIT 1, 1", "[(8.0, 2.0)]"),
        ("SELECT CAST(REPLACE(Crowd, ',', '') AS UNSIGNED) c FROM `Big Games` ORDER BY c DESC LIMIT 1", "[(24000,)]"),
        ("SELECT CONCAT('a', 1, 'b'), CONCAT_WS('-', 'a', NULL, 'b'), CONCAT('a', NULL)", "[('a1b', 'a-b', None)]"),
        ("SELECT LEFT('abc', 2), RIGHT('abc', 2), SUBSTRING_INDEX('a b c', ' ', -2)", "[('ab', 'bc', 'b c')]"),
        ("SELECT LENGTH('ø'), CHAR_LENGTH('ø'), UPPER('ø'), LOCATE('B', 'abc')", "[(2, 1, 'Ø', 2)]"),
        ("SELECT 5 DIV 2, 5 / 2, 1 / 0, 'a' = 'A', BINARY 'a' = 'A', 5 = '5'", "[(2, 2.5, None, 1, 0, 1)]"),
        ("SELECT IF(2 > 1, 'y', 'n'), IFNULL(NULL, 3), FIELD('b', 'a', 'B')", "[('y', 3, 2)]"),
        ("SELECT LPAD('7', 3, '0'), RPAD('7', 3, 'ab'), LPAD('abc', 2, '')", "[('007', '7ab', 'ab')]"),
        ("SELECT TRUNCATE(1.239, 2), REPEAT('ab', 2), 7 % 4, BINARY 'a' = 'A'", "[(1.23, 'abab', 3, 0)]"),
        ("SELECT YEAR('2001-02-03'), STR_TO_DATE('March 3, 2001', '%M %d, %Y')", "[(2001, '2001-03-03')]"),
        ("SHOW TABLES", "[('Big Games',)]"),
        ("DESCRIBE `Big Games`", str([(c, "text", "YES", "", None, "") for c in TABLE.columns])),
        ("SELECT Team FROM `Big Games` WHERE Crowd = 99", "[]"),
    ],
)  # fmt: skip
def test_answers_as_mysql_does(database: SQLiteDatabase, sql: str, rows: str) -> None:
    assert database.execute(sql) == rows


@pytest.mark.parametrize(
    ("change", "crowds"),
    [
        ("UPDATE `Big Games` SET Crowd = 5 WHERE Team = 'zoe'", ["24,000", "7", "5", "18"]),
        ("UPDATE `Big Games` SET Crowd = Crowd / 2 WHERE Crowd < 10 OR Crowd = 130", ["24,000", "3.5", "65", "18"]),
        ("UPDATE `Big Games` SET Crowd = 9.50 ORDER BY Crowd + 0 LIMIT 1", ["24,000", "9.50", "130", "18"]),
        ("DELETE FROM `Big Games` ORDER BY Crowd + 0 DESC LIMIT 2", ["7", "18"]),
        ("DELETE FROM `Big Games` WHERE Team = 'JOSÉ'", ["130", "18"]),
        ("REPLACE INTO `Big Games` VALUES ('x', 1, 'it\\'s')", ["24,000", "7", "130", "18", "1"]),
        ("INSERT INTO `Big Games` SET Team = 'x', Crowd = 2.50", ["24,000", "7", "130", "18", "2.50"]),
        ("TRUNCATE TABLE `Big Games`", []),
    ],
)
def test_changes_as_mysql_does(database: SQLiteDatabase, change: str, crowds: list[str]) -> None:
    assert database.execute(change) == "[]"
    assert database.execute("SELECT Crowd FROM `Big Games`") == str([(crowd,) for crowd in crowds])


def test_new_columns_and_tables_compare_as_mysql_does(database: SQLiteDatabase) -> None:
    database.execute("ALTER TABLE `Big Games` ADD COLUMN City VARCHAR(20) DEFAULT 'Köln'")
    database.execute("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(9)) ENGINE=InnoDB")
    database.execute("INSERT INTO other (name) VALUES ('é')")
    database.execute("RENAME TABLE other TO another")
    assert database.execute("SELECT COUNT(*) FROM `Big Games` WHERE City = 'KOLN'") == "[(4,)]"
    assert database.execute("SELECT id FROM another WHERE name = 'E'") == "[(1,)]"


def test_an_unknown_name_is_an_error_however_it_is_quoted(database: SQLiteDatabase) -> None:
    for sql in ("SELECT nope FROM `Big Games`", "SELECT `nope` FROM `Big Games`", "SELECT 1 FROM `nope`"):
        with pytest.raises(StatementFailed, match="nope"):
            database.execute(sql)


def test_each_statement_stands_for_itself(database: SQLiteDatabase) -> None:
    database.execute("START TRANSACTION")
    database.execute("DELETE FROM `Big Games`")
    with pytest.raises(StatementFailed):
        database.execute("ROLLBACK")
    assert database.execute("SELECT COUNT(*) FROM `Big Games`") == "[(0,)]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT load_extension('/tmp/x.so')",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT readfile('/etc/passwd')",
        "SELECT Team FROM `Big Games` INTO OUTFILE '/tmp/out'",
        "SELECT glob('*a*', 'b')",
        "UPDATE sqlite_master SET sql = ''",
        "SELECT * FROM pragma_database_list",
        "CREATE VIRTUAL TABLE v USING fts5(a)",
        "CREATE TRIGGER x AFTER INSERT ON `Big Games` BEGIN SELECT 1",
        "SELECT SLEEP(100)",
        "USE mysql",
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT 'a' REGEXP '(a+)+$'",
        "SELECT",
    ],
)
def test_what_an_agent_may_not_do_fails_at_once(database: SQLiteDatabase, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises((StatementFailed, Refused)):
        database.execute(sql)
    assert time.monotonic() - began < 20.0  # and its time limit is 30 s
    assert database.execute("SELECT COUNT(*) FROM `Big Games`") == "[(4,)]"


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT MAX(n) FROM c",
        "SELECT COUNT(*) FROM " + ", ".join(f"`Big Games` t{i}" for i in range(20)),
        "SELECT MAX(t0.Team LIKE t1.Team) FROM " + ", ".join(f"`Big Games` t{i}" for i in range(20)),
    ],
)
def test_a_statement_without_end_is_stopped(hasty: SQLiteDatabase, sql: str) -> None:
    with pytest.raises(StatementFailed, match=r"longer than 0\.3 s"):
        hasty.execute(sql)
    assert hasty.execute("SELECT COUNT(*) FROM `Big Games`") == "[(4,)]"


def test_memory_of_an_episode_is_bounded(database: SQLiteDatabase) -> None:
    database.execute("CREATE TABLE big (a TEXT)")
    database.execute("INSERT INTO big VALUES (REPEAT('x', 19000))")
    with pytest.raises(StatementFailed):
        run_all(database, ["INSERT INTO big SELECT * FROM big"] * 30)
    with pytest.raises(StatementFailed):
        database.execute("SELECT CONCAT(REPEAT('x', 20000), REPEAT('x', 20000))")


def test_episodes_do_not_see_each_other(tmp_path: Path) -> None:
    backend = SQLiteBackend(statement_limit_s=1.0)
    first, second = backend.open([TABLE]), backend.open([TABLE])
    first.execute("DROP TABLE `Big Games`")
    assert second.execute("SELECT COUNT(*) FROM `Big Games`") == "[(4,)]"
    with pytest.raises(StatementFailed):
        state(first, [TABLE])
    first.close()
    first.close()
    second.close()


def test_the_state_counts_rows_in_any_order_and_with_new_columns_left_out(database: SQLiteDatabase) -> None:
    before = state(database, [TABLE])
    database.execute("DELETE FROM `Big Games` WHERE Crowd = 7")
    assert state(database, [TABLE]) != before
    database.execute("INSERT INTO `Big Games` VALUES ('jose', '7', '12')")
    database.execute("ALTER TABLE `Big Games` ADD COLUMN more TEXT")
    assert state(database, [TABLE]) == before


def test_results_are_cut_at_800_characters(database: SQLiteDatabase) -> None:
    assert show([("x" * 794,)]) == f"[('{'x' * 794}',)]"[:800] + "[TRUNCATED]"
    assert show([("x" * 793,)]) == f"[('{'x' * 793}',)]"
    shown = database.execute("SELECT a.Team, b.Crowd FROM `Big Games` a, `Big Games` b, `Big Games` c")
    assert len(shown) == 800 + len("[TRUNCATED]")


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("%", "", True), ("_", "", False), ("a%c", "abbc", True), ("a%c", "abcd", False), ("%b%", "ABC", True),
        ("a_c", "abc", True), ("a_c", "ac", False), (r"100\%", "100%", True), (r"100\%", "1000", False),
        ("%ab%ab", "abab", True), ("%ab%ab", "ab", False), ("a%a", "a", False), ("ö%", "Oslo", True),
    ],
)  # fmt: skip
def test_like(pattern: str, text: str, fits: bool) -> None:
    assert like(pattern, text) is fits


def test_hostile_patterns_take_no_time() -> None:
    began = time.monotonic()
    assert not like("%a" * 400 + "%b", "a" * 20_000)
    for pattern in ("(a+)+$", "(a|a)*$", "a*a*a*a*b", r"(a)\1*", "(?=a)", "["):
        with pytest.raises(PatternRefused):
            regexp(pattern, "a" * 4000)
    assert regexp("^[0-9]+$", "123")
    assert time.monotonic() - began < 30.0  # where backtracking would take years


def test_order_of_text() -> None:
    """As utf8mb4_uca1400_nopad_ai_ci and utf8mb4_0900_ai_ci sort them."""
    in_order = ["", " x", "_x", "-x", ", x", "(x", "%x", "+x", "1", "10", "a", "Áb", "ac", "øb", "z"]
    for before, after in itertools.pairwise(in_order):
        assert collation.compare(before, after) < 0 < collation.compare(after, before)
    assert collation.compare("Straße", "STRASSE") == 0
