"""The worker: its handlers, and the ways to run it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

import httpx

from .._retry import Servers
from ..aio import AsyncClient
from ._session import Handler, Session, Settings
from ._task import Task

H = TypeVar("H", bound=Callable[[Task], Any])


class Worker:
    """Runs subtasks of some kinds with handlers.

        worker = Worker("http://127.0.0.1:7420", concurrency=8)

        @worker.kind("render")
        def render(task):
            return {"pages": task.payload["pages"]}

        worker.run()

    A handler is a function, which runs in a thread, or a coroutine function, which runs in the
    worker's event loop. It returns the result: any JSON. An exception is a failure that is tried
    again; a `TaskFailure` chooses.

    `concurrency` handlers run at a time. The worker leases at most `max_leases` subtasks, by
    default as many; more keep it busy when subtasks are short. At a stop it waits `grace` seconds
    for running handlers, `None` without a bound. `servers`, `token` and `http` are those of a
    client.
    """

    def __init__(
        self,
        servers: Union[str, Sequence[str], None] = None,
        *,
        token: Optional[str] = None,
        name: Optional[str] = None,
        concurrency: int = 8,
        max_leases: Optional[int] = None,
        grace: Optional[float] = 30.0,
        http: Optional[httpx.AsyncClient] = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; give 1 or more")
        if max_leases is not None and max_leases < concurrency:
            raise ValueError(
                f"max_leases is {max_leases}, below concurrency, which is {concurrency};"
                " give at least as many, or leave it out"
            )
        self._settings = Settings(
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            concurrency=concurrency,
            max_leases=max_leases or concurrency,
            grace=grace,
        )
        # Wrong addresses are found here, and not when the worker runs.
        self._urls = Servers(servers).urls
        self._token = token
        self._http = http
        self._handlers: dict[str, Handler] = {}
        self._session: Optional[Session] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._stops = 0
        self._background: Optional[_Background] = None
        self._task: Optional[asyncio.Task[None]] = None

    def kind(self, *names: str) -> Callable[[H], H]:
        """Registers a handler for kinds of jobs."""
        if not names:
            raise ValueError("kind() has no name; give the kinds of the handler")

        def register(handler: H) -> H:
            for name in names:
                if name in self._handlers:
                    raise ValueError(f"kind {name!r} has a handler already; give each kind one")
                self._handlers[name] = handler
            return handler

        return register

    def run(self) -> None:
        """Works until SIGTERM or SIGINT, and then stops gracefully; the second one hurries.

        Call it in the main thread, or elsewhere without signals. Raises an error if the server
        refuses the worker for good, for example because a kind is not for remote workers.
        """
        asyncio.run(self._run_with_signals())

    async def run_async(self) -> None:
        """Works until `stop` is called. Signals are up to the program."""
        if not self._handlers:
            raise ValueError("the worker has no handler; register one with @worker.kind(...)")
        async with AsyncClient(self._urls, token=self._token, http=self._http) as client:
            self._loop = asyncio.get_running_loop()
            self._session = Session(client, self._handlers, self._settings)
            for _ in range(self._stops):
                self._session.stop()
            try:
                await self._session.run()
            finally:
                self._session = self._loop = None
                self._stops = 0

    def stop(self) -> None:
        """Begins a graceful stop, from any thread.

        The worker leases nothing more, returns what has not begun, and waits for running handlers.
        The second call cancels these.
        """
        loop = self._loop
        if loop is None:
            self._stops += 1
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop_session)

    def _stop_session(self) -> None:
        if self._session is not None:
            self._session.stop()

    async def _run_with_signals(self) -> None:
        with _signals(self.stop):
            await self.run_async()

    # In the background of a program: `with worker:`, `async with worker:`

    def __enter__(self) -> Worker:
        self._background = _Background(self.run_async)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._background is not None
        self.stop()
        self._background.join(raises=error is None)

    async def __aenter__(self) -> Worker:
        self._task = asyncio.create_task(self.run_async())
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._task is not None
        self.stop()
        if error is None:
            await self._task
        else:
            await asyncio.wait([self._task])


class _Background:
    """Thread with an event loop for a worker."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._main, name="keylane-worker", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._error = error

    def join(self, raises: bool) -> None:
        self._thread.join()
        if raises and self._error is not None:
            raise self._error


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at SIGTERM and SIGINT, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
