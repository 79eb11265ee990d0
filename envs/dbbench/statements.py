"""Which statements an agent may run, decided on their text alone. Pure.

The same for every backend: one statement, of a kind that reads or writes tables. What a statement may touch is not
decided here but by the database: rights of the episode's user, or SQLite's authoriser.
"""

from __future__ import annotations

import re

import msgspec

LONGEST = 20_000  # characters

_READING = frozenset({"select", "with", "values", "table", "show", "describe", "desc", "explain"})
_WRITING = frozenset({"insert", "replace", "update", "delete", "create", "alter", "drop", "truncate", "rename"})
_VERBS = _READING | _WRITING | {"use", "begin", "start", "commit", "rollback"}
_TOKEN = re.compile(
    r"""
      (?P<text>   '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `[^`]*` )
    | (?P<hint>   /\*[!+] | /\*M! )                       # comments that MySQL obeys
    | (?P<note>   --(?=\s|\Z)[^\n]* | \#[^\n]* | /\*.*?\*/ | \s+ )
    | (?P<open>   ['"`] | /\* )                           # no end follows
    | (?P<end>    ; )
    | (?P<word>   [A-Za-z_]+ )
    | (?P<other>  . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement that may be run."""

    text: str  # without a final semicolon and what is after it
    verb: str  # its first word, lower case


class Refused(Exception):
    """A statement that is not run. The message is for the agent."""


def one_statement(sql: str) -> Statement:
    """The one statement of a text. Raises `Refused` for none, several, or one of a kind that is not run.

    >>> one_statement("SELECT 'a;b'; -- done").text
    "SELECT 'a;b'"
    """
    if len(sql) > LONGEST:
        raise Refused(f"the statement has {len(sql)} characters; at most {LONGEST} are allowed")
    if "\0" in sql:
        raise Refused("the statement holds a zero byte")
    verb, end, over = "", len(sql), False
    for token in _TOKEN.finditer(sql):
        kind = token.lastgroup
        if kind == "note":
            continue
        if kind == "hint":
            raise Refused("comments that the server would run (/*! */, /*+ */) are not allowed")
        if kind == "open":
            raise Refused(f"a {token.group()} is not closed")
        if kind == "end":
            if not over and verb:
                end, over = token.start(), True
            continue
        if over:
            raise Refused("only one statement can be run at a time, and none of these was run")
        if not verb:
            if kind == "word":
                verb = token.group().lower()
            elif token.group() != "(":
                raise Refused(f"a statement cannot begin with {token.group()[:20]}")
    if not verb:
        raise Refused("there is no statement")
    if verb not in _VERBS:
        raise Refused(f"{verb.upper()} statements cannot be run here")
    return Statement(text=sql[:end].strip(), verb=verb)
