"""Messages to token ids and back, without ever rendering an earlier turn again.

A conversation is `head(messages)`, then sampled ids, then `after_action(observation)`, then sampled ids, and so on.
What stands between two actions is read off the model's own chat template once, with sentinel texts; `check_prefix`
proves at start that the pieces add up to what the template makes of the whole conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, Protocol

from stream_rl.errors import ConfigError
from stream_rl.types import Message

_USER, _ACTION, _OBSERVATION = "user-6f1c", "action-6f1c", "observation-6f1c"
_CACHED_OBSERVATIONS = 8192
_CACHED_HEADS = 1024
_WINDOW = 40  # characters shown on either side of a difference


class ChatTokenizer(Protocol):
    """The part of a Hugging Face fast tokenizer that is used here."""

    @property
    def eos_token_id(self) -> int | None:
        """End of text, where the vocabulary has one."""
        ...

    @property
    def all_special_tokens(self) -> list[str]:
        """Texts of tokens such as "<|im_end|>"."""
        ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Tokens outside the model's own vocabulary, with their `special` flag."""
        ...

    def get_chat_template(self) -> str:
        """The Jinja text; raises `ValueError` when there is none."""
        ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> Any:
        """A conversation as text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids; special tokens in the text become their ids."""
        ...

    def decode(self, token_ids: list[int], **kwargs: Any) -> Any:
        """Ids to text."""
        ...


