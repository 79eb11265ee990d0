"""What an exception says to people.

Task groups wrap what ends them, and an `ExceptionGroup` says nothing but "unhandled errors in a TaskGroup". Whatever
is told to people or sent to another process is therefore told by the errors at the leaves.
"""

from __future__ import annotations

from stream_rl.errors import StreamRLError

_TOLD = 3  # different leaves told of one group


def causes(error: BaseException) -> list[BaseException]:
    """The errors at the leaves, in order; of an error that is no group, itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in causes(inner)]


def cause(error: BaseException) -> BaseException:
    """The one error that says what a group says: its only one, or the first of many that are all known ones.

    An engine that dies fails every rollout it held, each with the same words. A group with a bug beside another error
    stays a group.
    """
    leaves = causes(error)
    if len(leaves) == 1 or all(isinstance(leaf, StreamRLError) for leaf in leaves):
        return leaves[0]
    return error


def in_words(error: BaseException) -> str:
    """One line: what the leaves say, each once. A known error speaks for itself; any other with its kind before it.

    >>> in_words(ExceptionGroup("unhandled errors", [KeyError("bug"), ValueError()]))
    "KeyError: 'bug'; ValueError"
    """
    told = list(dict.fromkeys(_leaf(leaf) for leaf in causes(error)))
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return "; ".join(told[:_TOLD]) + more


def _leaf(error: BaseException) -> str:
    text = str(error)
    if text and isinstance(error, StreamRLError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
