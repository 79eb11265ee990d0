from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Barrier, Thread

import pytest

from judge import answer_store
from judge.answer_store import AnswerStore


def key(i: int) -> bytes:
    return i.to_bytes(4, "big")


def test_keeps_what_was_put_over_a_restart(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "a.sqlite", max_rows=10)
    assert store.get(key(1)) is None
    store.put(key(1), b"one")
    store.close()
    again = AnswerStore(tmp_path / "a.sqlite", max_rows=10)
    assert again.get(key(1)) == b"one"
    again.close()


def test_the_oldest_go_first_and_the_size_is_bounded(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "a.sqlite", max_rows=3)
    for i in range(5):
        store.put(key(i), b"x")
    assert len(store) == 3
    assert [store.get(key(i)) for i in range(5)] == [None, None, b"x", b"x", b"x"]
    store.put(key(2), b"new")  # keeps its age
    store.put(key(5), b"x")
    assert store.get(key(2)) is None
    assert len(store) == 3
    store.close()


def test_four_may_begin_and_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "_LOCKED_S", 40.0)  # who waits longest is up to SQLite and the machine
    path, failures = tmp_path / "a.sqlite", list[Exception]()
    start = Barrier(4)

    def work(first: int) -> None:
        try:
            start.wait(40)
            store = AnswerStore(path, max_rows=1000)
            for i in range(first, first + 25):
                store.put(key(i), b"x")
            store.close()
        except sqlite3.Error as error:
            failures.append(error)

    threads = [Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store = AnswerStore(path, max_rows=1000)
    assert len(store) == 100
    store.close()


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_bytes(b"no database, and long enough to be looked at as one" * 4)
    before = text.read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        AnswerStore(text, max_rows=10)
    assert text.read_bytes() == before
    other = sqlite3.connect(tmp_path / "ledger.sqlite")
    other.execute("CREATE TABLE verdicts (a)")
    other.commit()
    other.close()
    with pytest.raises(sqlite3.DatabaseError, match="something else"):
        AnswerStore(tmp_path / "ledger.sqlite", max_rows=10)
