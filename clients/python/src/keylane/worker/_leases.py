"""Leases that a worker holds, and the times of their heartbeats."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Optional

import httpx

from ..models import Lease
from ._task import Task

# A heartbeat brings the news that a lease was lost, so it comes more often than long leases need.
MAX_INTERVAL = 5.0
MIN_INTERVAL = 0.1


@dataclass
class HeldLease:
    """A lease from its grant until its end is on the server's disk."""

    task: Task
    duration: float
    """Seconds from a heartbeat to the end of the lease."""
    state: Literal["waiting", "running", "ended"] = "waiting"
    is_lost: bool = False
    runner: Optional[asyncio.Task[None]] = None
    is_async: bool = False

    @property
    def lease(self) -> Lease:
        return self.task.lease

    @property
    def interval(self) -> float:
        return max(MIN_INTERVAL, min(MAX_INTERVAL, self.duration / 3))


@dataclass
class HeldLeases:
    """All leases of a worker. Only its event loop uses them."""

    by_id: dict[str, HeldLease] = field(default_factory=dict)
    waiting: deque[HeldLease] = field(default_factory=deque)
    running: int = 0

    @property
    def unfinished(self) -> int:
        """Number of leases whose handler has not ended."""
        return len(self.waiting) + self.running

    def add(self, held: HeldLease) -> None:
        self.by_id[held.lease.id] = held
        self.waiting.append(held)

    def begin_next(self) -> HeldLease:
        held = self.waiting.popleft()
        held.state = "running"
        self.running += 1
        return held

    def end(self, held: HeldLease) -> None:
        """Notes the end of a handler. The lease stays held until its end is reported."""
        held.state = "ended"
        self.running -= 1

    def forget(self, lease_id: str) -> None:
        self.by_id.pop(lease_id, None)

    def lose(self, held: HeldLease) -> None:
        """Notes that the server has ended a lease."""
        held.is_lost = True
        self.by_id.pop(held.lease.id, None)
        if held.state == "waiting":
            self.waiting.remove(held)


def seconds_until(expires_at: datetime, response: httpx.Response) -> float:
    """Returns the time to the end of a lease at the moment of the answer.

    The clocks of server and worker may differ. Beyond the resolution of the header `Date` the
    server's own clock counts.
    """
    now = time.time()
    try:
        server_now = email.utils.parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        server_now = now
    if abs(now - server_now) > 1.5:
        now = server_now
    return expires_at.timestamp() - now
