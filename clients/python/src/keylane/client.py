"""Client for programs with threads. `aio` has its twin for asyncio."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

import httpx

from . import _calls
from ._calls import UNSET, CancelMode, JobOptions, Millis, ResultOrder, SubtaskLike
from ._decode import decode
from ._request import Request, is_success, reads, refusal
from ._retry import Attempts, Servers
from ._sse import SILENCE, EventPlace, Parser
from ._upload import Upload
from .errors import ApiError, DamagedDataError, KeylaneError
from .models import (
    AttemptLog,
    DamagedRow,
    Event,
    Job,
    JobLike,
    Key,
    Kind,
    Reason,
    Result,
    Schedule,
    SubtaskView,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
# Lists with more subtasks are streamed, so that memory is bounded on both sides.
MAX_INLINE = 1000
# The server answers when the last subtask of an upload is on its disk.
UPLOAD_TIMEOUT = 300.0


class Client:
    """Client of `keylane serve`. Threads may share it.

    `servers` is a base URL, or several of one cluster: a list, or a text with commas. Default: the
    environment variable `KEYLANE_SERVER`, or http://127.0.0.1:7420. `token` has the default
    `KEYLANE_TOKEN`. Failed requests are sent again for `retry_for` seconds; `timeout` is the time
    for one answer. `http` is an `httpx.Client` with settings of your own, such as certificates.
    """

    def __init__(
        self,
        servers: Union[str, Sequence[str], None] = None,
        *,
        token: Optional[str] = None,
        timeout: float = 60.0,
        retry_for: float = 60.0,
        http: Optional[httpx.Client] = None,
    ) -> None:
        self._servers = Servers(servers)
        self._headers = headers_of(token)
        self._timeout = timeout
        self._retry_for = retry_for
        self._owns_http = http is None
        self._http = http or httpx.Client()
        self.keys = Keys(self)
        self.kinds = Kinds(self)
        self.schedules = Schedules(self)

    def close(self) -> None:
        """Closes the connections."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    # Submit

    def submit(
        self,
        kind: str,
        payload: Any = UNSET,
        *,
        key: Optional[str] = None,
        keys: Optional[Sequence[str]] = None,
        shared_keys: Optional[Sequence[str]] = None,
        latest: Optional[bool] = None,
        subtasks: Optional[Iterable[SubtaskLike]] = None,
        id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        wait: Optional[float] = None,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submits a job of one payload, or of many `subtasks`. It is on the server's disk then.

        `subtasks` may be an iterator of any length; it is streamed. If it raises, nothing is
        submitted. With `id` the job has that name; otherwise `idempotency_key`, by default a new
        one, makes a repeated submission count once. `wait` waits up to 50 seconds for the end.
        """
        work = {"payload": payload, "key": key, "keys": keys, "shared_keys": shared_keys}
        body = _calls.job_body(kind, {**work, "latest": latest}, options)
        target = _calls.target(id, idempotency_key, wait, traceparent, tracestate)
        if subtasks is None:
            return self._send(_calls.submit(target, body))
        if isinstance(subtasks, (list, tuple)) and len(subtasks) <= MAX_INLINE:
            listed = [_calls.subtask_body(subtask) for subtask in subtasks]
            return self._send(_calls.submit(target, {**body, "subtasks": listed}))
        with contextlib.closing(Upload(body, subtasks)) as upload:
            return self._upload(target, upload)

    def submit_batch(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        atomic: bool = True,
        idempotency_key: Optional[str] = None,
    ) -> list[Union[Job, KeylaneError]]:
        """Submits up to 1000 jobs, each a mapping as the body of a submission in the API.

        With `atomic` all are accepted, or an error is raised. Otherwise the list has an error in
        place of each job that was refused.
        """
        return self._send(_calls.submit_batch(jobs, atomic, idempotency_key))

    # Read

    def job(self, job: JobLike) -> Job:
        """Returns the present state of a job."""
        return self._send(_calls.job(job))

    def jobs(
        self,
        *,
        state: Union[str, Sequence[str], None] = None,
        kind: Optional[str] = None,
        label: Optional[str] = None,
        tenant: Optional[str] = None,
        search: Optional[str] = None,
    ) -> Iterator[Job]:
        """Iterates over jobs, the newest first."""
        query = _calls.jobs_query(state, kind, label, tenant, search)
        for item in self._items("/v1/jobs", query):
            yield decode(Job, item)

    def wait(self, job: JobLike, timeout: Optional[float] = None) -> Job:
        """Waits until a job has ended, and returns it.

        Raises a `TimeoutError` after `timeout` seconds. `Job.check` raises an error for a job that
        has not succeeded.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        now = self.job(job)
        while not now.ended:
            left = _calls.MAX_WAIT if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {now.id} is {now.state} after {timeout} seconds")
            changed = self._send(_calls.job_after(job, now.version, left))
            now = changed or now
        return now

    def results(
        self, job: JobLike, *, order: ResultOrder = "submit", follow: bool = False
    ) -> Iterator[Result]:
        """Iterates over the results of the subtasks that have ended.

        With `follow` it goes on until the job has ended, in the order of completion. Results are
        read in pages, so memory is bounded, and a lost connection is no interruption.
        """
        if follow:
            yield from self._followed(job)
            return
        query = {"order": order, "limit": _calls.PAGE}
        for item in self._items(_calls.results_path(job), query):
            yield decode(Result, item)

    def subtasks(
        self, job: JobLike, *, state: Optional[str] = None, key: Optional[str] = None
    ) -> Iterator[SubtaskView]:
        """Iterates over the subtasks of a job."""
        query = {"state": state, "key": key, "limit": _calls.PAGE}
        for item in self._items(_calls.subtasks_path(job), query):
            yield decode(SubtaskView, item)

    def subtask(self, job: JobLike, number: int) -> SubtaskView:
        """Returns a subtask, with its payload, its progress and its outcome."""
        return self._send(_calls.subtask(job, number))

    def logs(self, job: JobLike, number: int = 0) -> list[AttemptLog]:
        """Returns the logs of a subtask's attempts."""
        return self._send(_calls.logs(job, number))

    def explain(self, job: JobLike) -> list[Reason]:
        """Returns the reasons why a job waits, the most frequent first."""
        return self._send(_calls.explain(job))

    def events(self, job: Optional[JobLike] = None) -> Iterator[Event]:
        """Iterates over the events of a job until it has ended, or over all events without end.

        It reconnects by itself, and continues behind the last event. The event `reset` says that
        the server no longer has some events: read the state again.
        """
        place = EventPlace(of_job=job is not None)
        attempts = Attempts(self._servers, self._retry_for)
        path = _calls.events_path(job)
        while not place.ended:
            parser = Parser()
            try:
                for event in self._stream(attempts, path, place, parser):
                    attempts.succeeded()
                    yield event
                pause = parser.retry or 1.0
            except httpx.TransportError as error:
                pause = attempts.after_error(error)
            except ApiError as error:
                pause = attempts.after_refusal(error)
            if not place.ended:
                time.sleep(pause)

    # Control

    def cancel(
        self, job: JobLike, *, mode: CancelMode = "graceful", reason: Optional[str] = None
    ) -> Job:
        """Cancels a job. What runs may finish; with `kill` it ends at once."""
        return self._send(_calls.cancel(job, mode, reason))

    def pause(self, job: JobLike) -> Job:
        """Pauses a job: nothing of it starts."""
        return self._send(_calls.control(job, "pause"))

    def resume(self, job: JobLike) -> Job:
        """Resumes a paused job."""
        return self._send(_calls.control(job, "resume"))

    def retry(
        self,
        job: JobLike,
        *,
        only: Literal["failed", "unsuccessful"] = "failed",
        subtasks: Optional[Sequence[Union[int, Mapping[str, Any]]]] = None,
    ) -> Job:
        """Gives all attempts again to subtasks of an ended job.

        `subtasks` chooses some by number, or as `{"number": 3, "payload": …}` with a new payload.
        """
        return self._send(_calls.retry(job, only, subtasks))

    def update(
        self,
        job: JobLike,
        *,
        version: Optional[int] = None,
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        weight: Optional[int] = None,
    ) -> Job:
        """Changes a job, unless it has changed since `version`, by default that of `job`."""
        given = {"name": name, "labels": labels, "weight": weight}
        changes = {member: value for member, value in given.items() if value is not None}
        return self._send(_calls.update(job, version, changes))

    def delete(self, job: JobLike) -> None:
        """Removes an ended job and its results."""
        self._send(_calls.delete(job))

    def version(self) -> str:
        """Returns the version of the server."""
        return self._send(_calls.version())

    # The wire

    def _send(self, request: Request[T]) -> T:
        attempts = Attempts(self._servers, self._retry_for)
        while True:
            try:
                response = self._http.request(
                    request.method,
                    attempts.url + request.path,
                    headers={**self._headers, **request.headers},
                    content=request.body,
                    timeout=timeout_of(self._timeout + request.wait),
                )
            except httpx.TransportError as error:
                pause = attempts.after_error(error)
            else:
                if is_success(response):
                    return request.read(response)
                pause = attempts.after_refusal(refusal(response))
            time.sleep(pause)

    def _upload(self, target: _calls.Target, upload: Upload) -> Job:
        attempts = Attempts(self._servers, self._retry_for)
        timeout = timeout_of(max(self._timeout, UPLOAD_TIMEOUT) + target.wait)
        headers = {**self._headers, **target.headers, "content-type": "application/x-ndjson"}
        while True:
            try:
                response = self._http.request(
                    target.method,
                    attempts.url + target.path,
                    headers=headers,
                    content=upload.blocks(),
                    timeout=timeout,
                )
            except Exception as error:
                if upload.error is not None:
                    raise upload.error from None
                if not isinstance(error, httpx.TransportError):
                    raise
                pause = attempts.after_error(error)
            else:
                if is_success(response):
                    return reads(Job)(response)
                pause = attempts.after_refusal(refusal(response))
            time.sleep(pause)

    def _items(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Iterates over the items of all pages; then raises an error if some were damaged."""
        damaged: list[DamagedRow] = []
        cursor: Optional[str] = None
        while True:
            page = self._send(_calls.page(path, query, cursor))
            yield from page.items
            damaged += page.damaged
            # The last page of an unfinished job says where more will come.
            if page.next_cursor in (None, cursor):
                break
            cursor = page.next_cursor
        if damaged:
            raise DamagedDataError(damaged)

    def _followed(self, job: JobLike) -> Iterator[Result]:
        damaged: list[DamagedRow] = []
        cursor: Optional[str] = None
        query = {"order": "completion", "limit": _calls.PAGE}
        path = _calls.results_path(job)
        # Read before the page: a result that comes after it changes the version of the job.
        now = self.job(job)
        while True:
            page = self._send(_calls.page(path, query, cursor))
            for item in page.items:
                yield decode(Result, item)
            damaged += page.damaged
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
            if not page.items and not page.damaged:
                changed = self._send(_calls.job_after(job, now.version, _calls.MAX_WAIT))
                now = changed or now
        if damaged:
            raise DamagedDataError(damaged)

    def _stream(
        self, attempts: Attempts, path: str, place: EventPlace, parser: Parser
    ) -> Iterator[Event]:
        """Iterates over the events of one connection."""
        with self._http.stream(
            "GET",
            attempts.url + path,
            headers={**self._headers, **place.connect()},
            timeout=timeout_of(SILENCE),
        ) as response:
            if not response.is_success:
                response.read()
                raise refusal(response)
            for piece in response.iter_bytes():
                for message in parser.feed(piece):
                    event = place.accept(message)
                    if event is not None:
                        yield event
                    if place.ended:
                        return


class Keys:
    """Keys that are paused or have unfinished subtasks."""

    def __init__(self, client: Client) -> None:
        self._send = client._send

    def list(
        self, *, sort: Optional[Literal["head_age", "length"]] = None, limit: int = 100
    ) -> Sequence[Key]:
        """Returns keys, by default those with the oldest heads first."""
        return self._send(_calls.keys(sort, limit))

    def get(self, key: str) -> Optional[Key]:
        """Returns a key; `None` if it is not paused and has no unfinished subtask."""
        return self._send(_calls.key(key))

    def pause(self, key: str) -> Key:
        """Pauses a key: no subtask with it starts."""
        return self._send(_calls.steer_key(key, "pause"))

    def resume(self, key: str) -> Key:
        """Resumes a paused key."""
        return self._send(_calls.steer_key(key, "resume"))

    def retry_head(self, key: str) -> Key:
        """Retries the first subtask of a key, which has stopped it."""
        return self._send(_calls.steer_key(key, "retry-head"))

    def skip_head(self, key: str) -> Key:
        """Skips the first subtask of a key, so that the next one can start."""
        return self._send(_calls.steer_key(key, "skip-head"))


class Kinds:
    """Kinds of jobs, as configured and as changed by operators."""

    def __init__(self, client: Client) -> None:
        self._send = client._send

    def list(self) -> Sequence[Kind]:
        """Returns all kinds."""
        return self._send(_calls.kinds())

    def get(self, name: str) -> Kind:
        """Returns a kind."""
        return self._send(_calls.kind(name))

    def pause(self, name: str, *, reason: Optional[str] = None) -> Kind:
        """Pauses a kind: nothing of it starts."""
        return self._send(_calls.steer_kind(name, "pause", _calls.reason_body(reason)))

    def resume(self, name: str) -> Kind:
        """Resumes a paused kind."""
        return self._send(_calls.steer_kind(name, "resume", None))

    def change(
        self,
        name: str,
        *,
        concurrency: Optional[int] = None,
        per_second: Optional[float] = None,
        burst: Optional[int] = None,
        per_second_per_key: Optional[float] = None,
        burst_per_key: Optional[int] = None,
        attempts: Optional[int] = None,
        timeout_ms: Optional[Millis] = None,
    ) -> Kind:
        """Changes limits of a kind until they are reset."""
        changes = {
            "concurrency": concurrency,
            "per_second": per_second,
            "burst": burst,
            "per_second_per_key": per_second_per_key,
            "burst_per_key": burst_per_key,
            "attempts": attempts,
            "timeout_ms": timeout_ms,
        }
        return self._send(_calls.change_kind(name, changes))

    def reset(self, name: str, *, settings: Optional[Sequence[str]] = None) -> Kind:
        """Gives all settings of a kind, or the named ones, their configured values again."""
        body = {} if settings is None else {"settings": settings}
        return self._send(_calls.steer_kind(name, "reset", body))


class Schedules:
    """Schedules, which make jobs at the times of a cron pattern."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._send = client._send

    def list(self) -> Iterator[Schedule]:
        """Iterates over the schedules, by name."""
        for item in self._client._items(_calls.SCHEDULES, {"limit": _calls.PAGE}):
            yield decode(Schedule, item)

    def get(self, name: str) -> Schedule:
        """Returns a schedule."""
        return self._send(_calls.schedule(name))

    def put(
        self,
        name: str,
        *,
        cron: str,
        job: Mapping[str, Any],
        time_zone: Optional[str] = None,
        overlap: Optional[Literal["allow", "skip"]] = None,
        missed: Optional[Literal["once", "skip"]] = None,
        paused: Optional[bool] = None,
    ) -> Schedule:
        """Creates a schedule, or replaces its settings. `job` is the body of a submission."""
        body = {
            "cron": cron,
            "job": job,
            "time_zone": time_zone,
            "overlap": overlap,
            "missed": missed,
            "paused": paused,
        }
        return self._send(_calls.put_schedule(name, body))

    def pause(self, name: str) -> Schedule:
        """Pauses a schedule."""
        return self._send(_calls.steer_schedule(name, "pause"))

    def resume(self, name: str) -> Schedule:
        """Resumes a paused schedule. Times during the pause make no job."""
        return self._send(_calls.steer_schedule(name, "resume"))

    def run(self, name: str) -> Job:
        """Makes the job of a schedule now, also while it is paused."""
        return self._send(_calls.run_schedule(name))

    def delete(self, name: str) -> None:
        """Removes a schedule. Its jobs stay."""
        self._send(_calls.delete_schedule(name))


def headers_of(token: Optional[str]) -> dict[str, str]:
    token = token or os.environ.get("KEYLANE_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}


def timeout_of(seconds: float) -> httpx.Timeout:
    # Without a bound for the pool: a request that waits for a connection is not a server's failure.
    return httpx.Timeout(seconds, connect=CONNECT_TIMEOUT, pool=None)
