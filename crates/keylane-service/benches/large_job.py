#!/usr/bin/env python3
"""Measures how long other requests wait while a large job is accepted, cancelled, read and retried. Linux, loopback only.

    cargo build --profile dist -p keylane-cli
    python3 crates/keylane-service/benches/large_job.py target/dist/keylane 1000000

Another process asks one request after the other all the time: it submits a job with a key of its own, and asks for that.
For each phase the number of its requests, their p50 and p99, and the longest are printed; and for how long the large job
kept its phase. `idle` is before the large job, so it shows what the machine adds. In the phase `read` all results of a job
of a tenth of the size, which has ended before, are read by number and by key, beside the upload of a second large job.
"""

import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time


# Answers each task at once.
WORKER = """
import json, sys
print('{"op":"ready"}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["op"] == "task":
        print('{"op":"done","id":%s,"result":1}' % json.dumps(message["id"]), flush=True)
"""


class Client:
    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self):
        said = b""
        while b"\r\n\r\n" not in said:
            part = self.stream.recv(1 << 16)
            if not part:
                raise ConnectionError(said)
            said += part
        head, _, rest = said.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        while len(rest) < length:
            rest += self.stream.recv(1 << 16)
        assert head.split(b" ")[1][:1] == b"2", (head, rest)
        return json.loads(rest)

    def ask(self, method, path, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(text)}\r\n\r\n"
        )
        self.stream.sendall(head.encode() + text)
        return self.answer()

    def upload(self, count, kind="wait"):
        """Submits a job with `count` subtasks, each with a key of its own."""
        head = (
            "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
            "transfer-encoding: chunked\r\n\r\n"
        )
        self.stream.sendall(head.encode())
        text = ['{"kind":"%s"}\n' % kind]
        for number in range(count):
            text.append('{"key":"customer-%d"}\n' % number)
            if number % 50_000 == 49_999 or number + 1 == count:
                part = "".join(text).encode()
                self.stream.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
                text = []
        self.stream.sendall(b"0\r\n\r\n")
        return self.answer()["id"]


def read_results(port, job, order, lines):
    """Reads all results of a job as one stream, and adds their number to `lines`."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/v1/jobs/{job}/results?order={order}", headers={"accept": "application/x-ndjson"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    number = 0
    while part := response.read(1 << 20):
        number += part.count(b"\n")
    lines.append(number)


def probe(port, stop, phase, times):
    client = Client(port)
    while not stop.is_set():
        begin, at = time.monotonic(), phase.value
        job = client.ask("POST", "/v1/jobs", {"kind": "wait", "key": "another", "payload": 1})["id"]
        middle = time.monotonic()
        client.ask("GET", f"/v1/jobs/{job}")
        end = time.monotonic()
        times.put((at, (middle - begin) * 1000, (end - middle) * 1000))
        time.sleep(0.002)
    times.put(None)


def wait_until(client, job, wanted):
    begin = time.monotonic()
    while True:
        job_now = client.ask("GET", f"/v1/jobs/{job}")
        if wanted(job_now):
            return time.monotonic() - begin
        time.sleep(0.1)


def is_whole(job):
    reasons = [reason["reason"] for reason in job.get("waiting_because", [])]
    return "entering" not in reasons


def run(port, count, ended, phase, lasted):
    def during(number, work):
        phase.value = number
        begin = time.monotonic()
        result = work()
        lasted.append(time.monotonic() - begin)
        return result

    during(0, lambda: time.sleep(5))
    # Not earlier: the server closes a connection without a request.
    client = Client(port)
    job = during(1, lambda: client.upload(count))
    during(2, lambda: wait_until(client, job, is_whole))

    def cancel():
        client.ask("POST", f"/v1/jobs/{job}/cancel", {"mode": "kill"})
        wait_until(client, job, lambda job: job["state"] == "cancelled")

    during(3, cancel)

    def read():
        lines = []
        orders = ["submit", "key"]
        readers = [threading.Thread(target=read_results, args=(port, ended, order, lines)) for order in orders]
        for reader in readers:
            reader.start()
        second = Client(port).upload(count)
        for reader in readers:
            reader.join()
        assert lines == [max(1, count // 10)] * len(orders), lines
        client.ask("POST", f"/v1/jobs/{second}/cancel", {"mode": "kill"})
        wait_until(client, second, lambda job: job["state"] == "cancelled")

    during(4, read)

    def retry():
        client.ask("POST", f"/v1/jobs/{job}/retry", {"only": "unsuccessful"})
        wait_until(client, job, is_whole)

    during(5, retry)
    phase.value = 6


NAMES = ["idle", "accepted", "entering", "cancelled", "read", "retried", "after"]


def main(keylane, count):
    folder = tempfile.TemporaryDirectory()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = os.path.join(folder.name, "keylane.toml")
    with open(config, "w") as file:
        file.write(
            f'[server]\nlisten = "127.0.0.1:{port}"\nstore = "{folder.name}/store"\n[kinds.wait]\nlease = "30s"\n'
            f'[kinds.done]\nworker = ["python3", "-c", {json.dumps(WORKER)}]\n'
        )
    server = subprocess.Popen([keylane, "serve", "--config", config], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while True:
        try:
            Client(port).ask("GET", "/readyz")
            break
        except (ConnectionRefusedError, AssertionError):
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.02)
    client = Client(port)
    ended = client.upload(max(1, count // 10), "done")
    wait_until(client, ended, lambda job: job["state"] == "succeeded")
    stop, phase, times = multiprocessing.Event(), multiprocessing.Value("i", 0), multiprocessing.Queue()
    prober = multiprocessing.Process(target=probe, args=(port, stop, phase, times))
    prober.start()
    lasted = []
    run(port, count, ended, phase, lasted)
    stop.set()
    found = {}
    for at, submitted, asked in iter(times.get, None):
        found.setdefault(at, []).append((submitted, asked))
    prober.join()
    print(f"{count} subtasks; milliseconds of a submission, of a question: p50, p99, longest")
    for at, duration in enumerate(lasted):
        requests = found.get(at, [])
        columns = []
        for one in zip(*requests):
            one = sorted(one)
            columns.append(f"{one[len(one) // 2]:7.2f} {one[int(len(one) * 0.99)]:7.2f} {one[-1]:7.1f}")
        print(f"{NAMES[at]:10} {duration:6.1f} s {len(requests):6}  {'   '.join(columns)}")
    with open(f"/proc/{server.pid}/status") as file:
        print(next(line for line in file if line.startswith("VmHWM")).strip())
    server.terminate()
    server.wait()
    folder.cleanup()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
