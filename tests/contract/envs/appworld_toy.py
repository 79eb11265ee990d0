"""Builds a small AppWorld root on the real apps: own people, notes and tasks, nothing of AppWorld's data.

Run by the interpreter that has AppWorld: `PYTHON -P appworld_toy.py ROOT`. The apps are unpacked from the package that
is installed, so ROOT is for this machine only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Person(NamedTuple):
    first_name: str
    last_name: str
    email: str
    phone_number: str
    notes: tuple[tuple[str, str, tuple[str, ...]], ...]  # title, content, tags

    def password(self, app: str) -> str:
        return f"{self.first_name.lower()}-{app}-pw"


class Toy(NamedTuple):
    id: str
    person: Person
    instruction: str
    answer: int | None
    gone: str | None  # title of the note that must be deleted
    solution: str  # body of upstream's `solution(apis, requester)`


ADA = Person(
    "Ada",
    "Marsh",
    "ada.marsh@example.com",
    "5550100001",
    (
        ("Groceries", "milk\neggs\nbasil", ("home",)),
        ("Bike trip", "check tyres", ("travel", "fun")),
        ("Rome plan", "book train", ("travel",)),
    ),
)
BEN = Person("Ben", "Okoro", "ben.okoro@example.com", "5550100002", (("Gym", "legs on Monday", ("health",)),))
ACCOUNTS = ("simple_note", "todoist", "phone")
LOGIN = """
    passwords = {x["account_name"]: x["password"] for x in apis.supervisor.show_account_passwords()}
    email = apis.supervisor.show_profile()["email"]
    token = apis.simple_note.login(username=email, password=passwords["simple_note"])["access_token"]
"""
COUNT = LOGIN + "    notes = apis.simple_note.search_notes(access_token=token{tags})\n"
TOYS = (
    Toy(
        "toy0001_1",
        ADA,
        "How many notes tagged travel do I have in Simple Note?",
        2,
        None,
        COUNT.replace("{tags}", ", tags=['travel']") + "    apis.supervisor.complete_task(answer=len(notes))\n",
    ),
    Toy(
        "toy0002_1",
        ADA,
        'Delete my Simple Note note titled "Groceries".',
        None,
        "Groceries",
        COUNT.replace("{tags}", ", query='Groceries'")
        + "    for note in notes:\n        if note['title'] == 'Groceries':\n"
        "            apis.simple_note.delete_note(note_id=note['note_id'], access_token=token)\n"
        "    apis.supervisor.complete_task()\n",
    ),
    Toy(
        "toy0003_1",
        BEN,
        "How many notes do I have in Simple Note?",
        1,
        None,
        COUNT.replace("{tags}", "") + "    apis.supervisor.complete_task(answer=len(notes))\n",
    ),
)
EVALUATION = """\
import json


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    before = {(note.id, note.title) for note in models.start.simple_note.Note.all()}
    after = {(note.id, note.title) for note in models.end.simple_note.Note.all()}
    with test("answer matches"):
        task = models.end.supervisor.Task.all()[0]
        test.case(task.status, "==", "success")
        test.answer(json.loads(task.answer) if task.answer else None, ground_truth_answer)
"""
GONE = """\
    with test("the note is gone"):
        test.case(any(title == {gone} for _, title in after), "==", False)
"""
REST = """\
    with test("no other note changed"):
        others = [{note for note in notes if note[1] != {gone}} for notes in (before, after)]
        test.case(others[0], "==", others[1])
