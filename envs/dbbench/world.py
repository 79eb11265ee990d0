"""DBBench as an environment of the stream."""

from __future__ import annotations

from typing import Annotated

import msgspec

from envs.dbbench.actions import Commit, Execute, Form, Malformed, parse_action
from envs.dbbench.answers import right
from envs.dbbench.backend import Backend, Database, StatementFailed, cut, state
from envs.dbbench.backends import BackendName, backend_for
from envs.dbbench.data import SplitBy, draw, load, select
from envs.dbbench.instructions import first_message
from envs.dbbench.records import Record
from envs.dbbench.statements import Refused
from envs.dbbench.synthetic import SYNTHETIC, generate
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, Split, StepResult, Task

ACCEPTED = "The final answer was received."
OVER = "The episode is over."


class DBBenchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.options]` of this world."""

    data: str = ""  # AgentBench's file or folder of files; empty or "synthetic": generated tasks
    split_by: SplitBy = "tables"  # what is held out: one table in five, or upstream's standard and test "files"
    form: Form = "text"  # how actions are written: upstream's "text" form, or "tool" calls as JSON
    backend: BackendName = "sqlite"  # "mysql" for published numbers
    dsn_env: str = ""  # for "mysql": environment variable with mysql://user:password@host:port/; empty: private MariaDB
    max_rounds: Annotated[int, msgspec.Meta(ge=1)] = 15  # actions of an episode, the answer included
    statement_limit_s: Annotated[float, msgspec.Meta(gt=0)] = 2.0  # a statement that takes longer is stopped
    strict: bool = False  # a reply in no form ends the episode, as upstream has it
    instructions: bool = True  # explain the form of actions first


class DBBench:
    """One table, one question or change, SQL statements until the answer is given; success is reward and score 1.

    Split and index decide the task; nothing in it is random, so `seed` changes nothing. The keywords are those of
    `DBBenchOptions`; values it cannot use raise `ConfigError`. All episodes of a process share one backend.
    """

    def __init__(
        self,
        *,
        data: str = "",
        split_by: str = "tables",
        form: str = "text",
        backend: str = "sqlite",
        dsn_env: str = "",
        max_rounds: int = 15,
        statement_limit_s: float = 2.0,
        strict: bool = False,
        instructions: bool = True,
    ) -> None:
        given = {
            "data": data,
            "split_by": split_by,
            "form": form,
            "backend": backend,
            "dsn_env": dsn_env,
            "max_rounds": max_rounds,
            "statement_limit_s": statement_limit_s,
            "strict": strict,
            "instructions": instructions,
        }
        try:
            self.options = msgspec.convert(given, DBBenchOptions)
        except msgspec.ValidationError as error:
            raise ConfigError("environments.options", f"dbbench: {given} cannot be used: {error}.") from None
        self._splits: dict[Split, tuple[Record, ...]] = {}
        if data and data != SYNTHETIC:
            records = load(data).records
            for split in ("train", "held_out"):
                self._splits[split] = select(records, split, self.options.split_by)
                if not self._splits[split]:
                    raise ConfigError(
                        "environments.options",
                        f"dbbench: no task of {data} is in the {split} split when it is split by {split_by}.",
                    )
        self._backend()  # what cannot be used is refused now, and the first episode does not wait for a server
        self._record: Record | None = None
        self._database: Database | None = None
        self._rounds = 0
        self._done = False
        self._success = False

    def num_tasks(self, split: Split) -> int | None:
        """Tasks of the split, higher indices begin again; None for generated ones."""
        return len(self._splits[split]) if self._splits else None

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode. Raises `EnvironmentFailed` when the database cannot be made."""
        self.close()
        tasks = self._splits.get(task.split)
        record = draw(tasks, task.split, task.index) if tasks else generate(task.split, task.index)
        self._database = self._backend().open(record.tables)
        self._record = record
        self._rounds = 0
        self._done = self._success = False
        return Observation(text=first_message(record, self.options.form, instructions=self.options.instructions))

    def step(self, action: str) -> StepResult:
        """Act. What is in no form, or is not run, is answered with the reason and `valid=False`.

        Raises `EnvironmentFailed` when no episode has begun, or the database is gone.
        """
        record, database = self._current()
        if self._done:
            return StepResult(text=OVER, done=True, success=self._success, score=float(self._success), valid=False)
        self._rounds += 1
        self._done = self._rounds == self.options.max_rounds
        match parse_action(action, self.options.form):
            case Execute(statement=statement):
                return self._executed(database, statement)
            case Commit(values=values):
                self._done = True
                self._success = self._solved(record, database, values)
                reward = float(self._success)
                return StepResult(text=ACCEPTED, reward=reward, done=True, success=self._success, score=reward)
            case Malformed(answer=answer):
                self._done = self._done or self.options.strict
                return StepResult(text=answer, done=self._done, valid=False)

    def close(self) -> None:
        """Drop the episode's database."""
        database, self._database, self._record = self._database, None, None
        if database is not None:
            database.close()

    def _executed(self, database: Database, statement: str) -> StepResult:
        try:
            return StepResult(text=database.execute(statement), done=self._done)
        except StatementFailed as error:
            return StepResult(text=cut(f"Error: {error}"), done=self._done)
        except Refused as refusal:
            return StepResult(text=cut(f"Error: {refusal}"), done=self._done, valid=False)

    def _solved(self, record: Record, database: Database, values: tuple[str, ...]) -> bool:
        if not record.changes:
            return right(values, record.answers)
        try:
            return state(database, record.tables) == (record.expected or self._gold_state(record))
        except StatementFailed:  # a table is gone, or has other columns
            return False

    def _gold_state(self, record: Record) -> str:
        database = self._backend().open(record.tables)
        try:
            database.execute(record.gold)
            return state(database, record.tables)
        except (StatementFailed, Refused) as error:
            raise EnvironmentFailed(f"dbbench: the gold statement of {record.id} cannot be run: {error}") from None
        finally:
            database.close()

    def _backend(self) -> Backend:
        options = self.options
        return backend_for(options.backend, dsn_env=options.dsn_env, statement_limit_s=options.statement_limit_s)

    def _current(self) -> tuple[Record, Database]:
        if self._record is None or self._database is None:
            raise EnvironmentFailed("dbbench: no episode has begun; call reset first")
        return self._record, self._database
