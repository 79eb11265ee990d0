"""Porter's stemmer (M. F. Porter, "An algorithm for suffix stripping", 1980), with the two later changes of its author
that Lucene has: "bli" becomes "ble", "logi" becomes "log".

"Measure" is the number of times a vowel is followed by a consonant.
"""

from __future__ import annotations

# (suffix, replacement), the first that fits decides; the measure before it must be at least 1
_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
# removed when the measure before it is at least 2
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters are their own.

    >>> stem("relational"), stem("hopping"), stem("ponies")
    ('relat', 'hop', 'poni')
    """
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past_and_ing(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _without_ending(word)
    return _tidy(word)


def _shape(word: str) -> str:
    """ "c" for each consonant and "v" for each vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _ends_in_short_syllable(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x and y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _ends_in_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c")


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _past_and_ing(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            break
    else:
        return word
    root = word.removesuffix(suffix)
    if "v" not in _shape(root):
        return word
    if root.endswith(("at", "bl", "iz")):
        return root + "e"
    if _ends_in_double_consonant(root):
        return root if root[-1] in "lsz" else root[:-1]
    if _measure(root) == 1 and _ends_in_short_syllable(root):
        return root + "e"
    return root


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in rules:
        if word.endswith(suffix):
            root = word.removesuffix(suffix)
            return root + replacement if _measure(root) > 0 else word
    return word


def _without_ending(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            root = word.removesuffix(suffix)
            if suffix == "ion" and not root.endswith(("s", "t")):
                continue
            return root if _measure(root) > 1 else word
    return word


def _tidy(word: str) -> str:
    if word.endswith("e"):
        root = word[:-1]
        measure = _measure(root)
        if measure > 1 or (measure == 1 and not _ends_in_short_syllable(root)):
            word = root
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
