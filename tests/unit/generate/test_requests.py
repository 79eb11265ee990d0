from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import GenerationFailed
from stream_rl.generate.requests import check, check_spans, merge_spans
from stream_rl.ports import GenerateRequest
from stream_rl.types import VersionSpan


def a_request(length: int, max_tokens: int) -> GenerateRequest:
    ids = np.ones(length, dtype=np.int32)
    return GenerateRequest(prompt_ids=ids, max_tokens=max_tokens, temperature=1.0, stop_token_ids=())


@pytest.mark.parametrize(("length", "max_tokens", "limit"), [(5, 3, 3), (8, 3, 2), (9, 3, 1), (1, 100, 9)])
def test_the_limit_is_what_the_length_leaves(length: int, max_tokens: int, limit: int) -> None:
    assert check(a_request(length, max_tokens), max_model_len=10, vocab_size=4) == limit


def test_a_full_prompt_leaves_no_room() -> None:
    with pytest.raises(GenerationFailed, match="10 tokens; max_model_len 10"):
        check(a_request(10, 1), max_model_len=10, vocab_size=4)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=20))
def test_merged_spans_say_the_same_of_every_token(versions: list[int]) -> None:
    spans = merge_spans((version, 1) for version in versions)
    assert [span.version for span in spans for _ in range(span.num_tokens)] == versions
    assert all(a.version != b.version for a, b in itertools.pairwise(spans))


def test_unaccounted_tokens_are_an_error() -> None:
    two = VersionSpan(version=3, num_tokens=2)
    check_spans((two,), 2)
    with pytest.raises(GenerationFailed, match="3 tokens were sampled, but the engine accounts for 2 of version 3"):
        check_spans((two,), 3)
    with pytest.raises(GenerationFailed, match="accounts for none"):
        check_spans((), 1)
    with pytest.raises(GenerationFailed):
        check_spans((two, VersionSpan(version=2, num_tokens=1)), 3)  # versions never go back
