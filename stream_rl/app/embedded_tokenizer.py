"""The phrase tokenizer of the embedded policy, made from the household's own words.

What the world always says in one piece is one token, places ("cabinet 1") are one, objects are two ("apple", "1") so
that the policy can copy the type told in the task. Every hint and avoid phrase of the vocabulary is one token.
"""

from __future__ import annotations

import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from envs.household.catalogue import LAMP, MOST_OF_A_TYPE, OBJECTS, PLACES
from stream_rl.rubrics.vocabulary import Vocabulary

PAD, END_OF_TURN, UNKNOWN = "<|endoftext|>", "<|im_end|>", "<unk>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
VOCABULARY_MULTIPLE = 64

# One line for one message; nothing depends on what follows, so adding messages never changes earlier ids.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] -}}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|im_end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)

_PHRASES = (
    "nothing happens .",
    "is closed .",
    "is open . in it , you see",
    "on the",
    ", you see",
    ". in it , you see",
    "you open the",
    "you close the",
    "you pick up the",
    "from the",
    "you move the",
    "to the",
    "you heat the",
    "you cool the",
    "you clean the",
    "using the",
    "you turn on the",
    "there is nothing special about the",
    "you are carrying :",
    "you are in the middle of a room .",
    "you see",
    "your task is to :",
    "look at",
    "under the",
    "put some",
    "put a",
    "put two",
    "go to",
    "guide :",
)
_WORDS = (
    *("take", "from", "open", "close", "move", "to", "heat", "cool", "clean", "with", "use", "look", "inventory"),
    *("examine", "hot", "in", "on", "the", "nothing", "desklamp", ".", ",", ":"),
)


def normalise(text: str) -> str:
    """Lower case, one space between words, punctuation on its own. What the tokenizer does before it looks up."""
    return " ".join(re.sub(r"([.,:])", r" \1 ", text.lower()).split())


def build(vocabulary: Vocabulary) -> PreTrainedTokenizerFast:
    """A tokenizer for the household and the rubrics of `vocabulary`. Unknown words become `<unk>`."""
    words = _entries(vocabulary)
    ids = {word: i for i, word in enumerate(dict.fromkeys([PAD, END_OF_TURN, UNKNOWN, *ROLES, *words]))}
    tokenizer = Tokenizer(WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            *(normalizers.Replace(mark, f" {mark} ") for mark in ".,:"),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    pattern = "|".join([*(re.escape(word) + r"(?!\S)" for word in longest_first), r"\S+"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ids if "<" in token])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END_OF_TURN,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer and chat template to `folder`."""
    tokenizer.save_pretrained(str(folder))


def model_vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """Rows of the embedding: the number of tokens, padded to a multiple of 64."""
    return -(-len(tokenizer) // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def _entries(vocabulary: Vocabulary) -> list[str]:
    places = [f"{place} {n + 1}" for place, most in PLACES.items() for n in range(most)]
    numbers = [str(n + 1) for n in range(MOST_OF_A_TYPE)]
    advice = [normalise(text) for rubric in vocabulary.rubrics for text in (rubric.hint, rubric.avoid)]
    return [*_PHRASES, *places, LAMP, *numbers, *_WORDS, *PLACES, *OBJECTS, *advice]
