"""Testee of the conformance suite: the Python client, driven by lines of JSON.

With `--threads` it uses the synchronous client and handlers in threads, otherwise asyncio.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from keylane import (
    ApiError,
    AsyncClient,
    Client,
    KeylaneError,
    Task,
    TaskCancelled,
    TaskFailure,
    Worker,
)

Command = dict[str, Any]
Give = Callable[[Command], None]
URLS = os.environ["KEYLANE_URLS"]
_writing = threading.Lock()


def write(message: dict[str, Any]) -> None:
    line = json.dumps(message, default=plain) + "\n"
    with _writing:
        sys.stdout.write(line)
        sys.stdout.flush()


def plain(value: Any) -> Any:
    """Returns an answer of the client as the API has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        raw = getattr(value, "raw", None)
        return raw or {name: item for name, item in vars(value).items() if item is not None}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no JSON: {value!r}")


def error_of(error: Exception) -> dict[str, Any]:
    if isinstance(error, ApiError):
        places = [dataclasses.asdict(field) for field in error.errors]
        status, code, detail = error.status, error.code, error.detail
        return {"code": code, "status": status, "detail": detail, "errors": places}
    code = "unreachable" if isinstance(error, KeylaneError) else type(error).__name__
    return {"code": code, "status": 0, "detail": str(error), "errors": []}


def submission(command: Command) -> dict[str, Any]:
    names = ("payload", "key", "keys", "subtasks", "idempotency_key")
    given = {name: command[name] for name in names if name in command}
    return {**given, **command.get("options", {})}


def numbers(command: Command) -> Iterator[dict[str, Any]]:
    for number in range(command["count"]):
        yield {"payload": number, "key": f"k{number % command['keys']}"}


class Finishes:
    """Commands of the suite for running handlers, by lease."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Task, Give]] = {}

    def begin(self, of: int, task: Task, give: Give) -> None:
        lease = task.lease
        self._running[lease.id] = (task, give)
        shown = {
            "lease": lease.id,
            "job": lease.job,
            "number": lease.number,
            "keys": lease.keys,
            "attempt": lease.attempt,
            "fence": lease.fence,
            "payload": lease.payload,
        }
        write({"event": "task", "of": of, "task": shown})

    def take(self, command: Command) -> None:
        task, give = self._running[command["lease"]]
        if command["do"] == "progress":
            task.progress(command["progress"])
        else:
            give(command)


def outcome(command: Command) -> Any:
    if command["do"] == "finish":
        return command.get("result")
    after = command.get("after_ms")
    raise TaskFailure(
        command["error"],
        retry=command.get("retry", True),
        after=None if after is None else after / 1000,
    )


class Testee:
    """Runs commands; the subclasses have the client."""

    def __init__(self) -> None:
        self.finishes = Finishes()
        self.workers: dict[int, Worker] = {}
        self.running: dict[int, asyncio.Task[None]] = {}

    def worker(self, command: Command) -> Worker:
        worker = Worker(
            URLS,
            name=command.get("worker"),
            concurrency=command.get("concurrency", 8),
            max_leases=max(command.get("batch", 1), command.get("concurrency", 8)),
        )
        worker.kind(*command["kinds"])(self.handler(command["id"]))
        self.workers[command["id"]] = worker
        return worker

    def handler(self, of: int) -> Any:
        raise NotImplementedError

    async def ask(self, command: Command) -> Any:
        raise NotImplementedError

    async def run(self, command: Command) -> None:
        number = command["id"]
        try:
            if command["do"] == "work":
                self.running[number] = asyncio.create_task(self.worker(command).run_async())
                answer: Any = {}
            elif command["do"] == "stop_worker":
                self.workers[command["of"]].stop()
                await self.running[command["of"]]
                answer = {}
            elif command["do"] in ("finish", "fail", "progress"):
                self.finishes.take(command)
                answer = {}
            else:
                answer = await self.ask(command)
        except Exception as error:
            write({"id": number, "error": error_of(error)})
        else:
            write({"id": number, "ok": answer})


class AsyncTestee(Testee):
    def __init__(self) -> None:
        super().__init__()
        self.client = AsyncClient(URLS)

    def handler(self, of: int) -> Any:
        async def handle(task: Task) -> Any:
            commands: asyncio.Queue[Command] = asyncio.Queue()
            self.finishes.begin(of, task, commands.put_nowait)
            try:
                return outcome(await commands.get())
            except asyncio.CancelledError:
                write({"event": "cancelled", "of": of, "lease": task.lease.id})
                raise

        return handle

    async def ask(self, command: Command) -> Any:  # noqa: PLR0911 - one for each command
        client, do = self.client, command["do"]
        if do == "submit":
            return await client.submit(command["kind"], **submission(command))
        if do == "submit_many":
            return await client.submit(command["kind"], subtasks=numbers(command))
        if do == "wait":
            return await client.wait(command["job"])
        if do == "job":
            return await client.job(command["job"])
        if do == "cancel":
            return await client.cancel(command["job"], mode=command.get("mode", "graceful"))
        if do == "results":
            return [result async for result in client.results(command["job"])]
        if do == "events":
            async for event in client.events(command["job"]):
                write({"event": "job-event", "of": command["id"], "data": event})
            return {}
        if do == "kinds":
            return await client.kinds.list()
        if do == "keys":
            return await client.keys.get(command["key"])
        if do == "schedule_put":
            return await client.schedules.put(command["name"], **command["schedule"])
        if do == "schedules":
            return [schedule async for schedule in client.schedules.list()]
        raise ValueError(f"unknown command {do!r}")


class ThreadTestee(Testee):
    def __init__(self) -> None:
        super().__init__()
        self.client = Client(URLS)

    def handler(self, of: int) -> Any:
        def handle(task: Task) -> Any:
            commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
            self.finishes.begin(of, task, commands.put)
            while not task.wait_cancelled(0.01):
                if not commands.empty():
                    return outcome(commands.get())
            write({"event": "cancelled", "of": of, "lease": task.lease.id})
            raise TaskCancelled

        return handle

    async def ask(self, command: Command) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, functools.partial(self.do, command))

    def do(self, command: Command) -> Any:  # noqa: PLR0911 - one for each command
        client, do = self.client, command["do"]
        if do == "submit":
            return client.submit(command["kind"], **submission(command))
        if do == "submit_many":
            return client.submit(command["kind"], subtasks=numbers(command))
        if do == "wait":
            return client.wait(command["job"])
        if do == "job":
            return client.job(command["job"])
        if do == "cancel":
            return client.cancel(command["job"], mode=command.get("mode", "graceful"))
        if do == "results":
            return list(client.results(command["job"]))
        if do == "events":
            for event in client.events(command["job"]):
                write({"event": "job-event", "of": command["id"], "data": event})
            return {}
        if do == "kinds":
            return client.kinds.list()
        if do == "keys":
            return client.keys.get(command["key"])
        if do == "schedule_put":
            return client.schedules.put(command["name"], **command["schedule"])
        if do == "schedules":
            return list(client.schedules.list())
        raise ValueError(f"unknown command {do!r}")


async def main() -> None:
    testee: Testee = ThreadTestee() if "--threads" in sys.argv else AsyncTestee()
    loop = asyncio.get_running_loop()
    # One for standard input, and one for each command that waits.
    loop.set_default_executor(ThreadPoolExecutor(64))
    running = set()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            break
        task = asyncio.create_task(testee.run(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    # The suite is done: nothing of it is waited for.
    os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(main())
