"""The first message of an episode."""

from __future__ import annotations

from envs.appworld.session import Briefing

_HOW = (
    "You work for a person through the programming interfaces of their apps. In every turn write one block of Python "
    "code,\n```python\n...\n```\nwhich is run in one session that keeps its variables; you are shown what it printed. "
    "The apps are reached through the object apis. apis.api_docs tells what there is: show_app_descriptions(), "
    "show_api_descriptions(app_name=...), show_api_doc(app_name=..., api_name=...). apis.supervisor knows the person's "
    "profile, accounts and passwords. When the task is done call apis.supervisor.complete_task(), with answer=... if "
    "the task asks for an answer.\n\n"
)


def first_message(briefing: Briefing, *, instructions: bool) -> str:
    """Whose task it is, the date and time it is there, and the task; first how to act, with `instructions`."""
    person = briefing.supervisor
    now = briefing.datetime.replace("T", " ")
    return (
        f"{_HOW if instructions else ''}My name is {person.first_name} {person.last_name}, my email address is "
        f"{person.email} and my phone number is {person.phone_number}. It is {now}.\n"
        f"Task: {briefing.instruction}"
    )
