"""The client at a real server: what the conformance suite does not ask of every client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from keylane import (
    AsyncClient,
    Client,
    ConflictError,
    GoneError,
    InvalidRequestError,
    Job,
    JobFailedError,
    NotFoundError,
    Subtask,
    Task,
    TaskFailure,
    Worker,
)
from keylane.testing import Server


def worker_of(server: Server) -> Worker:
    """Returns a worker that returns payloads, and fails for the payload `fail`."""
    worker = Worker(server.url, max_leases=64)

    @worker.kind("task")
    async def handle(task: Task) -> Any:
        if task.payload == "fail":
            raise TaskFailure("as told", retry=False)
        return task.payload

    return worker


def test_a_job_with_an_id_is_one_job_under_that_name(client: Client) -> None:
    jobs = [client.submit("echo", {"n": 1}, id="order-4711") for _ in range(2)]
    assert jobs[0].id == jobs[1].id
    assert client.wait("order-4711").client_id == "order-4711"
    with pytest.raises(ConflictError):
        client.submit("echo", {"n": 2}, id="order-4711")
    with pytest.raises(ValueError, match="both"):
        client.submit("echo", id="a", idempotency_key="b")


def test_a_payload_may_be_none_and_options_are_converted(client: Client) -> None:
    at = datetime.now(timezone.utc) + timedelta(hours=1)
    job = client.submit("task", None, run_at=at, expires_ms=timedelta(days=1), labels={"a": "b"})
    assert (job.state, job.labels) == ("scheduled", {"a": "b"})
    assert job.run_at is not None
    assert abs(job.run_at - at) < timedelta(milliseconds=1)
    assert client.subtask(job, 0).payload is None


def test_a_submission_can_wait_for_the_end(client: Client) -> None:
    assert client.submit("echo", 1, wait=30).state == "succeeded"


def test_subtasks_come_from_lists_iterators_and_data_classes(client: Client) -> None:
    listed = client.submit("task", subtasks=[Subtask(1, key="a"), {"payload": 2, "key": "b"}])
    streamed = client.submit("task", subtasks=(Subtask(n) for n in range(3)), name="streamed")
    assert (listed.counts.total, streamed.counts.total, streamed.name) == (2, 3, "streamed")
    assert [view.keys for view in client.subtasks(listed)] == [["a"], ["b"]]
    assert [view.number for view in client.subtasks(listed, key="b")] == [1]


def test_an_iterator_that_raises_submits_nothing(client: Client) -> None:
    def broken() -> Iterator[Subtask]:
        for number in range(20_000):
            yield Subtask(number)
        raise LookupError("the file ends early")

    with pytest.raises(LookupError, match="ends early"):
        client.submit("task", subtasks=broken())
    with pytest.raises(TypeError, match="not JSON serializable"):
        client.submit("task", subtasks=[Subtask(1), Subtask(object())])
    assert list(client.jobs()) == []


def test_a_refused_line_of_a_stream_is_named(client: Client) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        client.submit("task", subtasks=(item for item in [{"payload": 1}, {"ky": 2}]))
    assert "unknown field `ky`" in refused.value.detail
    assert [place.pointer for place in refused.value.errors] == ["line 3"]


def test_a_batch_is_atomic_or_refuses_single_jobs(client: Client) -> None:
    good, bad = {"kind": "task", "payload": 1}, {"kind": "task", "payload": 1, "weight": 0}
    with pytest.raises(InvalidRequestError):
        client.submit_batch([good, bad])
    accepted, refused = client.submit_batch([good, bad], atomic=False)
    assert isinstance(accepted, Job)
    assert isinstance(refused, InvalidRequestError)
    assert [job.id for job in client.jobs(kind="task")] == [accepted.id]


def test_jobs_are_listed_by_page_and_filter(client: Client) -> None:
    jobs = [{"kind": "task", "payload": n, "labels": {"n": str(n % 2)}} for n in range(1000)]
    client.submit_batch(jobs)
    client.submit_batch(jobs[:5])
    assert sum(1 for _ in client.jobs(state=["queued", "running"])) == 1005
    assert sum(1 for _ in client.jobs(label="n:1")) == 502


def test_waiting_has_a_timeout_and_reasons(client: Client) -> None:
    job = client.submit("task", 1)
    with pytest.raises(TimeoutError, match="queued after 1 seconds"):
        client.wait(job, timeout=1)
    assert [reason.reason for reason in client.explain(job)] == ["no_worker"]


def test_a_failed_job_is_checked_retried_and_deleted(
    client: Client, keylane_server: Server
) -> None:
    with worker_of(keylane_server):
        job = client.wait(client.submit("task", subtasks=[Subtask("fail"), Subtask(1)]))
        with pytest.raises(JobFailedError, match="ended as failed: as told"):
            job.check()
        client.retry(job, subtasks=[{"number": 0, "payload": "better"}])
        assert client.wait(job).check().counts.succeeded == 2
    assert [result.result for result in client.results(job, order="submit")] == ["better", 1]
    client.delete(job)
    with pytest.raises(GoneError):
        client.job(job)


def test_results_are_followed_until_the_job_ends(client: Client, keylane_server: Server) -> None:
    job = client.submit("task", subtasks=[Subtask(n) for n in range(100)])
    seen = []
    with worker_of(keylane_server):
        for result in client.results(job, follow=True):
            seen.append(result.result)
    assert sorted(seen) == list(range(100))


def test_a_job_is_paused_resumed_changed_and_cancelled(client: Client) -> None:
    job = client.submit("task", 1)
    assert client.pause(job).state == "paused"
    assert client.resume(job).state == "queued"
    changed = client.update(client.job(job), name="other", weight=3)
    assert (changed.name, changed.weight) == ("other", 3)
    with pytest.raises(ConflictError) as refused:
        client.update(job.id, version=1, name="third")
    assert refused.value.code == "stale"
    client.cancel(job, reason="too old")
    assert client.wait(job).state == "cancelled"
    with pytest.raises(NotFoundError):
        client.job("job_without")


def test_logs_of_attempts_are_read(client: Client, keylane_server: Server) -> None:
    worker = Worker(keylane_server.url)

    @worker.kind("task")
    def handle(task: Task) -> None:
        task.log(f"attempt {task.attempt} of {task.job}/{task.number}")
        raise RuntimeError("no room")

    with worker:
        job = client.wait(client.submit("task", 1))
    assert job.error == "RuntimeError: no room"
    logs = client.logs(job)
    assert [log.attempt for log in logs] == [1, 2]
    assert logs[1].text.startswith(f"attempt 2 of {job.id}/0\nTraceback")


def test_all_events_are_followed(client: Client) -> None:
    kinds: list[str] = []
    connected = threading.Event()

    def follow() -> None:
        for event in client.events():
            kinds.append(event.event)
            connected.set()
            if event.event == "job_ended":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    # The stream has no beginning that could be waited for: jobs are submitted until it shows one.
    while not connected.is_set():
        client.submit("echo", 1, wait=30)
    thread.join(30)
    assert not thread.is_alive()
    assert kinds[-1] == "job_ended"


def test_keys_are_paused_and_read(client: Client) -> None:
    job = client.submit("task", 1, key="..")
    assert client.keys.pause("..").state == "paused"
    key = client.keys.get("..")
    assert key is not None
    assert key.head is not None
    assert (key.length, key.head.job) == (1, job.id)
    assert [one.key for one in client.keys.list(sort="length", limit=5)] == [".."]
    assert client.keys.resume("..").state == "open"
    assert client.keys.get("a") is None
    with pytest.raises(ConflictError):
        client.keys.retry_head("..")
    client.keys.skip_head("..")
    client.wait(job)
    assert [result.outcome for result in client.results(job)] == ["skipped"]


def test_kinds_are_paused_changed_and_reset(client: Client) -> None:
    paused = client.kinds.pause("echo", reason="the disk is replaced")
    assert (paused.paused, paused.pause_reason) == (True, "the disk is replaced")
    assert not client.kinds.resume("echo").paused
    changed = client.kinds.change("echo", concurrency=2, timeout_ms=timedelta(seconds=3))
    assert (changed.concurrency, changed.timeout_ms) == (2, 3000)
    assert sorted(client.kinds.get("echo").changed) == ["concurrency", "timeout_ms"]
    assert client.kinds.reset("echo", settings=["concurrency"]).changed == ["timeout_ms"]
    assert client.kinds.reset("echo").changed == []


def test_schedules_are_put_run_and_deleted(client: Client) -> None:
    job = {"kind": "echo", "payload": 1, "expires_ms": timedelta(hours=1)}
    made = client.schedules.put("report", cron="@daily", job=job, time_zone="Europe/Berlin")
    assert (made.time_zone, len(made.next) > 0) == ("Europe/Berlin", True)
    assert client.schedules.pause("report").paused
    ran = client.schedules.run("report")
    assert client.wait(ran).labels["schedule"] == "report"
    assert not client.schedules.resume("report").paused
    assert client.schedules.get("report").last_job == ran.id
    assert [one.name for one in client.schedules.list()] == ["report"]
    client.schedules.delete("report")
    assert list(client.schedules.list()) == []


def test_the_asynchronous_client_streams_and_follows(keylane_server: Server) -> None:
    async def subtasks() -> AsyncIterator[Subtask]:
        for number in range(1500):
            yield Subtask(number, key=f"k{number}")

    async def run() -> None:
        async with AsyncClient(keylane_server.url) as client, worker_of(keylane_server):
            job = await client.submit("task", subtasks=subtasks())
            followed = [result.result async for result in client.results(job, follow=True)]
            assert sorted(followed) == list(range(1500))
            ordered = [result.number async for result in client.results(job)]
            assert ordered == list(range(1500))
            events = [event async for event in client.events(job)]
            assert events[-1].event == "job_ended"
            assert [one.id async for one in client.jobs()] == [job.id]
            assert await client.version()

    asyncio.run(run())


def test_an_http_client_of_the_program_is_used_and_left_open(keylane_server: Server) -> None:
    seen = []
    with httpx.Client(event_hooks={"request": [lambda request: seen.append(request)]}) as http:
        with Client(keylane_server.url, http=http, token="secret") as client:
            client.kinds.list()
        assert not http.is_closed
    assert seen[0].headers["authorization"] == "Bearer secret"
