"""The rubric bundles that are on offer to one group's teacher."""

from __future__ import annotations

import msgspec


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy wrote about the group, and what the rubric bank adds. Part of the ledger."""

    bundles: tuple[tuple[str, ...], ...] = ()  # criteria of each candidate
    banked: bool = False  # the last bundle comes from the rubric bank
    malformed: int = 0  # answers of the policy that held no usable bundle
    omitted_turns: int = 0  # turns the policy was not shown, to fit its token budget
    asked: bool = False  # a verifier scores the criteria; False: the choice does not need it, or could not use it

    @property
    def criteria(self) -> tuple[str, ...]:
        """Every criterion of any bundle once, in order of first use: what a verifier is asked."""
        return tuple(dict.fromkeys(criterion for bundle in self.bundles for criterion in bundle))
