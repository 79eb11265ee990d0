from __future__ import annotations

import pytest

from envs.alfworld.language import as_command, parse_opening

FIRST = (
    "-= Welcome to TextWorld, ALFRED! =-\n\n"
    "You are in the middle of a room. Looking quickly around you, you see a desk 1, and a bed 1.\n\n"
    "Your task is to: look at bowl under the desklamp."
)


def test_the_banner_goes_and_room_and_task_stay() -> None:
    opening = parse_opening(FIRST)
    assert opening.room == "You are in the middle of a room. Looking quickly around you, you see a desk 1, and a bed 1."
    assert opening.task == "look at bowl under the desklamp."
    assert opening.text == FIRST.removeprefix("-= Welcome to TextWorld, ALFRED! =-\n\n")


@pytest.mark.parametrize("text", ["", "You are in a room.", "A room.\n\nYour task is to: "])
def test_a_first_answer_without_a_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no task in"):
        parse_opening(text)


@pytest.mark.parametrize("action", ["go to desk 1", "  Go to\tDesk 1 \n", "GO TO DESK  1"])
def test_case_and_spaces_of_an_action_do_not_matter(action: str) -> None:
    assert as_command(action) == "go to desk 1"
