"""The shipped vocabulary: its size, its form, and that no two rubrics say the same."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import builtin, load, parse

SKILLS = [
    *("exploration", "planning", "grounding", "precision", "recovery"),
    *("efficiency", "memory", "focus", "verification", "care"),
]
CORE = {
    "exploration.new_places": ("search every place only once", "avoid searching a place twice"),
    "exploration.open_closed": ("open closed places at once", "avoid leaving places closed"),
    "planning.likely_places": ("look in likely places first", "avoid unlikely places"),
    "precision.valid_actions": ("use only actions that work", "avoid actions that do nothing"),
    "efficiency.direct_route": ("go straight to the goal", "avoid detours"),
    "efficiency.keep_open": ("leave opened places open", "avoid closing places"),
    "efficiency.no_idle_looks": ("act instead of looking around", "avoid looking around"),
    "focus.needed_objects": ("take only what is needed", "avoid taking other things"),
}
FILLER = re.compile(
    r"\b(a|an|the|its?|is|are|was|were|been?|to|of|and|or|in|on|at|that|which|with|for|as|this|what|avoid)\b"
)


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", FILLER.sub(" ", text.lower())))


def test_has_59_rubrics_in_10_skills() -> None:
    vocabulary = builtin()
    assert len(vocabulary.rubrics) == 59
    assert list(vocabulary.skills) == SKILLS
    assert len(set(vocabulary.ids)) == 59


def test_core_phrases_are_exact() -> None:
    vocabulary = builtin()
    assert {r: (vocabulary[r].hint, vocabulary[r].avoid) for r in CORE} == CORE


def test_phrases_have_the_form_that_prompts_rely_on() -> None:
    for rubric in builtin().rubrics:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", rubric.id)
        assert re.fullmatch(r"[a-z]+( [a-z]+){2,5}", rubric.hint), rubric.hint
        assert re.fullmatch(r"avoid( [a-z]+){1,5}", rubric.avoid), rubric.avoid
        for text in (rubric.name, rubric.applies, rubric.positive, rubric.violation):
            assert text.strip() == text
            assert text
            assert not text.endswith(".")


@pytest.mark.parametrize(
    ("field", "bound"),
    [("hint", 0.4), ("avoid", 0.4), ("positive", 0.4), ("violation", 0.4), ("applies", 0.5), ("name", 0.5)],
)
def test_no_two_rubrics_are_near_duplicates(field: str, bound: float) -> None:
    """Jaccard overlap of content words."""
    texts = [(r.id, words(getattr(r, field))) for r in builtin().rubrics]
    for (first, a), (second, b) in combinations(texts, 2):
        assert len(a & b) / len(a | b) < bound, f"{field} of {first} and {second}"


def test_texts_of_one_rubric_are_unlike_each_other() -> None:
    for rubric in builtin().rubrics:
        assert len({rubric.applies, rubric.positive, rubric.violation}) == 3


def test_load_reads_the_same_from_a_file_and_refuses_bad_ones(tmp_path: object) -> None:
    assert load("builtin") is builtin()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(f"{tmp_path}/none.toml")
    with pytest.raises(ConfigError, match="holds no"):
        parse("", "empty.toml")
    one = '[[rubrics]]\nid="a.b"\nskill="a"\nname="n"\napplies="x"\npositive="p"\nviolation="v"\nhint="h"\navoid="a"\n'
    with pytest.raises(ConfigError, match="more than once"):
        parse(one + one, "twice.toml")
    with pytest.raises(ConfigError, match="does not begin with its skill"):
        parse(one.replace('skill="a"', 'skill="c"'), "skill.toml")
