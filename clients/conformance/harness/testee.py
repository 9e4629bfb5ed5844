"""Driver of a testee: commands as lines of JSON, answers and events by their ids."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shlex
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Optional

# Bound of a wait that a correct client never reaches.
TIMEOUT = 30.0


class Refused(Exception):  # noqa: N818 - an answer of the testee, which tests look at
    """The client reported an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error.get('status')} {error.get('code')}: {error.get('detail')}")
        self.status = error.get("status")
        self.code = error.get("code")
        self.detail = str(error.get("detail", ""))
        self.places = {place["pointer"] for place in error.get("errors") or ()}


class Call:
    """A command that was sent."""

    def __init__(self, testee: Testee, number: int) -> None:
        self._testee = testee
        self.number = number
        self.future: Future[Any] = Future()
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()

    def answer(self, timeout: float = TIMEOUT) -> Any:
        return self.future.result(timeout)

    def event(self, name: str, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Returns the next event, which must have this name."""
        try:
            event = self.events.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no event {name!r} within {timeout} seconds") from None
        assert event["event"] == name, event
        return event


class Work(Call):
    """A worker of the testee."""

    def task(self, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Returns the next subtask that a handler has begun."""
        task: dict[str, Any] = self.event("task", timeout)["task"]
        return task

    def finish(self, task: Mapping[str, Any], result: Any = None) -> None:
        self._testee.ask("finish", lease=task["lease"], result=result)

    def fail(self, task: Mapping[str, Any], error: str, **more: Any) -> None:
        self._testee.ask("fail", lease=task["lease"], error=error, **more)

    def progress(self, task: Mapping[str, Any], fraction: float) -> None:
        self._testee.ask("progress", lease=task["lease"], progress=fraction)

    def cancelled(self) -> str:
        """Returns the lease of the next handler that was cancelled."""
        return str(self.event("cancelled")["lease"])

    def begin_stop(self) -> Call:
        return self._testee.begin("stop_worker", of=self.number)

    def stop(self) -> None:
        self.begin_stop().answer()


class Testee:
    """A process of the client under test."""

    __test__ = False  # pytest takes it for a class of tests by its name

    def __init__(self, command: str, urls: list[str], token: Optional[str] = None) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "KEYLANE_TOKEN"}
        environment["KEYLANE_URLS"] = ",".join(urls)
        if token is not None:
            environment["KEYLANE_TOKEN"] = token
        self._process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=environment,
        )
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, do: str, **arguments: Any) -> Call:
        """Sends a command, and does not wait for the answer."""
        call = Call(self, next(self._numbers))
        self._send(call, do, arguments)
        return call

    def ask(self, do: str, **arguments: Any) -> Any:
        """Sends a command, and returns its answer; raises `Refused`."""
        return self.begin(do, **arguments).answer()

    def work(self, *kinds: str, concurrency: int = 8, batch: int = 8, name: str = "w1") -> Work:
        """Starts a worker."""
        work = Work(self, next(self._numbers))
        options = {"concurrency": concurrency, "batch": batch, "worker": name}
        self._send(work, "work", {"kinds": list(kinds), **options})
        return work

    def close(self) -> None:
        """Ends the testee by the end of its input."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def _send(self, call: Call, do: str, arguments: Mapping[str, Any]) -> None:
        self._calls[call.number] = call
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps({"id": call.number, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "event" in message:
                self._calls[message["of"]].events.put(message)
                continue
            future = self._calls[message["id"]].future
            if "error" in message:
                future.set_exception(Refused(message["error"]))
            else:
                future.set_result(message["ok"])
        for call in list(self._calls.values()):
            if not call.future.done():
                call.future.set_exception(AssertionError("the testee has ended"))
