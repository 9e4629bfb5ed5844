"""A client of `keylane serve`, and a worker for it, with nothing but Python's standard library.

    from keylane_client import Keylane

    keylane = Keylane("http://127.0.0.1:7420")
    job = keylane.submit("resize", {"file": "a.png"}, key="album-7", idempotency_key="upload-4711")
    job = keylane.wait(job["id"])
    for result in keylane.results(job["id"]):
        print(result["number"], result["outcome"], result.get("result"))

A kind that says `lease` is done by workers elsewhere. This is one:

    keylane.work(["resize"], lambda task: {"width": 640})

Run as a program it submits, follows, or works: `python3 keylane_client.py --help`.
"""

import argparse
import datetime
import http.client
import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.parse

FINAL = {"succeeded", "failed", "cancelled"}


class Refused(Exception):
    """The server said no. `code` is for programs, the text for people."""

    def __init__(self, status, problem):
        self.status = status
        self.code = problem.get("code", "")
        self.errors = problem.get("errors", [])
        places = "".join(f"; {error['pointer']}: {error['detail']}" for error in self.errors)
        super().__init__(f"{problem.get('detail', 'no reason given')} ({status} {self.code}){places}")


class Lasting(Exception):
    """Raised by a worker's handler: trying again would not help."""


class Keylane:
    """A server. Each call has a connection of its own, so threads may share this."""

    def __init__(self, url="http://127.0.0.1:7420", token=None):
        self.url = urllib.parse.urlsplit(url)
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    # Submitting

    def submit(self, kind, payload=None, *, key=None, subtasks=None, idempotency_key=None, **more):
        """Hands in a job of one payload, or of a list of `{"key": …, "payload": …}`; returns it.

        When this returns, the job is on the server's disk. `more` is what the API knows besides: `name`,
        `labels`, `weight`, `delay_ms`, `run_at`, `attempts`, `timeout_ms`, and so on.
        """
        work = {"payload": payload, "key": key, "subtasks": None if subtasks is None else list(subtasks)}
        work = {name: value for name, value in work.items() if value is not None}
        return self._call("POST", "/v1/jobs", {"kind": kind, **work, **more}, _once(idempotency_key))

    def submit_lines(self, kind, subtasks, *, idempotency_key=None, **more):
        """The same for any number of subtasks, in bounded memory: `subtasks` is iterated as they are sent.

        If that raises, nothing is submitted.
        """
        def lines():
            yield _line({"kind": kind, **more})
            for subtask in subtasks:
                yield _line(subtask)

        headers = {"content-type": "application/x-ndjson", **_once(idempotency_key)}
        return self._call("POST", "/v1/jobs", _blocks(lines()), headers)

    # Looking

    def job(self, id):
        return self._call("GET", f"/v1/jobs/{_quote(id)}")

    def wait(self, id, timeout=None):
        """Waits until a job is over, and returns it; after `timeout` seconds, as it is then."""
        end = None if timeout is None else time.monotonic() + timeout
        job = self.job(id)
        while job["state"] not in FINAL:
            left = 30 if end is None else min(30, end - time.monotonic())
            if left <= 0:
                break
            # Answered when the job is another than the one that is known, or when the time is over.
            headers = {"prefer": f"wait={max(1, int(left))}", "if-none-match": f'W/"{job["version"]}"'}
            job = self._call("GET", f"/v1/jobs/{_quote(id)}", headers=headers) or job
        return job

    def results(self, id, order="submit"):
        """What came of a job's subtasks so far, one after another: by `submit`, `completion` or `key`."""
        cursor = None
        while True:
            query = {"order": order, "limit": 1000, **({"cursor": cursor} if cursor else {})}
            page = self._call("GET", f"/v1/jobs/{_quote(id)}/results?{urllib.parse.urlencode(query)}")
            yield from page["items"]
            # Of a job that goes on, the last page says where more will come.
            if page.get("next_cursor") in (None, cursor):
                return
            cursor = page["next_cursor"]

    def events(self, id):
        """How a job is, and what happens to it, until it is over; goes on by itself when a connection breaks."""
        last, pause = None, 1.0
        while True:
            headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
            try:
                with self._open("GET", f"/v1/jobs/{_quote(id)}/events", None, headers, timeout=50) as answer:
                    for name, data, last, pause in _events(answer, last, pause):
                        event = json.loads(data)
                        yield event
                        if name == "job_purged" or (event.get("job") or {}).get("state") in FINAL:
                            return
            except Refused as refused:
                if refused.status not in (429, 502, 503, 504):
                    raise
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(pause)

    # Steering

    def cancel(self, id, kill=False, reason=None):
        body = {"mode": "kill" if kill else "graceful", **({"reason": reason} if reason else {})}
        return self._call("POST", f"/v1/jobs/{_quote(id)}/cancel", body)

    def retry(self, id, only="failed"):
        return self._call("POST", f"/v1/jobs/{_quote(id)}/retry", {"only": only})

    # Working

    def claim(self, kinds, most=1, wait=30, worker=None):
        """Claims at most `most` subtasks, and waits at most `wait` seconds for the first; returns their leases."""
        body = {"kinds": list(kinds), "max": most, "wait_ms": int(wait * 1000)}
        if worker:
            body["worker"] = worker
        return self._call("POST", "/v1/leases", body, timeout=wait + 30)["leases"]

    def heartbeat(self, lease, progress=None):
        """Keeps a lease; `cancel` in the answer means that the work is no longer wanted.

        `progress`, from 0 to 1, is for humans.
        """
        body = {} if progress is None else {"progress": progress}
        return self._call("POST", f"/v1/leases/{_quote(lease['id'])}/heartbeat", body)

    def complete(self, lease, result=None):
        self._call("POST", f"/v1/leases/{_quote(lease['id'])}/complete", {"result": result})

    def fail(self, lease, error, retry=True, after=None):
        body = {"error": error, "retry": retry, **({} if after is None else {"after_ms": int(after * 1000)})}
        self._call("POST", f"/v1/leases/{_quote(lease['id'])}/fail", body)

    def work(self, kinds, handler, *, worker=None, stop=None):
        """Does subtasks one by one until `stop`, a `threading.Event`, is set.

        `handler` gets a `Task` and returns its result. What it raises is a failure that is tried again, but for
        `Lasting`. Delivery is at least once: an effect elsewhere should be refused there by `task.fence`, which
        grows with each attempt.
        """
        stop = stop or threading.Event()
        while not stop.is_set():
            try:
                leases = self.claim(kinds, wait=20, worker=worker)
            except (OSError, http.client.HTTPException, Refused) as error:
                if isinstance(error, Refused) and error.status not in (429, 502, 503, 504):
                    raise
                print(f"no work: {error}; trying again", file=sys.stderr)
                stop.wait(2)
                continue
            for lease in leases:
                self._do(lease, handler)

    def _do(self, lease, handler):
        with Task(self, lease) as task:
            try:
                result = handler(task)
                answer = lambda: self.complete(lease, result)
            except Lasting as error:
                reason = str(error)
                answer = lambda: self.fail(lease, reason, retry=False)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                answer = lambda: self.fail(lease, reason)
            try:
                self._tell(answer)
            except Refused as refused:
                if refused.code != "lease-lost":
                    raise
                # It was killed, or another worker has it by now: whatever came of it here does not count.
                print(f"lease lost: {lease['job']}/{lease['number']}", file=sys.stderr)

    def _tell(self, answer):
        """Answers, as soon as the server is there and its disk has room for it. Until then the lease is kept: it goes on
        over a restart of the server. An answer that was heard, and whose own answer was lost, is told again; that the lease
        is lost then says no more than that it has ended."""
        while True:
            try:
                return answer()
            except Refused as refused:
                if refused.status not in (429, 502, 503, 504, 507):
                    raise
                print(f"not answered yet: {refused}", file=sys.stderr)
                if refused.code == "not-yet-written":
                    return  # It has the answer. If it ends before there is room, the subtask is done again.
            except (OSError, http.client.HTTPException) as error:
                print(f"not answered yet: {error}", file=sys.stderr)
            time.sleep(2)

    # The wire

    def _call(self, method, path, body=None, headers=None, timeout=60):
        headers = dict(headers or {})
        if body is not None and "content-type" not in headers:
            headers["content-type"] = "application/json"
            body = json.dumps(body).encode()
        with self._open(method, path, body, headers, timeout) as answer:
            text = answer.read()
            return json.loads(text) if text and answer.status != 304 else None

    def _open(self, method, path, body, headers, timeout):
        if self.url.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self.url.netloc, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(self.url.netloc, timeout=timeout)
        try:
            # An iterator is sent in chunks. If it raises, the end never comes, and the server takes nothing.
            try:
                connection.request(method, self.url.path.rstrip("/") + path, body, {**self.headers, **headers})
            except (BrokenPipeError, ConnectionResetError):
                pass  # It has heard enough, and may have said why.
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, _problem(answer.read()))
            return _Closing(connection, answer)
        except BaseException:
            connection.close()
            raise


