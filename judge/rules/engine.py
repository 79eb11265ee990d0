"""All rules under the ids of the built-in vocabulary, and one call that applies them."""

from __future__ import annotations

from collections.abc import Sequence

from judge.rules import (
    efficiency,
    exploration,
    focus,
    grounding,
    memory,
    planning,
    precision,
    recovery,
    verification,
)
from judge.rules.facts import reconstruct
from judge.rules.finding import Finding, Rule
from judge.transcript import Transcript

RULES: dict[str, Rule] = {
    "exploration.new_places": exploration.new_places,
    "exploration.open_closed": exploration.open_closed,
    "exploration.keep_searching": exploration.keep_searching,
    "exploration.prompt_start": exploration.prompt_start,
    "planning.likely_places": planning.likely_places,
    "planning.prepare_first": planning.prepare_first,
    "planning.complete_steps": planning.complete_steps,
    "planning.gather_inputs": planning.gather_inputs,
    "grounding.known_things": grounding.known_things,
    "grounding.notice_target": grounding.notice_target,
    "grounding.exact_names": grounding.exact_names,
    "grounding.within_reach": grounding.within_reach,
    "grounding.shown_state": grounding.shown_state,
    "precision.valid_actions": precision.valid_actions,
    "precision.command_form": precision.command_form,
    "precision.right_tool": precision.right_tool,
    "precision.right_destination": precision.right_destination,
    "precision.exact_amount": precision.exact_amount,
    "recovery.change_after_failure": recovery.change_after_failure,
    "recovery.break_loops": recovery.break_loops,
    "recovery.undo_mistakes": recovery.undo_mistakes,
    "recovery.quick_recovery": recovery.quick_recovery,
    "efficiency.direct_route": efficiency.direct_route,
    "efficiency.keep_open": efficiency.keep_open,
    "efficiency.no_idle_looks": efficiency.no_idle_looks,
    "efficiency.keep_results": efficiency.keep_results,
    "efficiency.work_once": efficiency.work_once,
    "efficiency.prompt_finish": efficiency.prompt_finish,
    "memory.recall_location": memory.recall_location,
    "memory.recall_failures": memory.recall_failures,
    "memory.recall_carried": memory.recall_carried,
    "memory.recall_opened": memory.recall_opened,
    "focus.needed_objects": focus.needed_objects,
    "focus.asked_work": focus.asked_work,
    "focus.steady_progress": focus.steady_progress,
    "focus.chosen_thing": focus.chosen_thing,
    "verification.step_worked": verification.step_worked,
}

# What whether the world took an action decides by itself, in any world.
ANY_WORLD = frozenset({"precision.valid_actions", "recovery.change_after_failure", "recovery.quick_recovery"})

_NO_RULE = Finding(value="not_applicable", reason="no rule decides this")
_INCOMPLETE = Finding(value="not_applicable", reason="turns were left out")


def decide_all(transcript: Transcript, rubric_ids: Sequence[str]) -> dict[str, Finding]:
    """A finding for each asked rubric. A transcript with turns left out cannot be replayed: nothing applies."""
    if transcript.left_out:
        return dict.fromkeys(rubric_ids, _INCOMPLETE)
    facts = reconstruct(transcript)
    rules = RULES if facts.goal is not None else {rubric: RULES[rubric] for rubric in ANY_WORLD}
    return {rubric: rules[rubric](facts) if rubric in rules else _NO_RULE for rubric in rubric_ids}
