"""One statement at a time, and only of kinds that read or write tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dbbench.statements import LONGEST, Refused, one_statement


@pytest.mark.parametrize(
    ("sql", "text", "verb"),
    [
        ("SELECT 1;", "SELECT 1", "select"),
        ("  -- first\n select 1 ; # done", "-- first\n select 1", "select"),
        ("(SELECT 1)", "(SELECT 1)", "select"),
        ("SELECT ';', \";\", `a;b`;", "SELECT ';', \";\", `a;b`", "select"),
        (r"SELECT 'it\'s; ok'", r"SELECT 'it\'s; ok'", "select"),
        ("SELECT 'it''s; ok';;", "SELECT 'it''s; ok'", "select"),
        ("UPDATE t SET a = '/*!' WHERE b = '--'", "UPDATE t SET a = '/*!' WHERE b = '--'", "update"),
        ("SELECT /* a; b */ 1", "SELECT /* a; b */ 1", "select"),
        ("SELECT 1 -- ; DROP TABLE t", "SELECT 1 -- ; DROP TABLE t", "select"),
        ("; SELECT 1", "; SELECT 1", "select"),
    ],
)
def test_one_statement(sql: str, text: str, verb: str) -> None:
    statement = one_statement(sql)
    assert (statement.text, statement.verb) == (text, verb)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; DROP TABLE t",
        "SELECT '\\'; DROP TABLE t -- '; SELECT 2",
        "SELECT 1 --x; DROP TABLE t",  # MySQL needs a space after the dashes
        "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW BEGIN SELECT 1; END",
        "BEGIN NOT ATOMIC SELECT 1; DROP TABLE t; END",
    ],
)
def test_several_statements_are_refused(sql: str) -> None:
    with pytest.raises(Refused, match="one statement"):
        one_statement(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SET GLOBAL max_connections = 1",
        "SET STATEMENT max_statement_time = 0 FOR SELECT SLEEP(100)",
        "/*!SET STATEMENT max_statement_time = 0 FOR*/ SELECT SLEEP(100)",
        "SELECT /*+ SET_VAR(max_execution_time = 0) */ 1",
        "SELECT /*M!100000 1 */",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
        "PREPARE s FROM 'DROP TABLE t'",
        "EXECUTE IMMEDIATE 'SHUTDOWN'",
        "DO SLEEP(100)",
        "KILL 1",
        "SHUTDOWN",
        "GRANT ALL ON *.* TO x",
        "LOCK TABLES t WRITE",
        "ATTACH DATABASE '/tmp/x' AS x",
        "PRAGMA writable_schema = 1",
        "VACUUM INTO '/tmp/x'",
        "CALL p()",
        "HANDLER t OPEN",
        "1",
        "",
        " ; ",
        "-- nothing",
        "SELECT 'open",
        "SELECT /* open",
        "SELECT 1\0",
        "SELECT '" + "x" * LONGEST + "'",
    ],
)
def test_other_kinds_are_refused(sql: str) -> None:
    with pytest.raises(Refused):
        one_statement(sql)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="'\"`\\;-#/*! \nSELECTab", max_size=40))
def test_what_is_one_statement_stays_one(sql: str) -> None:
    try:
        statement = one_statement(sql)
    except Refused:
        return
    assert one_statement(statement.text) == statement
