"""A subtask in the hands of its handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, Optional

from ..errors import TaskCancelled
from ..models import Lease

CancelReason = Literal["lease-lost", "job-cancelled", "stopping"]


class Task:
    """A leased subtask. Handlers may use it in any thread."""

    def __init__(self, lease: Lease, notify: Callable[[], None]) -> None:
        self.lease = lease
        self.cancel_reason: Optional[CancelReason] = None
        """`lease-lost`: another worker may have the subtask, and the result is discarded.
        `job-cancelled`: the job no longer needs it. `stopping`: the worker ends."""
        self._cancelled = threading.Event()
        self._progress: Optional[float] = None
        self._notify = notify
        self._log: list[str] = []

    @property
    def payload(self) -> Any:
        """Input of the subtask."""
        return self.lease.payload

    @property
    def kind(self) -> str:
        return self.lease.kind

    @property
    def job(self) -> str:
        """Id of the job."""
        return self.lease.job

    @property
    def number(self) -> int:
        """Number of the subtask in its job, from 0."""
        return self.lease.number

    @property
    def keys(self) -> list[str]:
        return self.lease.keys

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self.lease.attempt

    @property
    def fence(self) -> int:
        """Number that is higher than that of every earlier attempt.

        A system that the handler changes can refuse a lower one, and so a worker whose lease is
        lost without its knowledge.
        """
        return self.lease.fence

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted. A long handler in a thread checks it."""
        return self._cancelled.is_set()

    def check_cancelled(self) -> None:
        """Raises `TaskCancelled` if the result is no longer wanted."""
        if self._cancelled.is_set():
            raise TaskCancelled(f"cancelled: {self.cancel_reason}")

    def wait_cancelled(self, timeout: Optional[float] = None) -> bool:
        """Blocks a thread until the task is cancelled, at most `timeout` seconds.

        Returns whether it is cancelled: a sleep that a cancellation ends.
        """
        return self._cancelled.wait(timeout)

    def progress(self, fraction: float) -> None:
        """Reports the progress, from 0 to 1. It is for people, and has no effect."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction is {fraction}; give a number from 0 to 1")
        self._progress = fraction
        self._notify()

    def log(self, text: str) -> None:
        """Adds a line to the log of the attempt. The server keeps the end of the log."""
        self._log.append(text)

    def _take_progress(self) -> Optional[float]:
        taken, self._progress = self._progress, None
        return taken

    def _cancel(self, reason: CancelReason) -> None:
        self.cancel_reason = reason
        self._cancelled.set()
