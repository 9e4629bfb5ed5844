"""Threads for handlers that are plain functions."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

Call = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """Pool of daemon threads.

    Those of `concurrent.futures` keep a process alive until the last handler has returned, also
    when the worker has stopped waiting for it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._started = 0
        self._idle = 0
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Runs a function in a thread, and returns or raises what it does."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            starts = self._idle == 0 and self._started < self._count
            if starts:
                self._started += 1
            else:
                self._idle -= 1
        self._calls.put((function, future, loop))
        if starts:
            name = f"keylane-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return await future

    def close(self) -> None:
        """Lets the threads end when their calls have ended."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            function, future, loop = call
            outcome = _outcome(function)
            with self._lock:
                self._idle += 1
            # The loop may have been closed by a worker that no longer waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, outcome)


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if future.done():
        return
    result, error = outcome
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        # A future takes it for its own end.
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)
