"""Sessions of applications with a database, by the drivers of Python and Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Protocol

import psycopg

NODE_SESSION = Path(__file__).parents[2] / "typescript" / "testee" / "sql-session.mjs"


class Session(Protocol):
    def run(self, sql: str) -> None:
        """Executes a statement without rows."""

    def submit(self, kind: str, payload: Any, key: str) -> str:
        """Submits a job, and returns its name."""

    def close(self) -> None: ...


class PythonSession:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def run(self, sql: str) -> None:
        self._connection.execute(sql.encode())

    def submit(self, kind: str, payload: Any, key: str) -> str:
        sql = "SELECT keylane.submit(%s, %s::json, %s)"
        row = self._connection.execute(sql, (kind, json.dumps(payload), key)).fetchone()
        assert row is not None
        return str(row[0])

    def close(self) -> None:
        self._connection.close()


class NodeSession:
    def __init__(self, url: str) -> None:
        pipe = subprocess.PIPE
        command = ["node", str(NODE_SESSION), url]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def run(self, sql: str) -> None:
        self._ask({"sql": sql, "parameters": []})

    def submit(self, kind: str, payload: Any, key: str) -> str:
        sql = "SELECT keylane.submit($1, $2::json, $3)"
        rows = self._ask({"sql": sql, "parameters": [kind, json.dumps(payload), key]})
        return str(rows[0]["submit"])

    def _ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
