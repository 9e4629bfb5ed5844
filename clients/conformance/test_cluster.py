"""Two servers share a store in PostgreSQL. When one is killed, clients and workers go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from keylane.testing import Kinds, Server

from conftest import StartTestee
from harness.api import Api, eventually


def is_alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez").is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def cluster(database_url: str, keylane_kinds: Kinds, tmp_path: Path) -> Iterator[list[Server]]:
    """The server that owns the store, and one that waits."""
    servers = []
    try:
        for number in range(2):
            folder = tmp_path / str(number)
            settings = {"store": database_url, "data_folder": str(folder)}
            servers.append(Server(keylane_kinds, settings))
        owner, other = servers
        owner.start()
        other.start(wait=False)
        eventually(lambda: is_alive(other.url), "the other server")
        yield servers
    finally:
        for server in servers:
            server.close()


def test_the_server_that_runs_the_jobs_is_found(start: StartTestee, cluster: list[Server]) -> None:
    owner, other = cluster
    testee = start(other.url, owner.url)
    job = testee.ask("submit", kind="echo", payload=1)
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"


def test_everything_goes_on_at_the_other_server(start: StartTestee, cluster: list[Server]) -> None:
    owner, other = cluster
    testee = start(owner.url, other.url)
    work = testee.work("slow", concurrency=4, batch=4)
    job = testee.ask("submit", kind="slow", subtasks=[{"payload": n, "key": "a"} for n in (0, 1)])
    follow = testee.begin("events", job=job["id"])
    waiting = testee.begin("wait", job=job["id"])
    running = work.task()
    follow.event("job-event")
    owner.kill()
    submitted = testee.begin("submit", kind="slow", payload="later")
    work.finish(running, "done")
    later = submitted.answer()
    ends = [work.task(), work.task()]
    assert {task["job"] for task in ends} == {job["id"], later["id"]}
    for task in ends:
        work.finish(task, "done")
    assert waiting.answer()["state"] == "succeeded"
    follow.answer()
    assert testee.ask("wait", job=later["id"])["state"] == "succeeded"
    results = Api(other.url).results(job["id"])
    assert [(result["number"], result["attempt"]) for result in results] == [(0, 1), (1, 1)]


def test_a_stopped_owner_comes_back_as_the_other_one(
    start: StartTestee, cluster: list[Server]
) -> None:
    owner, other = cluster
    testee = start(owner.url, other.url)
    first = testee.ask("submit", kind="slow", payload=1)
    owner.stop()
    owner.start(wait=False)
    work = testee.work("slow")
    work.finish(work.task(), "done")
    assert testee.ask("wait", job=first["id"])["state"] == "succeeded"
    assert other.running
