from __future__ import annotations

from typing import Any

from stream_rl.observe.absence import why_absent
from stream_rl.observe.words import sentence

RESTARTED = {
    "type": "role_restarted",
    "name": "producer-1",
    "exit_code": 1,
    "wait_s": 2.0,
    "reason": "the server is gone",
}
DROPPED = {"type": "generator_dropped", "name": "producer-1", "reason": "it serves another model"}


def test_the_newest_trouble_is_told_and_that_of_others_is_not() -> None:
    events: list[dict[str, Any]] = [RESTARTED, DROPPED, {**RESTARTED, "name": "producer-2", "reason": "something else"}]
    assert why_absent(events, "producer-1") == "dropped: it serves another model"
    assert why_absent(events[:1], "producer-1") == "tried again after 2 s: the server is gone"
    assert why_absent(events, "producer-3") == ""


def test_trouble_is_over_once_it_is_ready_or_attached_again() -> None:
    for again in ("producer_ready", "generator_attached"):
        assert why_absent([DROPPED, {"type": again, "name": "producer-1"}], "producer-1") == ""
        assert why_absent([{"type": again, "name": "producer-1"}, RESTARTED], "producer-1") != ""


def test_what_befalls_a_server_is_told_in_a_sentence() -> None:
    assert sentence(DROPPED) == "producer-1 is dropped, the run goes on without it: it serves another model"
    assert sentence(RESTARTED) == (
        "producer-1 ended with exit code 1 and is started again after 2 s: the server is gone"
    )
    attached = {"type": "generator_attached", "name": "producer-1", "url": "http://a:8000"}
    assert sentence(attached) == "http://a:8000 is attached as producer-1"
    assert sentence({**attached, "type": "generator_detached"}) == (
        "http://a:8000 is detached; the groups of producer-1 are leased again"
    )
