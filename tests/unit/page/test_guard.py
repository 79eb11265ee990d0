from __future__ import annotations

import pytest

from stream_rl.page.guard import SECURITY_HEADERS, TOKEN_HEADER, refusal

TOKEN = "right"
HOST = {"Host": "127.0.0.1:8080"}
ACTION = {**HOST, "Origin": "http://127.0.0.1:8080", "Content-Type": "application/json", TOKEN_HEADER: TOKEN}


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1", "localhost", "[::1]:8080"])
def test_names_of_loopback_are_answered_on_any_port(host: str) -> None:
    """A tunnel's near end has another port."""
    assert refusal("GET", {"Host": host}, TOKEN) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1/evil", "0.0.0.0:80", "[::1"]
)
def test_a_name_that_was_rebound_to_loopback_is_refused(host: str) -> None:
    assert "host" in (refusal("GET", {"Host": host}, TOKEN) or "")
    assert refusal("POST", {**ACTION, "Host": host}, TOKEN)


def test_an_action_of_the_page_itself_goes_on() -> None:
    assert refusal("POST", ACTION, TOKEN) is None
    assert refusal("POST", {**ACTION, "Sec-Fetch-Site": "same-origin"}, TOKEN) is None


@pytest.mark.parametrize(
    "change",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9090"},
        {"Origin": "https://127.0.0.1:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {TOKEN_HEADER: ""},
        {TOKEN_HEADER: "wrong"},
        {TOKEN_HEADER: "rïght"},
    ],
)
def test_anyone_else_may_not_act(change: dict[str, str]) -> None:
    assert refusal("POST", {**ACTION, **change}, TOKEN)


def test_every_method_but_reading_is_an_action() -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert refusal(method, HOST, TOKEN)


def test_nothing_but_the_servers_own_files_may_run() -> None:
    policy = dict(part.strip().split(" ", 1) for part in SECURITY_HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
