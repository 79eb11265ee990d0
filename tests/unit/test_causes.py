"""What people are told of an error that task groups have wrapped."""

from __future__ import annotations

from stream_rl.causes import cause, causes, in_words
from stream_rl.errors import GeneratorBroken


def test_an_engine_that_fails_many_rollouts_is_told_once_and_in_words() -> None:
    first, second = GeneratorBroken("the server is gone"), GeneratorBroken("the server is gone; attach it again")
    group = ExceptionGroup("a", [ExceptionGroup("b", [first]), ExceptionGroup("c", [second, second])])
    assert cause(group) is first
    assert in_words(group) == "the server is gone; the server is gone; attach it again"


def test_a_group_with_a_bug_in_it_stays_a_group_and_is_told_by_its_leaves() -> None:
    group = ExceptionGroup("a", [GeneratorBroken("gone"), KeyError("bug")])
    assert cause(group) is group
    assert in_words(group) == "gone; KeyError: 'bug'"
    assert isinstance(cause(ExceptionGroup("a", [KeyError("bug")])), KeyError)


def test_an_error_that_is_no_group_is_its_own_cause() -> None:
    error = ValueError("nine is no digit of two")
    assert causes(error) == [error]
    assert cause(error) is error
    assert in_words(error) == "ValueError: nine is no digit of two"


def test_an_error_without_words_is_told_by_its_kind() -> None:
    assert in_words(ExceptionGroup("unhandled errors in a TaskGroup", [TimeoutError()])) == "TimeoutError"
    assert in_words(GeneratorBroken()) == "GeneratorBroken"


def test_of_many_different_errors_three_are_told_and_the_rest_are_counted() -> None:
    group = ExceptionGroup("a", [ValueError(str(n)) for n in (1, 2, 2, 3, 4, 5)])
    assert in_words(group) == "ValueError: 1; ValueError: 2; ValueError: 3; and 2 more"
