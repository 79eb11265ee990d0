"""Addresses of servers."""

from __future__ import annotations

import pytest

from envs.dbbench.dsn import Server, parse_dsn


def test_parts_of_an_address() -> None:
    assert parse_dsn("mysql://me:p%40ss@db.example:3307/") == Server(
        host="db.example", port=3307, user="me", password="p@ss"
    )
    assert parse_dsn("mariadb://root@/?socket=/run/db.sock&ssl=true") == Server(socket="/run/db.sock", ssl=True)


@pytest.mark.parametrize("dsn", ["postgres://secret@x", "mysql://u:secret@x/base", "mysql://u:secret@x/?sll=1"])
def test_a_refusal_does_not_repeat_the_password(dsn: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_dsn(dsn)
    assert "secret" not in str(caught.value)


def test_a_server_is_shown_without_its_password() -> None:
    assert "secret" not in repr(parse_dsn("mysql://u:secret@x"))
