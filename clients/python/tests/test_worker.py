"""Workers in a program: handlers of both sorts, bad results, refusals, stops and signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from keylane import Client, InvalidRequestError, Lease, Result, Subtask, Task, TaskFailure, Worker
from keylane.testing import Kinds, Server
from keylane.worker._ends import MAX_BYTES, failed


@pytest.fixture
def worker(keylane_server: Server) -> Worker:
    return Worker(keylane_server.url, name="w1")


def outcome(client: Client, payload: Any = None) -> Result:
    """Submits a subtask, and returns its outcome."""
    job = client.wait(client.submit("task", payload))
    [result] = client.results(job)
    return result


@pytest.mark.parametrize("is_async", [False, True])
def test_handlers_run_beside_each_other_and_see_their_subtask(
    client: Client, worker: Worker, is_async: bool
) -> None:
    # It opens when all are there, so that they must run at the same time.
    barrier = threading.Barrier(8)
    arrived: list[int] = []
    complete: list[asyncio.Event] = []

    @worker.kind("task")
    def handle(task: Task) -> Any:
        barrier.wait(30)
        return [task.kind, task.number, task.keys, task.attempt, task.fence > 0]

    async def handle_async(task: Task) -> Any:
        if not complete:
            complete.append(asyncio.Event())
        arrived.append(task.number)
        if len(arrived) == 8:
            complete[0].set()
        await complete[0].wait()
        return [task.kind, task.number, task.keys, task.attempt, task.fence > 0]

    if is_async:
        worker = Worker(client._servers.urls)
        worker.kind("task")(handle_async)
    with worker:
        job = client.submit("task", subtasks=[Subtask(n, key=f"k{n}") for n in range(8)])
        client.wait(job)
    results = [result.result for result in client.results(job)]
    assert results == [["task", n, [f"k{n}"], 1, True] for n in range(8)]


def test_an_object_with_an_asynchronous_method_is_a_handler(client: Client, worker: Worker) -> None:
    class Handler:
        async def __call__(self, task: Task) -> str:
            return threading.current_thread().name

    worker.kind("task")(Handler())
    with worker:
        assert outcome(client).result == "keylane-worker"


class Bad:
    """Results that the server cannot take, and what the subtask then fails with."""

    cases = (
        (object(), "a object that is no JSON"),
        (float("nan"), "a float that is no JSON"),
        ("\ud800", "a str that is no JSON"),
        ("x" * (MAX_BYTES + 1), "bytes of JSON; the server takes"),
    )


@pytest.mark.parametrize(("result", "reason"), Bad.cases, ids=["type", "nan", "text", "size"])
def test_a_result_that_is_no_json_fails_the_subtask_for_good(
    client: Client, worker: Worker, result: Any, reason: str
) -> None:
    worker.kind("task")(lambda task: result)
    with worker:
        failed = outcome(client)
    assert (failed.outcome, failed.attempt) == ("failed", 1)
    assert reason in str(failed.error)


def test_a_result_that_the_server_refuses_spoils_no_other_one(
    client: Client, keylane_server: Server
) -> None:
    worker = Worker(keylane_server.url, concurrency=16)
    barrier = threading.Barrier(16)

    @worker.kind("task")
    def handle(task: Task) -> Any:
        barrier.wait(30)
        # More digits than the server's JSON takes as a number.
        return 10**400 if task.number == 7 else task.number

    with worker:
        job = client.wait(client.submit("task", subtasks=[Subtask(n) for n in range(16)]))
    assert (job.counts.succeeded, job.counts.failed) in [(15, 1), (16, 0)]
    others = [result.result for result in client.results(job) if result.number != 7]
    assert others == [n for n in range(16) if n != 7]


def test_a_failure_is_tried_again_and_may_be_the_last(client: Client, worker: Worker) -> None:
    @worker.kind("task")
    def handle(task: Task) -> Any:
        if task.payload == "for good":
            raise TaskFailure("no such file", retry=False)
        if task.attempt == 1:
            raise TaskFailure("not now", after=0.01)
        return "done"

    with worker:
        second, last = outcome(client, "later"), outcome(client, "for good")
    assert (second.result, second.attempt) == ("done", 2)
    assert (last.error, last.attempt) == ("no such file", 1)


def test_any_text_can_be_an_error() -> None:
    at = datetime(2026, 1, 31, tzinfo=timezone.utc)
    lease = Lease("lease_1", "job_1", "task", 0, 1, 1, None, at)
    end = failed(lease, TaskFailure("half \ud800 " + "x" * 10_000), "log \udfff")
    body = json.loads(end.item)
    assert body["error"].startswith("half ? xxx")
    assert len(body["error"]) <= 8192
    assert body["log"] == "log ?"


def test_stop_iteration_is_a_failure_as_any_other(client: Client, worker: Worker) -> None:
    @worker.kind("task")
    def handle(task: Task) -> Any:
        return next(iter(()))

    with worker:
        assert "StopIteration" in str(outcome(client).error)


def test_a_kind_that_is_not_for_workers_ends_the_worker(client: Client, worker: Worker) -> None:
    worker.kind("echo")(lambda task: None)
    with pytest.raises(InvalidRequestError, match="`echo` is not for remote workers"):
        worker.run()


def test_a_wrong_worker_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="concurrency is 0"):
        Worker(concurrency=0)
    with pytest.raises(ValueError, match="max_leases is 2, below concurrency"):
        Worker(concurrency=8, max_leases=2)
    with pytest.raises(ValueError, match="no handler"):
        Worker().run()
    worker = Worker()
    worker.kind("a", "b")(lambda task: None)
    with pytest.raises(ValueError, match="'b' has a handler already"):
        worker.kind("b")(lambda task: None)


def test_progress_is_checked(client: Client, worker: Worker) -> None:
    @worker.kind("task")
    def handle(task: Task) -> None:
        task.progress(1.5)

    with worker:
        assert "give a number from 0 to 1" in str(outcome(client).error)


def test_a_stop_before_the_start_ends_the_worker(worker: Worker) -> None:
    worker.kind("task")(lambda task: None)
    worker.stop()
    worker.run()


def test_handlers_are_cancelled_when_the_grace_is_over(
    client: Client, keylane_server: Server
) -> None:
    begun = threading.Semaphore(0)
    reasons: list[object] = []
    worker = Worker(keylane_server.url, grace=0.05)

    @worker.kind("task")
    def handle(task: Task) -> str:
        begun.release()
        task.wait_cancelled()
        reasons.append(task.cancel_reason)
        task.check_cancelled()
        return "not reached"

    @worker.kind("other")
    async def handle_async(task: Task) -> str:
        begun.release()
        try:
            await asyncio.sleep(1000)
        finally:
            reasons.append(task.cancel_reason)
        return "not reached"

    jobs = [client.submit(kind, 1) for kind in ("task", "other")]
    with worker:
        assert begun.acquire(timeout=30)
        assert begun.acquire(timeout=30)
    assert reasons == ["stopping", "stopping"]
    # The subtasks were given back as failures that are tried again at once.
    again = Worker(keylane_server.url)
    again.kind("task", "other")(lambda task: task.attempt)
    with again:
        for job in jobs:
            client.wait(job)
            assert [result.result for result in client.results(job)] == [2]


@pytest.fixture
def keylane_kinds(keylane_kinds: Kinds) -> Kinds:
    return {**keylane_kinds, "other": {"lease": "1m", "attempts": 2, "backoff": "10ms..10ms"}}


PROGRAM = """
import sys
import threading
from keylane import Worker

