"""What the policy is told first. In AgentBench's sense and order, in our words; `history` prompts have their own."""

from __future__ import annotations

from envs.dbbench.actions import Form
from envs.dbbench.records import Record

_TASK = "You work on a MySQL database by SQL, to answer a question about it or to change it."
_TRUTH = (
    "Give the final answer only when you are sure: it must be exactly right, with values as the database holds them. "
    "If you were to change the database, make the change first; the answer may then be anything.\n"
    "What you are shown is the server's raw result."
)
_TEXT = f"""{_TASK}
In every turn, explain what you are thinking, then do one of two things.
To run one SQL statement, written on one line, end with:
Action: Operation
```sql
SELECT * FROM table WHERE condition;
```
Only the first block is run, and only one statement at a time; you are then shown its result.
To give your final answer, end with:
Action: Answer
Final Answer: ["ANSWER1", "ANSWER2"]
{_TRUTH}
A reply in neither form counts as a failed turn.
"""
_TOOL = f"""{_TASK}
In every turn, explain what you are thinking, then call one of two tools by writing a JSON object.
To run one SQL statement, written on one line:
{{"name": "execute_sql", "arguments": {{"query": "SELECT * FROM table WHERE condition"}}}}
To give your final answer:
{{"name": "commit_final_answer", "arguments": {{"answers": ["ANSWER1", "ANSWER2"]}}}}
Only the first call is carried out, and only one statement at a time; you are then shown its result.
{_TRUTH}
A reply without a call counts as a failed turn.
"""


def first_message(record: Record, form: Form, *, instructions: bool) -> str:
    """The task, after the instructions if these are wanted."""
    parts = [(_TEXT if form == "text" else _TOOL)] if instructions else []
    if record.evidence:
        parts.append(f"Evidence about the question: {record.evidence}")
    if record.about:
        parts.append(f"Additional table information about the question: {record.about}")
    parts.append(f"Question: {record.question}")
    return "\n".join(parts)
