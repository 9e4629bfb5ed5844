"""Jobs that applications submit by SQL come with their transactions, once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from keylane.testing import Kinds, Server

from harness.api import Api
from harness.sql import NodeSession, PythonSession, Session

Connect = Callable[[], Session]


@pytest.fixture
def sql_server(database_url: str, keylane_kinds: Kinds, tmp_path: Path) -> Iterator[Server]:
    """A server with its store in the database."""
    settings = {"store": database_url, "data_folder": str(tmp_path / "node")}
    with Server(keylane_kinds, settings) as server:
        yield server


@pytest.fixture(params=[PythonSession, NodeSession], ids=["python", "node"])
def connect(
    request: pytest.FixtureRequest, sql_server: Server, database_url: str
) -> Iterator[Connect]:
    sessions: list[Session] = []

    def connect() -> Session:
        sessions.append(request.param(database_url))
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()


def work(api: Api, count: int) -> list[int]:
    """Does subtasks of the kind `slow`, and returns their payloads in the order of their starts."""
    payloads: list[int] = []
    claim = {"kinds": ["slow"], "max": 1, "wait_ms": 30_000, "worker": "suite"}
    while len(payloads) < count:
        for lease in api.post("/v1/leases", claim)["leases"]:
            payloads.append(lease["payload"])
            api.post(f"/v1/leases/{lease['id']}/complete")
    return payloads


def test_jobs_come_with_their_transactions(connect: Connect, sql_server: Server) -> None:
    api = Api(sql_server.url)
    session, slow = connect(), connect()
    slow.run("BEGIN")
    slow.submit("slow", 5, "k")
    session.run("BEGIN")
    session.submit("slow", 1, "k")
    session.run("ROLLBACK")
    session.run("BEGIN")
    session.submit("slow", 2, "k")
    session.run("SAVEPOINT here")
    session.submit("slow", 3, "k")
    session.run("ROLLBACK TO SAVEPOINT here")
    name = session.submit("slow", 4, "k")
    session.run("COMMIT")
    # A transaction that stays open delays no other one.
    assert work(api, 2) == [2, 4]
    assert api.get(f"/v1/jobs/{name}")["id"].startswith("job_")
    slow.run("COMMIT")
    session.submit("slow", 6, "k")
    assert work(api, 2) == [5, 6]
    assert len(api.jobs()) == 4


def test_concurrent_transactions_lose_and_repeat_nothing(
    connect: Connect, sql_server: Server
) -> None:
    sessions = [connect() for _ in range(4)]

    def submit(number: int) -> None:
        for part in range(5):
            sessions[number].run("BEGIN")
            for place in range(5):
                sessions[number].submit("slow", number * 100 + part * 5 + place, f"k{number}")
            sessions[number].run("ROLLBACK" if part == 2 else "COMMIT")

    with ThreadPoolExecutor() as threads:
        list(threads.map(submit, range(4)))
    done = work(Api(sql_server.url), 80)
    for number in range(4):
        kept = [n for n in range(25) if n // 5 != 2]
        assert [n - number * 100 for n in done if n // 100 == number] == kept