class Task:
    """A subtask that is this worker's. While it is, a thread keeps its lease."""

    def __init__(self, keylane, lease):
        self.keylane, self.lease = keylane, lease
        self.payload, self.keys = lease["payload"], lease["keys"]
        self.shared_keys = lease.get("shared_keys", [])
        self.attempt, self.fence = lease["attempt"], lease["fence"]
        #: The trace that the job was submitted in (W3C Trace Context), if it was in one.
        self.traceparent, self.tracestate = lease.get("traceparent"), lease.get("tracestate")
        #: Finished part of the work, from 0 to 1; the next heartbeat reports it.
        self.progress = None
        #: Set when the result is no longer wanted. A long handler should check it from time to time.
        self.cancelled = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _keep(self):
        expires = _time(self.lease["expires_at"])
        # The server's clock may be another; a lease of a minute is kept every 20 seconds at least.
        while not self._over.wait(min(20.0, max(0.2, (expires - time.time()) / 3))):
            try:
                answer = self.keylane.heartbeat(self.lease, self.progress)
                expires = _time(answer["expires_at"])
                if answer["cancel"]:
                    self.cancelled.set()
            except Refused as refused:
                if refused.status in (429, 502, 503, 504):
                    continue  # It starts or stops; the lease goes on.
                self.cancelled.set()
                return
            except (OSError, http.client.HTTPException):
                pass  # There is time for another try.


