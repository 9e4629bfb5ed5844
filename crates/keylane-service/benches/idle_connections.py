#!/usr/bin/env python3
"""Measures what idle connections cost `keylane serve`, and what followers cost submissions. Linux, loopback only.

    cargo build --profile dist -p keylane-cli
    python3 crates/keylane-service/benches/idle_connections.py target/dist/keylane idle 4000
    python3 crates/keylane-service/benches/idle_connections.py target/dist/keylane idle-tls 2000
    python3 crates/keylane-service/benches/idle_connections.py target/dist/keylane followers 2000 100

`idle` opens that many WebSockets, and then that many streams of `/v1/events`, and prints the resident memory that each
takes; `idle-tls` does so over TLS, with the certificate of the tests. `followers` prints the latency of submissions at a
rate per second, without and with that many streams of `/v1/events`, whose reader is a process of its own.
"""

import functools
import json
import multiprocessing
import os
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

WEBSOCKET = (
    "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
EVENTS = "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"

PAPERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "papers")


class Server:
    def __init__(self, keylane, most, is_encrypted=False):
        self.folder = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = os.path.join(self.folder.name, "keylane.toml")
        with open(config, "w") as file:
            file.write(
                f'[server]\nlisten = "127.0.0.1:{self.port}"\nstore = "{self.folder.name}/store"\n'
                f"max_connections = {most + 200}\nmax_websockets = {most}\nmax_event_streams = {most}\n"
                + (
                    f'tls_certificates = "{PAPERS}/own-cert.pem"\ntls_key = "{PAPERS}/own-key.pem"\n'
                    if is_encrypted
                    else ""
                )
                + "[kinds.wait]\nlease = \"30s\"\n"
            )
        self.process = subprocess.Popen([keylane, "serve", "--config", config], stderr=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    sys.exit(f"the server ended with {self.process.returncode}")
                time.sleep(0.02)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def processor_time(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def open_one(port, request, tls=None):
    stream = socket.create_connection(("127.0.0.1", port))
    if tls is not None:
        stream = tls.wrap_socket(stream)
    stream.sendall(request.encode())
    said = stream.recv(4096)
    if b" 101 " not in said and b" 200 " not in said:
        sys.exit(f"refused: {said!r}")
    return stream


def idle(keylane, count, is_encrypted=False):
    tls = None
    if is_encrypted:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    for name, request in (("WebSocket", WEBSOCKET), ("event stream", EVENTS)):
        server = Server(keylane, count + 100, is_encrypted)
        # What the first connections need once is not theirs alone.
        first = [open_one(server.port, request, tls) for _ in range(100)]
        time.sleep(1)
        before = server.resident()
        streams = [open_one(server.port, request, tls) for _ in range(count)]
        time.sleep(2)
        each = (server.resident() - before) / count
        print(f"{count} of {name}: {each / 1024:.1f} KiB resident each")
        for stream in first + streams:
            stream.close()
        server.stop()


def follow(port, count, ready, stop, got):
    selector = selectors.DefaultSelector()
    for _ in range(count):
        stream = open_one(port, EVENTS)
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ)
    ready.set()
    room, count = bytearray(1 << 18), 0
    while not stop.is_set():
        for key, _ in selector.select(0.2):
            count += key.fileobj.recv_into(room)
    got.value = count


def submissions(port, rate, seconds):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = json.dumps({"kind": "wait", "key": "k", "payload": 1})
    request = (
        "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    times, next_at = [], time.monotonic()
    for _ in range(rate * seconds):
        next_at += 1 / rate
        time.sleep(max(0, next_at - time.monotonic()))
        begin = time.monotonic()
        stream.sendall(request)
        said = b""
        while b"\r\n\r\n" not in said:
            said += stream.recv(1 << 16)
        head, _, rest = said.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        while len(rest) < length:
            rest += stream.recv(1 << 16)
        assert b" 202 " in head, head
        times.append((time.monotonic() - begin) * 1000)
    return times


def show(name, times):
    times.sort()
    print(f"{name}: p50 {statistics.median(times):.2f} ms, p99 {times[int(len(times) * 0.99)]:.2f} ms")


def followers(keylane, count, rate):
    server = Server(keylane, count + 100)
    show("without followers", submissions(server.port, rate, 10))
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    got = multiprocessing.Value("Q")
    reader = multiprocessing.Process(target=follow, args=(server.port, count, ready, stop, got))
    reader.start()
    ready.wait()
    before = server.processor_time()
    show(f"with {count} followers", submissions(server.port, rate, 10))
    used = (server.processor_time() - before) / 10
    stop.set()
    reader.join()
    print(f"the server used {used:.2f} processors, and each follower got {got.value / count / 10 / 1024:.1f} KiB a second")
    server.stop()


if __name__ == "__main__":
    what, numbers = sys.argv[2], [int(number) for number in sys.argv[3:]]
    idle_tls = functools.partial(idle, is_encrypted=True)
    {"idle": idle, "idle-tls": idle_tls, "followers": followers}[what](sys.argv[1], *numbers)
