"""Some questions about one transcript, and what endpoints replied to them so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from judge.endpoint import Answer
from judge.request import Prompt

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered, and what it cost."""

    endpoint: str = ""  # base url; empty when none answered
    model: str = ""  # as the endpoint names it
    prompt_tokens: int = 0  # as reported by the endpoint
    completion_tokens: int = 0  # as reported by the endpoint


class Ask(Generic[K, V]):
    """Questions `K` about one transcript, each of which wants an answer `V`.

    keys: what is asked, in order
    render: the prompt for some of the keys
    read: the usable answers in a reply to some of the keys; any others are asked for again
    """

    def __init__(
        self,
        keys: Sequence[K],
        quotation: str,
        *,
        render: Callable[[tuple[K, ...]], Prompt],
        read: Callable[[str, tuple[K, ...]], Mapping[K, V]],
    ) -> None:
        self.keys = tuple(keys)
        self.quotation = quotation
        self.answers: dict[K, V] = {}
        self.spent = Spent()
        self.problem = "no usable answer"  # why answers are missing, if any are
        self._render = render
        self._read = read

    @property
    def missing(self) -> tuple[K, ...]:
        """What has no usable answer yet."""
        return tuple(key for key in self.keys if key not in self.answers)

    def prompt(self) -> Prompt:
        """What to ask now: everything that is missing."""
        return self._render(self.missing)

    def accept(self, answer: Answer, endpoint: str) -> None:
        """Take in a reply to `prompt()`."""
        self.answers.update(self._read(answer.content, self.missing))
        self.spent = Spent(
            endpoint=endpoint,
            model=answer.model,
            prompt_tokens=self.spent.prompt_tokens + answer.prompt_tokens,
            completion_tokens=self.spent.completion_tokens + answer.completion_tokens,
        )


def total(spent: Iterable[Spent]) -> Spent:
    """Sum over asks. Endpoint and model are those of the first that was answered."""
    parts = list(spent)
    answered = next((part for part in parts if part.endpoint), Spent())
    return Spent(
        endpoint=answered.endpoint,
        model=answered.model,
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        completion_tokens=sum(part.completion_tokens for part in parts),
    )
