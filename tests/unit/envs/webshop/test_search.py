from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.analysis import terms
from envs.webshop.bm25 import Index, rounded_length
from envs.webshop.catalogue import Catalogue
from envs.webshop.porter import stem
from envs.webshop.search import Search
from tests.unit.envs.webshop.builders import product

# Examples of Porter's paper, and of the later changes of its author.
STEMS = """
caresses caress  ponies poni  ties ti  caress caress  cats cat  feed feed  agreed agre  plastered plaster  bled bled
motoring motor  sing sing  conflated conflat  troubled troubl  sized size  hopping hop  tanned tan  falling fall
hissing hiss  fizzed fizz  failing fail  filing file  happy happi  sky sky  relational relat  conditional condit
rational ration  valenci valenc  hesitanci hesit  digitizer digit  radicalli radic  differentli differ  vileli vile
analogousli analog  vietnamization vietnam  predication predic  operator oper  feudalism feudal  decisiveness decis
hopefulness hope  callousness callous  formaliti formal  sensitiviti sensit  sensibiliti sensibl  triplicate triplic
formative form  formalize formal  electriciti electr  electrical electr  hopeful hope  goodness good  revival reviv
allowance allow  inference infer  airliner airlin  gyroscopic gyroscop  adjustable adjust  defensible defens
irritant irrit  replacement replac  adjustment adjust  dependent depend  adoption adopt  homologou homolog
communism commun  activate activ  angulariti angular  homologous homolog  effective effect  bowdlerize bowdler
probate probat  rate rate  cease ceas  controll control  roll roll  possibly possibl  archaeology archaeolog
as as  by by  gas ga  toys toi  saying sai
"""


def test_stems_of_the_paper() -> None:
    given_words = STEMS.split()
    for word, expected in zip(given_words[::2], given_words[1::2], strict=True):
        assert stem(word) == expected, word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Women's running-shoes", ["women", "run", "shoe"]),
        ("don't 3.5mm 1,000 4:30 a:b x_y", ["don't", "3.5mm", "1,000", "4", "30", "a:b", "x_y"]),
        ("13.5 fl oz (pack of 2), u.s.a. __ it's", ["13.5", "fl", "oz", "pack", "2", "u.s.a"]),
        ("caf\u00e9 men\u2019s 2\u00bd\u2122 \u5927\u5c0f", ["caf\u00e9", "men", "2", "\u5927", "\u5c0f"]),
        ("of such with", []),
        ("", []),
    ],
)
def test_words_become_terms_as_in_lucene(text: str, expected: list[str]) -> None:
    assert list(terms(text)) == expected


def test_long_words_are_cut_where_lucene_cuts_them() -> None:
    assert [len(term) for term in terms("x" * 600)] == [255, 255, 90]


def test_lengths_are_rounded_as_lucenes_byte_code() -> None:
    """The decoded values of SmallFloat.byte4ToInt."""
    values = sorted({rounded_length(length) for length in range(600)})
    assert values[:40] == list(range(40))
    assert values[40:66] == [
        40, 42, 44, 46, 48, 50, 52, 54, 56, 60, 64, 68, 72, 76, 80, 84, 88, 96, 104, 112, 120, 128, 136, 144, 152, 168,
    ]  # fmt: skip


def test_scores_by_hand() -> None:
    """Mean length 3. "red": 1/(1 + 0.78) against 2/(2 + 1.02) of the same idf; "shoe hat": 1/1.78 against 1/2.02."""
    index = Index(["red shoe", "red red hat box"], ["a", "b"])
    assert index.search("red", 50) == [1, 0]
    assert index.search("shoe hat", 50) == [0, 1]
    assert index.search("hat hat shoe", 50) == [1, 0]  # a word said twice counts twice
    assert index.search("boxes", 50) == [1]
    assert index.search("glove", 50) == []
    assert index.search("the of", 50) == []


def test_ties_go_by_name_and_the_best_are_cut() -> None:
    index = Index(["red"] * 5, ["e", "d", "c", "b", "a"])
    assert index.search("red", 50) == [4, 3, 2, 1, 0]
    assert index.search("red", 2) == [4, 3]
    assert Index([], []).search("red", 2) == []
    assert Index(["", "the"], ["a", "b"]).search("red", 2) == []


def plain_scores(documents: list[str], query: str) -> list[float]:
    """BM25 from its definition, in double precision; the documents here are too short to be rounded."""
    counts = [Counter(document.split()) for document in documents]
    filled = [each.total() for each in counts if each]
    mean = sum(filled) / len(filled) if filled else 1.0
    scores = [0.0] * len(documents)
    for word in query.split():
        containing = sum(word in each for each in counts)
        idf = math.log(1 + (len(filled) - containing + 0.5) / (containing + 0.5))
        for place, each in enumerate(counts):
            norm = 0.9 * (0.6 + 0.4 * each.total() / mean)
            scores[place] += idf * each[word] / (each[word] + norm)
    return scores


WORDS = st.lists(st.sampled_from(["red", "blue", "hat", "shoe", "box", "lamp"]), max_size=12).map(" ".join)


@settings(deadline=None, max_examples=150)
@given(st.lists(WORDS, min_size=1, max_size=12), WORDS, st.integers(1, 5))
def test_it_finds_the_best_by_definition(documents: list[str], query: str, top: int) -> None:
    scores = plain_scores(documents, query)
    found = Index(documents, [f"{place:02}" for place in range(len(documents))]).search(query, top)
    assert len(found) == min(top, sum(score > 0 for score in scores))
    best = sorted(scores, reverse=True)[: len(found)]
    assert [scores[place] for place in found] == pytest.approx(best, abs=1e-5)


CATALOGUE = Catalogue(
    product(f"B{place:02}", title=f"thing {place}", category=category, query=query, attributes=attributes, options=())
    for place, (category, query, attributes) in enumerate(
        [
            ("garden", "table lamps", ("glass shade", "easy install")),
            ("fashion", "men's shirts", ("long sleeve",)),
            ("garden", "desk lamps", ("glass shade",)),
        ]
        * 20
    )
)


def find(query: str, seed: int = 0) -> list[int]:
    return list(Search(CATALOGUE).find(query.split(" "), random.Random(seed)))


def test_special_searches() -> None:
    assert find("<a> glass shade") == [place for place in range(60) if place % 3 != 1]
    assert find("<a> easy install") == list(range(0, 60, 3))
    assert find("<c> fashion") == list(range(1, 60, 3))
    assert find("<q> men's shirts") == list(range(1, 60, 3))
    assert find("<a> nothing") == find("<c>") == find("<q>") == find("<c> ") == []


def test_random_searches_are_the_seeds() -> None:
    found = find("<r>")
    assert len(set(found)) == 50
    assert found == find("<r>")
    assert found != find("<r>", seed=1)
    few = Catalogue([product("B1"), product("B2")])
    assert sorted(Search(few).find(["<r>"], random.Random(0))) == [0, 1]


def test_a_product_is_found_by_title_description_first_bullet_and_options() -> None:
    bare = product("B2", title="x", description="y", bullets=("z", "w"), options=())
    search = Search(Catalogue([product("B1"), bare]))

    def places(query: str) -> list[int]:
        return list(search.find(query.split(" "), random.Random(0)))

    assert [places(query) for query in ("scarf", "warm", "navy", "size")] == [[0]] * 4
    assert places("soft") == []  # the second bullet
    assert [places(query) for query in ("x", "y", "z")] == [[1]] * 3
