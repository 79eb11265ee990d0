from __future__ import annotations

import pytest

from judge.secret import Secret, read_key
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError

KEY = "sk/secret+1"
ENDPOINT = JudgeEndpoint(url="http://judge/v1", key_env="JUDGE_KEY")


def test_a_key_is_sent_and_not_shown() -> None:
    secret = Secret(KEY)
    assert secret.headers() == {"Authorization": f"Bearer {KEY}"}
    assert f"{secret} {secret!r} {[secret]}" == "Secret(***) Secret(***) [Secret(***)]"
    assert secret.redact(f"bad key {KEY}; url key=sk%2Fsecret%2B1") == "bad key ***; url key=***"


def test_a_key_is_hidden_in_every_form_a_server_quotes_it() -> None:
    secret = Secret('sk/"1"')
    assert secret.redact('sk/"1" sk/\\"1\\" sk\\/\\"1\\" sk%2F%221%22') == "*** *** *** ***"


def test_no_key_no_header_and_nothing_hidden() -> None:
    secret = Secret("")
    assert secret.headers() == {}
    assert secret.redact("text") == "text"


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="JUDGE_KEY holds characters") as caught:
        read_key(ENDPOINT, 0, {"JUDGE_KEY": "sk-1\nsk-2"})
    assert "sk-" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"judge\.endpoints\.3\.key_env: .*JUDGE_KEY is not set"):
        read_key(ENDPOINT, 3, {"JUDGE_KEY": " "})
    assert read_key(ENDPOINT, 0, {"JUDGE_KEY": f" {KEY}\n"}).redact(KEY) == "***"