worker = Worker(sys.argv[1], concurrency=1, max_leases=3)

@worker.kind("task")
def handle(task):
    print("begun", flush=True)
    if task.payload == "ends":
        sys.stdin.readline()
        return "done"
    threading.Event().wait()

worker.run()
print("stopped", flush=True)
"""


@pytest.fixture
def process(keylane_server: Server, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(program), keylane_server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_stops_the_worker_gracefully(
    client: Client, process: subprocess.Popen[str]
) -> None:
    assert process.stdout is not None
    assert process.stdin is not None
    job = client.submit("task", "ends")
    behind = client.submit("task", "ends")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    # The subtask that had not begun is free again, and the running one may end.
    returned = Worker(client._servers.urls)
    returned.kind("task")(lambda task: task.attempt)
    with returned:
        client.wait(behind)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "stopped\n"
    assert process.wait(30) == 0
    assert [result.result for result in client.results(client.wait(job))] == ["done"]
    assert [result.result for result in client.results(behind)] == [1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_signal_leaves_a_handler_that_does_not_end(
    client: Client, process: subprocess.Popen[str]
) -> None:
    assert process.stdout is not None
    job = client.submit("task", "hangs")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    # The second signal counts when the first one has been handled: the worker leases nothing more.
    wait_for_no_claim(client)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopped\n"
    assert process.wait(30) == 0
    again = Worker(client._servers.urls)
    again.kind("task")(lambda task: task.attempt)
    with again:
        assert client.wait(job).counts.succeeded == 1


def wait_for_no_claim(client: Client) -> None:
    def waiting() -> int:
        url = f"{client._servers.current}/v1/workers"
        items = client._http.get(url).json()["items"]
        return sum(int(item["waiting"]) for item in items)

    while waiting():
        time.sleep(0.01)


def test_names_and_addresses_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYLANE_SERVER", "http://a:1,http://b:2")
    worker = Worker()
    assert worker._urls == ("http://a:1", "http://b:2")
    assert str(os.getpid()) in worker._settings.name