def load_renderer(model_dir: str) -> Renderer:
    """The checked renderer of the tokenizer saved in `model_dir`. Raises `ConfigError("policy.model", ...)`.

    Imports transformers, which takes seconds.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir)
    except (OSError, ValueError) as error:
        _refuse(f"no tokenizer can be loaded from {model_dir!r}: {error}")
    renderer = Renderer(tokenizer)
    renderer.check_prefix()
    return renderer


class Renderer:
    """One tokenizer and its chat template.

    A fast tokenizer must not be used by two threads at once (it fails with "Already borrowed"), so neither may a
    renderer: make one for each event loop.

    Texts are rendered stripped, and a special token spelled out inside a text is broken up: a world or a hint cannot
    forge a turn.
    """

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        try:
            template = tokenizer.get_chat_template()
        except ValueError as error:
            _refuse(f"its tokenizer has no chat template: {error}")
        # A conversation holds actions as they were sampled: its switch for hidden reasoning is turned off, where there
        # is one. Only a prompt that no later turn goes on from may leave it on.
        self._has_switch = "enable_thinking" in template
        self._forged = _special_pattern(tokenizer)
        close, self._opening = self._between_turns()
        self._after_prefix, self._after_suffix = close.split(_OBSERVATION)
        self._turn_end = self._read_turn_end(close)
        eos = tokenizer.eos_token_id
        others = () if eos is None or eos == self._turn_end else (eos,)
        self.stop_token_ids: tuple[int, ...] = (self._turn_end, *others)
        self._cached_after: Callable[[str], tuple[int, ...]] = lru_cache(_CACHED_OBSERVATIONS)(self._encode_after)
        self._cached_head: Callable[[tuple[Message, ...], bool], tuple[int, ...]] = lru_cache(_CACHED_HEADS)(
            self._encode_head
        )

    def head(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        """Ids of `messages` up to and including the generation prompt.

        `thinking` leaves the template's switch for reasoning on, where it has one: for a prompt that is answered once,
        since the template may strip the reasoning from a conversation that goes on.
        """
        return list(self._cached_head(tuple(messages), thinking))

    def prompt(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        """As `head`, but not remembered: for long prompts that no second request shares."""
        return list(self._encode_head(tuple(messages), thinking))

    def after_action(self, observation: str, ended: bool) -> list[int]:
        """Ids between a sampled action and the next one: end of turn, the observation as user, generation prompt.

        `ended` says whether the sampled ids already hold the end of turn (`ends_turn`); if so it is left out.
        """
        ids = self._cached_after(observation)
        return list(ids[1:] if ended else ids)

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Whether sampled ids end with the template's own end of turn (another stop token does not close a turn)."""
        return len(ids) > 0 and int(ids[-1]) == self._turn_end

    def decode_action(self, ids: Sequence[int]) -> str:
        """The action in sampled ids, without the stop token, stripped. Other special tokens stay visible."""
        body = [int(i) for i in ids]
        if body and body[-1] in self.stop_token_ids:
            body.pop()
        text = self._tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text).strip()

    def check_prefix(self) -> None:
        """Raise `ConfigError` unless turn-by-turn ids equal the ids of whole conversations, for several of them."""
        for name, messages in _probes(thinking=not self._has_switch):
            turns = [i for i, message in enumerate(messages) if message.role == "assistant"]
            pieces = self.head(messages[: turns[0]])
            for i in turns:
                pieces += self._encode(messages[i].content)
                pieces += self.after_action(messages[i + 1].content, ended=False)
            whole = self._encode(self._render_whole(messages))
            if pieces != whole:
                _refuse(self._explain(name, pieces, whole))

    def _between_turns(self) -> tuple[str, str]:
        """(text from the end of an action to the next action, with the observation's sentinel in it; opening).

        The opening is what the generation prompt writes before an action and the history leaves out: the empty
        thinking block of templates whose thinking is switched off. It stays in the ids, since the policy saw it.
        """
        user = Message(role="user", content=_USER)
        prompt = self._render([user])
        later = Message(role="user", content=_OBSERVATION)
        whole = self._render([user, Message(role="assistant", content=_ACTION), later])
        before, found, close = whole.partition(_ACTION)
        if not found or close.count(_OBSERVATION) != 1:
            _refuse(f"its chat template does not keep the text of earlier turns: {whole!r}")
        if not prompt.startswith(before) or (prompt != before and not self._has_switch):
            _refuse(
                "its chat template writes an earlier turn differently from the prompt that turn was sampled from: "
                f"{_difference(prompt, before)}"
            )
        return close, prompt[len(before) :]

    def _read_turn_end(self, close: str) -> int:
        ids = self._encode(close)
        text = str(self._tokenizer.decode(ids[:1], skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if not text or not self._forged.fullmatch(text) or not close.lstrip().startswith(text):
            _refuse(
                "its chat template ends an answer with "
                f"{close[:_WINDOW]!r}, which does not begin with a special token; sampling could not stop there"
            )
        return ids[0]

    def _encode_head(self, messages: tuple[Message, ...], thinking: bool) -> tuple[int, ...]:
        return tuple(self._encode(self._render(messages, thinking)))

    def _encode_after(self, observation: str) -> tuple[int, ...]:
        return tuple(self._encode(self._after_prefix + self._clean(observation) + self._after_suffix))

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _render(self, messages: Sequence[Message], thinking: bool = False) -> str:
        kwargs: dict[str, Any] = {"enable_thinking": thinking} if self._has_switch else {}
        conversation = [{"role": message.role, "content": self._clean(message.content)} for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, **kwargs
            )
        except Exception as error:  # a template is a program that someone else wrote: any failure refuses the model
            roles = ", ".join(message.role for message in messages)
            raise ConfigError("policy.model", f"its chat template fails on ({roles}): {error}.") from error
        return str(text)

    def _render_whole(self, messages: Sequence[Message]) -> str:
        """The template's text of a whole conversation, the opening put before each action as the policy saw it."""
        if not self._opening:
            return self._render(messages)
        marks = {f"{_ACTION}-{i}.": m.content for i, m in enumerate(messages) if m.role == "assistant"}
        marked = iter(marks)
        text = self._render([Message(role=m.role, content=next(marked)) if m.role == "assistant" else m
                             for m in messages])  # fmt: skip
        for mark, content in marks.items():
            text = text.replace(mark, self._opening + content)
        return text

    def _clean(self, text: str) -> str:
        return self._forged.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text.strip())

    def _explain(self, name: str, pieces: list[int], whole: list[int]) -> str:
        decode = self._tokenizer.decode
        turn_by_turn, at_once = str(decode(pieces)), str(decode(whole))
        if turn_by_turn == at_once:
            i = next((i for i, (a, b) in enumerate(zip(pieces, whole, strict=False)) if a != b), -1)
            what = f"same text, other token ids from position {i}: {pieces[i : i + 5]} against {whole[i : i + 5]}"
        else:
            what = _difference(turn_by_turn, at_once)
        return f"its chat template does not keep earlier turns as they were ({name}): {what}"


def _probes(thinking: bool) -> list[tuple[str, list[Message]]]:
    """Conversations that start with what a policy may see and end with an observation, by what they try."""
    system = [Message(role="system", content="guide : be brief .")]
    start = [Message(role="user", content="You see a door 1.\nYour task is to: open it.")]

    def turns(*texts: tuple[str, str]) -> list[Message]:
        return [
            message
            for action, observation in texts
            for message in (Message(role="assistant", content=action), Message(role="user", content=observation))
        ]

    short = turns(("look", "Nothing happens."))
    long = turns(("go to door 1", "The door 1 is closed."), ("open door 1", "OK\n\n  Done: 3.5 "), ("look", "?"))
    probes = [
        ("one turn", start + short),
        ("one turn after a system message", system + start + short),
        ("three turns", start + long),
        ("three turns after a system message", system + start + long),
    ]
    if thinking:
        probes.append(("an answer with a <think> block", start + turns(("<think>why</think>\n\nlook", "A door 1."))))
    return probes


def _special_pattern(tokenizer: ChatTokenizer) -> re.Pattern[str]:
    texts = {str(text) for text in tokenizer.all_special_tokens}
    texts |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    longest_first = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)", re.IGNORECASE)


def _difference(ours: str, theirs: str) -> str:
    limit = min(len(ours), len(theirs))
    at = next((i for i in range(limit) if ours[i] != theirs[i]), limit)
    start = max(0, at - _WINDOW)
    return (
        f"from character {at} on, turn by turn gives {ours[start : at + _WINDOW]!r}, "
        f"the whole conversation gives {theirs[start : at + _WINDOW]!r}"
    )


def _refuse(problem: str) -> NoReturn:
    raise ConfigError("policy.model", f"{problem}.")
