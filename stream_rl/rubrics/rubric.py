"""One behaviour a judge decides about."""

from __future__ import annotations

import msgspec


class Rubric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One behaviour that can be seen, or seen to be missing, in a transcript."""

    id: str  # "<skill>.<short_name>", unique
    skill: str  # the skill it belongs to
    name: str  # a few words
    applies: str  # when it can be decided at all
    positive: str  # what counts as showing it
    violation: str  # what counts as breaking it
    hint: str  # told to the teacher: imperative, lower case, no final stop
    avoid: str  # told to later rollouts when violations dominate: "avoid ...", lower case, no final stop
