"""A server that stops or is killed loses no work, and workers go on without help."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from keylane.testing import Server

from harness.api import Api
from harness.testee import Testee, Work


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_running_subtask_goes_on_over_a_restart(
    testee: Testee, server: Server, api: Api, end: str
) -> None:
    job = testee.ask("submit", kind="slow", subtasks=[{"payload": n, "key": "a"} for n in (0, 1)])
    work = testee.work("slow")
    task = work.task()
    # A stop waits for leases, so it must not wait for the handler of this test.
    stopping = threading.Thread(target=server.kill if end == "kill" else server.stop)
    stopping.start()
    if end == "stop":
        server.wait_output("stopping")
    else:
        stopping.join()
    work.finish(task, "done")
    stopping.join()
    server.start()
    second = work.task()
    assert (second["number"], second["attempt"]) == (1, 1)
    work.finish(second, "done")
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"
    assert [result["attempt"] for result in api.results(job["id"])] == [1, 1]


def test_kills_during_work_lose_nothing_and_end_nothing_twice(
    testee: Testee, server: Server, api: Api
) -> None:
    count = 120
    work = testee.work("short", concurrency=8, batch=16)
    job = testee.ask("submit_many", kind="short", count=count, keys=10)
    begun: Counter[tuple[int, int]] = Counter()
    ended: list[int] = []
    enough = threading.Event()
    finisher = threading.Thread(target=finish_all, args=(work, begun, ended, enough))
    finisher.start()
    for _ in range(2):
        assert enough.wait(30)
        enough.clear()
        server.kill()
        server.start()
    waited = testee.ask("wait", job=job["id"])
    assert waited["state"] == "succeeded", waited
    work.stop()
    work.events.put({"event": "end"})
    finisher.join()
    results = api.results(job["id"])
    assert [result["number"] for result in results] == list(range(count))
    assert all(result["result"] == result["number"] for result in results)
    # An attempt is begun once: a subtask that is done again has a new one.
    assert set(begun.values()) == {1}


def finish_all(
    work: Work, begun: Counter[tuple[int, int]], ended: list[int], enough: threading.Event
) -> None:
    while True:
        event: dict[str, Any] = work.events.get()
        if event["event"] == "end":
            return
        if event["event"] == "task":
            task = event["task"]
            begun[task["number"], task["attempt"]] += 1
            work.finish(task, task["payload"])
            ended.append(task["number"])
            if len(ended) % 30 == 0:
                enough.set()
