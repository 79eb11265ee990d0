"""The server's calls, with what this project uses of them. Run as a program it serves, and prints its port."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import signal
from typing import Any

PERSON = {"first_name": "Ada", "last_name": "Marsh", "email": "ada@example.com", "phone_number": "5550100001"}


class Session:
    def __init__(self, task_id: str, seconds: int) -> None:
        if task_id == "broken_1":
            raise ValueError("no such task")
        self.task_id = task_id
        self.seconds = seconds
        self.answer: object = None
        self.done = False
        self.names: dict[str, Any] = {"complete": self.complete}

    def complete(self, answer: object = None) -> None:
        self.answer, self.done = answer, True

    def execute(self, code: str) -> str:
        def late(*_: object) -> None:
            raise TimeoutError(f"Execution timed out after {self.seconds} seconds.")

        printed = io.StringIO()
        try:
            compiled = compile(code, "code", "exec")
        except SyntaxError as error:
            return f"Execution failed. Traceback:\nSyntax error in line:\n{error.text}\nMessage: {error.msg}"
        signal.signal(signal.SIGALRM, late)
        signal.alarm(self.seconds)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compiled, self.names)
        except Exception as error:
            return f"Execution failed. Traceback:\n{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        return printed.getvalue() or "Execution successful."

    def evaluate(self) -> dict[str, Any]:
        wrong = [] if self.answer == 42 else [{"requirement": "answer\n  matches", "trace": "...", "label": None}]
        right = [{"requirement": name, "label": None} for name in ("answer matches", "nothing else changed")]
        return {"success": not wrong, "num_tests": 2, "passes": right[len(wrong) :], "failures": wrong}


class app(http.server.BaseHTTPRequestHandler):  # upstream's name
    session: Session | None = None

    def do_GET(self) -> None:
        self.answer(200, {"message": "Welcome"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            output = self.called(self.path.strip("/"), body)
        except Exception as error:
            self.answer(500, f"{type(error).__name__}: {error}")
        else:
            self.answer(200, {"output": output})

    def called(self, name: str, body: dict[str, Any]) -> Any:
        if name == "initialize":
            app.session = Session(body["task_id"], body["timeout_seconds"])
            told = {"instruction": f"Do {body['task_id']}.", "supervisor": PERSON, "datetime": "2023-05-18T12:00:00"}
            return {"task_id": body["task_id"], **told}
        session = app.session
        if session is None or session.task_id != body["task_id"]:
            raise LookupError("another task is active")
        match name:
            case "execute":
                return session.execute(body["code"])
            case "task_completed":
                return session.done
            case "evaluate":
                return session.evaluate()
        raise LookupError(name)

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    with http.server.HTTPServer(("127.0.0.1", 0), app) as server:
        print(server.server_port, flush=True)  # noqa: T201
        server.serve_forever()
