"""What a role says when it ends."""

from __future__ import annotations

from stream_rl.app.child import _told
from stream_rl.errors import GeneratorBroken


def test_an_engine_that_fails_many_rollouts_is_told_once_and_in_words() -> None:
    first, second = GeneratorBroken("the server is gone"), GeneratorBroken("the server is gone; attach it again")
    group = ExceptionGroup("a", [ExceptionGroup("b", [first]), ExceptionGroup("c", [second, second])])
    assert _told(group) is first


def test_a_group_with_a_bug_in_it_stays_a_group() -> None:
    group = ExceptionGroup("a", [GeneratorBroken("gone"), KeyError("bug")])
    assert _told(group) is group
    assert isinstance(_told(ExceptionGroup("a", [KeyError("bug")])), KeyError)