class _Closing:
    """An answer whose connection ends with it."""

    def __init__(self, connection, answer):
        self.connection, self.answer = connection, answer

    def __enter__(self):
        return self.answer

    def __exit__(self, *_):
        self.connection.close()


def _events(lines, last, pause):
    """Server-sent events: name, data, id, and how many seconds to wait before connecting again."""
    name, data = "", []
    for line in lines:
        line = line.decode().rstrip("\r\n")
        if not line:
            if data:
                yield name, "\n".join(data), last, pause
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last = value
        elif field == "retry" and value.isdigit():
            pause = min(10.0, int(value) / 1000)


def _blocks(lines, size=64 * 1024):
    """Many lines at a time, for each piece that is sent costs a system call."""
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= size:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _line(item):
    return json.dumps(item, separators=(",", ":")).encode() + b"\n"


def _once(key):
    return {"idempotency-key": key} if key else {}


def _quote(text):
    return urllib.parse.quote(text, safe="")


def _problem(body):
    try:
        problem = json.loads(body)
        return problem if isinstance(problem, dict) else {}
    except ValueError:
        return {"detail": body[:200].decode(errors="replace")}


def _time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main():
    parser = argparse.ArgumentParser(description="Submits, follows, or works for a Keylane server.")
    parser.add_argument("--server", default=os.environ.get("KEYLANE_SERVER", "http://127.0.0.1:7420"))
    commands = parser.add_subparsers(dest="command", required=True)
    submit = commands.add_parser("submit", help="submit lines of JSON from standard input, a subtask each")
    submit.add_argument("kind")
    submit.add_argument("--key", help="the member of each line that has its key")
    watch = commands.add_parser("watch", help="show what happens to a job")
    watch.add_argument("id")
    work = commands.add_parser("work", help="do subtasks: echo their payloads")
    work.add_argument("kind", nargs="+")
    args = parser.parse_args()
    keylane = Keylane(args.server, os.environ.get("KEYLANE_TOKEN"))

    if args.command == "submit":
        def subtasks():
            for line in sys.stdin:
                payload = json.loads(line)
                key = payload.get(args.key) if args.key else None
                yield {"payload": payload, **({} if key is None else {"key": str(key)})}

        print(keylane.submit_lines(args.kind, subtasks())["id"])
    elif args.command == "watch":
        for event in keylane.events(args.id):
            if job := event.get("job"):
                print(job["state"], f"{job['progress']:.0%}", flush=True)
    else:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        keylane.work(args.kind, lambda task: task.payload, worker=os.uname().nodename, stop=stop)


if __name__ == "__main__":
    main()