"""


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    data = root / "data"
    data.mkdir(parents=True)
    os.environ["APPWORLD_ROOT"] = str(root)
    importlib.import_module("appworld").update_root(str(root))
    moment = importlib.import_module("appworld.common.datetime").DateTime(2023, 5, 18, 12, 0, 0)
    importlib.import_module("appworld.apps.api_lib").set_local_date_and_time(moment)
    apps = importlib.import_module("appworld.apps").get_all_apps()
    collection = importlib.import_module("appworld.collections.models").ModelCollection
    docs = api_docs(data)
    base_databases(collection, data / "base_dbs", apps, docs)
    for toy in TOYS:
        task_databases(collection, data, apps, toy)
        specification(data / "tasks" / toy.id, toy, moment)
    (data / "datasets").mkdir()
    for dataset, toys in (("train", TOYS[:2]), ("dev", TOYS[2:])):
        (data / "datasets" / f"{dataset}.txt").write_text("".join(f"{toy.id}\n" for toy in toys))
    (data / "version.txt").write_text("0.1.0")
    sys.stdout.flush()
    os._exit(0)  # AppWorld's own clean-up at exit takes seconds


def api_docs(data: Path) -> dict[str, Any]:
    apps = importlib.import_module("appworld.apps").get_all_apps(skip_admin=True)
    build = importlib.import_module("appworld.collections.api_docs").ApiDocCollection.build
    plain = importlib.import_module("munch").unmunchify
    docs: dict[str, Any] = {
        app: plain(doc) for app, doc in build(load_apps=tuple(apps), include_response_schemas=True).items()
    }
    folder = data / "api_docs" / "standard"
    folder.mkdir(parents=True)
    for app, doc in docs.items():
        told = {name: {**api, "canary_string": ""} for name, api in doc.items()}
        (folder / f"{app}.json").write_text(json.dumps(told))
    return docs


def base_databases(collection: Any, folder: Path, apps: list[str], docs: dict[str, Any]) -> None:
    folder.mkdir()
    models = collection.load(
        to_db_home_path=str(folder),
        from_db_home_path=str(folder),
        load_apps=[],
        force_empty_apps=apps,
        skip_mandatory_apps=True,
        create_db=True,
    )
    for app, doc in docs.items():
        for name, api in doc.items():
            fields = {key: api[key] for key in ("path", "method", "description", "parameters", "response_schemas")}
            models.api_docs.ApiDoc(app_name_=app, api_name=name, **fields).save()
    for person in (ADA, BEN):
        names = {"first_name": person.first_name, "last_name": person.last_name, "email": person.email}
        main_user = models.admin.MainUser(**names, phone_number=person.phone_number, birthday="1990-01-01")
        main_user.save()
        for app in ACCOUNTS:
            models.admin.AccountPassword(
                main_user_id=main_user.id, account_name=app, password=person.password(app)
            ).save()
        user = models.simple_note.User(**names, password=person.password("simple_note"), verified=True)
        user.save()
        for title, content, tags in person.notes:
            models.simple_note.Note(user_id=user.id, title=title, content=content, tags=list(tags)).save()
    models.close()


def task_databases(collection: Any, data: Path, apps: list[str], toy: Toy) -> None:
    folder = data / "tasks" / toy.id / "dbs"
    folder.mkdir(parents=True)
    models = collection.load(
        from_db_home_path=str(data / "base_dbs"), to_db_home_path=f":memory:toy-{toy.id}", load_apps=apps
    )
    person = toy.person
    supervisor = models.supervisor.Supervisor(
        first_name=person.first_name,
        last_name=person.last_name,
        email=person.email,
        phone_number=person.phone_number,
        birthday="1990-01-01",
    )
    supervisor.save()
    for app in ACCOUNTS:
        models.supervisor.AccountPassword(
            supervisor_id=supervisor.id, account_name=app, password=person.password(app)
        ).save()
    models.supervisor.Task(supervisor_id=supervisor.id, instruction=toy.instruction).save()
    models.save(db_home_path=str(folder), app_names=apps, format="changes")
    models.close()


def specification(folder: Path, toy: Toy, moment: Any) -> None:
    person = toy.person
    supervisor = {
        "first_name": person.first_name,
        "last_name": person.last_name,
        "email": person.email,
        "phone_number": person.phone_number,
    }
    version = importlib.import_module("appworld.common.constants").DB_VERSION
    facts = {
        "instruction": toy.instruction,
        "supervisor": supervisor,
        "datetime": moment.isoformat(),
        "db_version": version,
    }
    (folder / "specs.json").write_text(json.dumps(facts))
    truth = folder / "ground_truth"
    truth.mkdir()
    metadata = {
        "mode": "minimal",
        "difficulty": 1,
        "num_apps": 1,
        "num_apis": 2,
        "num_api_calls": 3,
        "num_solution_code_lines": 3,
    }
    requirements = ["answer matches", *(["the note is gone"] if toy.gone else []), "no other note changed"]
    tests = [{"requirement": name, "label": "no_op_fail"} for name in requirements]
    tests[-1]["label"] = "no_op_pass"
    files: dict[str, Any] = {
        "public_data": {},
        "private_data": {},
        "answer": toy.answer,
        "metadata": metadata,
        "test_data": tests,
    }
    for name, content in files.items():
        (truth / f"{name}.json").write_text(json.dumps(content))
    evaluation = EVALUATION + ((GONE if toy.gone else "") + REST).replace("{gone}", repr(toy.gone))
    (truth / "evaluation.py").write_text(evaluation)
    (truth / "compiled_solution.py").write_text(f"def solution(apis, requester):{toy.solution}")


if __name__ == "__main__":
    main()
