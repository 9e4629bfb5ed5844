"""Workers lease in batches, keep the order, keep their leases, and report outcomes."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from typing import Any

from harness.api import Api, eventually
from harness.proxy import Proxy
from harness.testee import Testee


def test_subtasks_of_a_key_run_in_order_and_others_beside_them(testee: Testee, api: Api) -> None:
    work = testee.work("slow", concurrency=8, batch=16)
    job = testee.ask("submit_many", kind="slow", count=40, keys=4)
    order = defaultdict(list)
    open_tasks: dict[str, dict[str, Any]] = {}
    # All keys have a subtask that runs before the first one ends.
    for _ in range(4):
        task = work.task()
        open_tasks[task["keys"][0]] = task
    assert len(open_tasks) == 4
    while open_tasks:
        key, task = open_tasks.popitem()
        order[key].append(task["number"])
        work.finish(task, task["payload"])
        if len(order[key]) < 10:
            task = work.task()
            assert task["keys"][0] not in open_tasks
            open_tasks[task["keys"][0]] = task
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"
    assert dict(order) == {f"k{key}": list(range(key, 40, 4)) for key in range(4)}
    results = testee.ask("results", job=job["id"])
    assert [result["result"] for result in results] == list(range(40))


def test_a_batch_of_leases_waits_in_the_worker(testee: Testee, api: Api) -> None:
    job = testee.ask("submit", kind="slow", subtasks=[{"payload": n} for n in range(6)])
    work = testee.work("slow", concurrency=1, batch=4)
    first = work.task()
    eventually(lambda: api.leases_of("w1") == 4, "four leases")
    assert work.events.empty()
    work.finish(first, "done")
    for _ in range(5):
        work.finish(work.task(), "done")
    assert testee.ask("wait", job=job["id"])["counts"]["succeeded"] == 6


def test_ends_are_reported_in_batches(behind: Testee, proxy: Proxy) -> None:
    subtasks = [{"payload": n} for n in range(64)]
    job = behind.ask("submit", kind="slow", subtasks=subtasks)
    work = behind.work("slow", concurrency=64, batch=64)
    tasks = [work.task() for _ in subtasks]
    # The ends that come while the first report has no answer have one request together.
    proxy.answer("POST /v1/leases/complete", 503, "retry-after: 1")
    before = len(proxy.requests)
    for task in tasks:
        work.finish(task, task["payload"])
    assert behind.ask("wait", job=job["id"])["counts"]["succeeded"] == 64
    reports = [one for one in proxy.requests[before:] if "/complete" in one]
    assert len(reports) < 20


def test_heartbeats_keep_a_long_task_and_those_behind_it(testee: Testee, api: Api) -> None:
    job = testee.ask("submit", kind="short", subtasks=[{"payload": n} for n in range(3)])
    work = testee.work("short", concurrency=1, batch=3)
    first = work.task()
    eventually(lambda: api.leases_of("w1") == 3, "three leases")

    def end_of_leases() -> list[str]:
        [worker] = api.get("/v1/workers")["items"]
        return [lease["expires_at"] for lease in worker["running"]]

    def is_later(than: str) -> bool:
        return min(end_of_leases()) > than

    # Each lease of one second was extended twice.
    for _ in range(2):
        latest = max(end_of_leases())
        eventually(partial(is_later, latest), "heartbeats")
    for task in (first, work.task, work.task):
        work.finish(task if isinstance(task, dict) else task(), "done")
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"
    assert [result["attempt"] for result in api.results(job["id"])] == [1, 1, 1]


def test_a_lost_lease_cancels_its_handler_and_its_outcome_is_discarded(
    behind: Testee, proxy: Proxy, api: Api
) -> None:
    job = behind.ask("submit", kind="short", payload=1)
    work = behind.work("short", concurrency=1, batch=1)
    task = work.task()
    proxy.go_down()
    # Another worker gets the subtask when the lease has expired.
    claim = {"kinds": ["short"], "wait_ms": 10_000, "worker": "w2"}
    [lease] = api.post("/v1/leases", claim)["leases"]
    assert (lease["attempt"], lease["fence"] > task["fence"]) == (2, True)
    api.post(f"/v1/leases/{lease['id']}/complete", {"result": "of w2"})
    proxy.come_back()
    assert work.cancelled() == task["lease"]
    [result] = behind.ask("results", job=job["id"])
    assert (result["attempt"], result["result"]) == (2, "of w2")
    # The worker goes on.
    behind.ask("submit", kind="short", payload=2)
    assert work.task()["payload"] == 2


def test_a_killed_job_cancels_its_handlers(testee: Testee) -> None:
    job = testee.ask("submit", kind="short", subtasks=[{"payload": n} for n in range(3)])
    work = testee.work("short", concurrency=3, batch=3)
    leases = {work.task()["lease"] for _ in range(3)}
    testee.ask("cancel", job=job["id"], mode="kill")
    assert {work.cancelled() for _ in range(3)} == leases
    ended = testee.ask("wait", job=job["id"])
    assert (ended["state"], ended["counts"]["cancelled"]) == ("cancelled", 3)


def test_the_outcome_of_a_running_subtask_counts_after_a_graceful_cancellation(
    testee: Testee,
) -> None:
    job = testee.ask("submit", kind="slow", subtasks=[{"payload": n, "key": "a"} for n in (0, 1)])
    work = testee.work("slow", concurrency=2, batch=2)
    task = work.task()
    testee.ask("cancel", job=job["id"], mode="graceful")
    work.finish(task, "done")
    ended = testee.ask("wait", job=job["id"])
    assert (ended["state"], ended["counts"]["succeeded"]) == ("cancelled", 1)


def test_progress_is_seen(testee: Testee, api: Api) -> None:
    job = testee.ask("submit", kind="slow", payload=1)
    work = testee.work("slow")
    task = work.task()

    def is_at(fraction: float) -> bool:
        return bool(api.subtask(job["id"], 0).get("progress") == fraction)

    for fraction in (0.25, 0.75):
        work.progress(task, fraction)
        eventually(partial(is_at, fraction), f"progress {fraction}")
    work.finish(task)
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"


def test_a_failure_is_tried_again(testee: Testee) -> None:
    job = testee.ask("submit", kind="slow", payload=1)
    work = testee.work("slow")
    first = work.task()
    work.fail(first, "no room")
    second = work.task()
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert second["fence"] > first["fence"]
    work.finish(second, "done")
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"


def test_a_failure_without_a_retry_is_the_last_attempt(testee: Testee) -> None:
    job = testee.ask("submit", kind="slow", payload=1)
    work = testee.work("slow")
    work.fail(work.task(), "the file is empty", retry=False)
    ended = testee.ask("wait", job=job["id"])
    assert (ended["state"], ended["error"]) == ("failed", "the file is empty")
    [result] = testee.ask("results", job=job["id"])
    assert (result["outcome"], result["attempt"]) == ("failed", 1)


def test_a_failure_may_name_the_time_of_the_next_attempt(testee: Testee) -> None:
    testee.ask("submit", kind="slow", payload=1)
    work = testee.work("slow")
    first = work.task()
    began = time.monotonic()
    work.fail(first, "later", after_ms=700)
    assert work.task()["attempt"] == 2
    # The backoff of the kind is 10 ms.
    assert time.monotonic() - began >= 0.7


def test_a_graceful_stop_returns_what_has_not_begun(testee: Testee, api: Api) -> None:
    job = testee.ask("submit", kind="slow", subtasks=[{"payload": n} for n in range(4)])
    work = testee.work("slow", concurrency=1, batch=4)
    running = work.task()
    eventually(lambda: api.leases_of("w1") == 4, "four leases")
    stopping = work.begin_stop()
    # Their leases would last for ten minutes.
    api.do("slow", 3)
    assert not stopping.future.done()
    # It leases nothing more.
    testee.ask("submit", kind="slow", payload=4)
    work.finish(running, "done")
    stopping.answer()
    assert work.events.empty()
    assert testee.ask("wait", job=job["id"])["state"] == "succeeded"
    assert [result["attempt"] for result in api.results(job["id"])] == [1, 1, 1, 1]


def test_an_idle_worker_stops_and_ends_its_claim(testee: Testee, api: Api) -> None:
    def claims() -> int:
        return sum(int(worker["waiting"]) for worker in api.get("/v1/workers")["items"])

    work = testee.work("slow")
    eventually(lambda: claims() == 1, "the worker's claim")
    work.stop()
    eventually(lambda: claims() == 0, "the end of the claim")
    # A subtask does not get lost in a connection of the worker.
    testee.ask("submit", kind="slow", payload=1)
    api.do("slow", 1)


def test_a_lost_answer_to_a_report_loses_no_result(behind: Testee, proxy: Proxy, api: Api) -> None:
    job = behind.ask("submit", kind="slow", subtasks=[{"payload": n} for n in range(3)])
    work = behind.work("slow", concurrency=3, batch=3)
    tasks = [work.task() for _ in range(3)]
    proxy.lose_answers("POST /v1/leases/complete")
    for task in tasks:
        work.finish(task, task["payload"])
    assert behind.ask("wait", job=job["id"])["state"] == "succeeded"
    results = [(result["result"], result["attempt"]) for result in api.results(job["id"])]
    assert results == [(0, 1), (1, 1), (2, 1)]
