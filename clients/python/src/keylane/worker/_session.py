"""One run of a worker: claims, handlers, heartbeats, reports, and the graceful stop.

Four loops share the leases of the event loop:

- *claims* waits for leases while handlers are free.
- *reports* sends ends in batches. A request with ends also claims, with a short wait, unless a
  claim is on its way: a busy worker needs one request for many subtasks.
- *heartbeats* extends all leases that are held, until their ends are reported.
- *progress* sends what handlers report.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import httpx

from .. import _calls
from .._decode import decode, timestamp
from .._request import Request
from ..aio import AsyncClient
from ..errors import ApiError, KeylaneError, TaskCancelled, TaskFailure
from ..models import Lease
from . import _ends
from ._ends import LeaseEnd
from ._leases import MAX_INTERVAL, HeldLease, HeldLeases, seconds_until
from ._task import CancelReason, Task
from ._threads import Threads

logger = logging.getLogger("keylane.worker")

Handler = Callable[[Task], Any]

CLAIM_WAIT = 20.0
# The next subtask of a key is ready when the end of the one before it is on the disk.
CLAIM_WAIT_WITH_ENDS = 0.2
# A claim that was sent just before a stop is likely to be answered at once. To cut its connection
# then would leave its leases without a worker until they expire.
CLAIM_GRACE = 0.5
PROGRESS_INTERVAL = 0.2
# Time for handlers to end after their cancellation by a stop.
CANCEL_GRACE = 5.0
# Time for reports at a stop. The server gives leases that were not reported to other workers.
LAST_REPORTS = 60.0


@dataclass(frozen=True)
class Settings:
    name: str
    concurrency: int
    max_leases: int
    grace: Optional[float]


class Session:
    """State of a running worker. All of it belongs to one event loop."""

    def __init__(
        self, client: AsyncClient, handlers: Mapping[str, Handler], settings: Settings
    ) -> None:
        self._client = client
        self._handlers = handlers
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(settings.concurrency)
        self._held = HeldLeases()
        self._ends: deque[LeaseEnd] = deque()
        self._is_claiming = False
        self._claim_began = 0.0
        self._claiming_reports: set[asyncio.Task[None]] = set()
        self._failure: Optional[BaseException] = None
        # Each loop waits for its event, and clears it before it looks at the state.
        self._room = asyncio.Event()
        self._ended = asyncio.Event()
        self._granted = asyncio.Event()
        self._progressed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._reported = asyncio.Event()
        self._reported.set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Begins a graceful stop; the second call cancels the handlers that still run."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> None:
        """Works until it is stopped, or until the server refuses the worker for good."""
        claims = asyncio.create_task(self._claims())
        reports = asyncio.create_task(self._reports())
        others = [asyncio.create_task(self._heartbeats()), asyncio.create_task(self._progress())]
        stopped = asyncio.create_task(self._stop.wait())
        loops = [claims, reports, *others]
        try:
            self._room.set()
            await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(claims, reports)
        finally:
            for task in (stopped, *loops, *self._claiming_reports):
                task.cancel()
            for held in list(self._held.by_id.values()):
                if held.state == "running":
                    self._cancel(held, "stopping")
            ended = await asyncio.gather(*loops, return_exceptions=True)
            self._threads.close()
        for outcome in (self._failure, *ended):
            if isinstance(outcome, Exception):
                raise outcome

    # Claims

    async def _claims(self) -> None:
        while True:
            await self._room.wait()
            self._room.clear()
            # Ends that wait are reported first: their request claims, too.
            while self._may_claim() and not self._ends:
                claim = self._begin_claim(CLAIM_WAIT)
                try:
                    response = await self._send_on(_calls.claim(claim))
                finally:
                    self._is_claiming = False
                self._take(response, response.json()["leases"])

    def _free(self) -> int:
        return self._settings.max_leases - self._held.unfinished

    def _may_claim(self) -> bool:
        # One claim at a time, so that none asks for room that another one fills.
        return not self._stop.is_set() and not self._is_claiming and self._free() > 0

    def _begin_claim(self, wait: float) -> _calls.ClaimBody:
        self._is_claiming = True
        self._claim_began = time.monotonic()
        return _calls.ClaimBody(list(self._handlers), self._settings.name, self._free(), wait)

    async def _send_on(self, request: Request[httpx.Response]) -> httpx.Response:
        """Sends a request for as long as no server answers."""
        return await self._client._send(request, retry_for=math.inf, log_level=logging.WARNING)

    def _take(self, response: httpx.Response, leases: list[dict[str, Any]]) -> None:
        """Takes granted leases, and begins as many as there is concurrency for."""
        for item in leases:
            lease = decode(Lease, item)
            task = Task(lease, self._notify_progress)
            self._held.add(HeldLease(task, seconds_until(lease.expires_at, response)))
        if leases:
            self._granted.set()
            self._begin()
        if self._stop.is_set():
            self._release_waiting()

    # Handlers

    def _begin(self) -> None:
        while (
            self._held.waiting
            and self._held.running < self._settings.concurrency
            and not self._stop.is_set()
        ):
            held = self._held.begin_next()
            self._idle.clear()
            held.runner = asyncio.create_task(self._run(held))

    async def _run(self, held: HeldLease) -> None:
        """Runs the handler of a lease, and queues its end."""
        end = await self._outcome(held)
        self._held.end(held)
        if held.is_lost:
            logger.warning("result discarded, because the lease is lost: %s", _place(held.lease))
        else:
            self._queue(end)
        self._begin()
        self._room.set()
        if self._held.running == 0:
            self._idle.set()

    def _queue(self, end: LeaseEnd) -> None:
        self._ends.append(end)
        self._reported.clear()
        self._ended.set()

    async def _outcome(self, held: HeldLease) -> LeaseEnd:
        task, lease = held.task, held.lease
        details: Optional[str] = None
        try:
            result = await self._call(held)
            return _ends.succeeded(lease, result, _ends.log_text(task._log, None))
        except TaskFailure as error:
            failure = error
        except (TaskCancelled, asyncio.CancelledError) as error:
            failure = _cancelled(task.cancel_reason, error)
        except Exception as error:
            failure = TaskFailure(f"{type(error).__name__}: {error}")
            details = traceback.format_exc()
            logger.exception("handler failed: %s", _place(lease))
        return _ends.failed(lease, failure, _ends.log_text(task._log, details))

    async def _call(self, held: HeldLease) -> Any:
        handler = self._handlers[held.lease.kind]
        if is_async(handler):
            held.is_async = True
            return await handler(held.task)
        return await self._threads.run(functools.partial(handler, held.task))

    def _cancel(self, held: HeldLease, reason: CancelReason) -> None:
        if held.task.cancelled:
            return
        held.task._cancel(reason)
        # A thread cannot be interrupted; its handler asks the task.
        if held.is_async and held.runner is not None:
            held.runner.cancel()

    # Reports

    async def _reports(self) -> None:
        while True:
            await self._ended.wait()
            self._ended.clear()
            while self._ends:
                batch = _ends.take_batch(self._ends)
                if self._may_claim():
                    # Ends that come meanwhile need not wait for the leases of this request.
                    claim = self._begin_claim(CLAIM_WAIT_WITH_ENDS)
                    report = asyncio.create_task(self._report(batch, claim))
                    self._claiming_reports.add(report)
                    report.add_done_callback(self._claiming_report_ended)
                else:
                    await self._report(batch, None)
            self._note_reported()

    def _claiming_report_ended(self, report: asyncio.Task[None]) -> None:
        self._claiming_reports.discard(report)
        if not report.cancelled() and report.exception() is not None:
            self._failure = report.exception()
            self._stop.set()
        self._note_reported()

    def _note_reported(self) -> None:
        if not self._ends and not self._claiming_reports:
            self._reported.set()

    async def _report(self, batch: list[LeaseEnd], claim: Optional[_calls.ClaimBody]) -> None:
        try:
            await self._send_ends(batch, claim)
        except ApiError as error:
            await self._report_apart(batch, error)
        finally:
            if claim is not None:
                self._is_claiming = False
        self._room.set()

    async def _send_ends(self, batch: list[LeaseEnd], claim: Optional[_calls.ClaimBody]) -> None:
        request = _calls.end_leases([end.item for end in batch], claim)
        response = await self._send_on(request)
        answer = response.json()
        for end, item in zip(batch, answer["items"]):
            self._held.forget(end.lease.id)
            if item["status"] != httpx.codes.NO_CONTENT:
                # Also after a repeated request whose first answer was lost: then the end counts.
                detail = (item.get("problem") or {}).get("detail", item["status"])
                logger.info("end not accepted: %s: %s", _place(end.lease), detail)
        if claim is not None:
            self._take(response, answer.get("leases") or [])

    async def _report_apart(self, batch: list[LeaseEnd], error: ApiError) -> None:
        """Reports ends one by one, because the server has refused all of a request for one."""
        if error.status in (401, 403):
            raise error
        if len(batch) > 1:
            for end in batch:
                try:
                    await self._send_ends([end], None)
                except ApiError as alone:
                    await self._report_apart([end], alone)
            return
        lease = batch[0].lease
        logger.error("end refused: %s: %s", _place(lease), error)
        failure = TaskFailure(f"the server refused the result: {error}", retry=False)
        with contextlib.suppress(ApiError):
            await self._send_ends([_ends.failed(lease, failure, "")], None)
        self._held.forget(lease.id)

    # Heartbeats

    async def _heartbeats(self) -> None:
        due = time.monotonic()
        while True:
            intervals = [held.interval for held in self._held.by_id.values()]
            interval = min(intervals, default=MAX_INTERVAL)
            # New leases may be shorter than those before.
            due = min(due, time.monotonic() + interval)
            try:
                left = due - time.monotonic()
                await asyncio.wait_for(self._granted.wait(), max(0.0, left))
                self._granted.clear()
                continue
            except asyncio.TimeoutError:
                pass
            if intervals:
                await self._beat(list(self._held.by_id), interval)
            due = time.monotonic() + interval

    async def _beat(self, leases: list[str], interval: float) -> None:
        for first in range(0, len(leases), _ends.MAX_LEASES):
            ids = leases[first : first + _ends.MAX_LEASES]
            try:
                # Within this time there is another try; the lease goes on over a restart.
                response = await self._client._send(
                    _calls.heartbeat(ids), retry_for=interval, timeout=max(1.0, interval)
                )
            except KeylaneError as error:
                logger.warning("no heartbeat for %d leases: %s", len(ids), error)
                continue
            for lease_id, item in zip(ids, response.json()["items"]):
                self._heard(lease_id, item, response)

    def _heard(self, lease_id: str, item: dict[str, Any], response: httpx.Response) -> None:
        """Takes the answer to the heartbeat of one lease."""
        held = self._held.by_id.get(lease_id)
        # An ended handler has nothing to be cancelled, and the answer to its report says the rest.
        if held is None or held.state == "ended":
            return
        if item["status"] != httpx.codes.OK:
            self._lose(held)
            return
        held.duration = seconds_until(timestamp(item["expires_at"]), response)
        if item.get("cancel"):
            self._cancel(held, "job-cancelled")

    def _lose(self, held: HeldLease) -> None:
        if not held.is_lost:
            logger.warning("lease lost: %s", _place(held.lease))
            self._held.lose(held)
            self._cancel(held, "lease-lost")
            self._room.set()

    # Progress

    def _notify_progress(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._progressed.set)

    async def _progress(self) -> None:
        while True:
            await self._progressed.wait()
            self._progressed.clear()
            reports = [
                self._report_progress(held, fraction)
                for held in list(self._held.by_id.values())
                if held.state == "running" and (fraction := held.task._take_progress()) is not None
            ]
            await asyncio.gather(*reports)
            await asyncio.sleep(PROGRESS_INTERVAL)

    async def _report_progress(self, held: HeldLease, fraction: float) -> None:
        request = _calls.report_progress(held.lease.id, fraction)
        try:
            response = await self._client._send(request, retry_for=0.0, timeout=held.interval + 1)
        except ApiError as error:
            if error.status in (404, 409):
                self._lose(held)
        except KeylaneError:
            logger.debug("progress not reported: %s", _place(held.lease))
        else:
            self._heard(held.lease.id, {"status": httpx.codes.OK, **response.json()}, response)

    # Stop

    async def _drain(self, claims: asyncio.Task[None], reports: asyncio.Task[None]) -> None:
        """Returns what has not begun, waits for running handlers, and reports their ends."""
        self._stop.set()
        self._release_waiting()
        if self._is_claiming and time.monotonic() - self._claim_began < CLAIM_GRACE:
            await asyncio.wait([claims], timeout=CLAIM_GRACE)
        claims.cancel()
        await self._wait_idle()
        reported = asyncio.ensure_future(self._reported.wait())
        timeout = CANCEL_GRACE if self._hurry.is_set() else LAST_REPORTS
        # The loop ends by itself if the server refuses the worker.
        await asyncio.wait(
            [reported, reports], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        reported.cancel()

    def _release_waiting(self) -> None:
        while self._held.waiting:
            self._queue(_ends.released(self._held.waiting.popleft().lease))

    async def _wait_idle(self) -> None:
        idle = asyncio.ensure_future(self._idle.wait())
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait(
                [idle, hurry], timeout=self._settings.grace, return_when=asyncio.FIRST_COMPLETED
            )
            if self._idle.is_set():
                return
            running = [held for held in self._held.by_id.values() if held.state == "running"]
            logger.warning("cancelling %d handlers, because the worker stops", len(running))
            for held in running:
                self._cancel(held, "stopping")
            await asyncio.wait([idle], timeout=CANCEL_GRACE)
            self._abandon()
        finally:
            idle.cancel()
            hurry.cancel()

    def _abandon(self) -> None:
        """Gives up handlers that have not ended after their cancellation."""
        for held in list(self._held.by_id.values()):
            if held.state == "running":
                logger.error("handler still runs, and is left: %s", _place(held.lease))
                failure = _cancelled("stopping", None)
                held.is_lost = True
                self._queue(_ends.failed(held.lease, failure, ""))


def is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object with an async method
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _cancelled(reason: Optional[CancelReason], error: Optional[BaseException]) -> TaskFailure:
    if reason == "stopping":
        return TaskFailure("the worker has stopped", after=0)
    if reason == "job-cancelled":
        return TaskFailure("cancelled", retry=False)
    return TaskFailure(f"the handler was cancelled: {error!r}")


def _place(lease: Lease) -> str:
    return f"{lease.kind} {lease.job}/{lease.number}, attempt {lease.attempt}"
