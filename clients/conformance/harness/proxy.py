"""TCP proxy in front of a server. It records requests, and breaks connections on demand."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Optional

from .testee import TIMEOUT

REQUEST = re.compile(rb"([A-Z]+ /\S*) HTTP/1\.1\r\n")
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


@dataclass
class Rule:
    """Fault for the next requests whose line begins with `prefix`."""

    prefix: str
    what: Literal["lose-request", "lose-answer", "answer"]
    times: int
    answer: bytes = b""


class Proxy:
    """Forwards connections to `backend`, a base URL that may be down."""

    def __init__(self, backend: str) -> None:
        host, _, port = backend.partition("://")[2].partition(":")
        self._backend = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._changed = threading.Condition()
        self._rules: deque[Rule] = deque()
        self._open: set[socket.socket] = set()
        self._is_down = False
        self.connections = 0
        """Number of connections of the client so far."""
        self.requests: list[str] = []
        """Method and path of each request so far."""
        self.statuses: list[int] = []
        """Status of each answer so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    # Faults

    def lose_requests(self, prefix: str, times: int = 1) -> None:
        """Cuts connections before the request reaches the server."""
        self._rules.append(Rule(prefix, "lose-request", times))

    def lose_answers(self, prefix: str, times: int = 1) -> None:
        """Forwards requests, and cuts connections when the server answers."""
        self._rules.append(Rule(prefix, "lose-answer", times))

    def answer(self, prefix: str, status: int, *headers: str, times: int = 1) -> None:
        """Answers in place of the server."""
        head = "\r\n".join(
            [
                f"HTTP/1.1 {status} Refused",
                *headers,
                "content-length: 0",
                "connection: close",
                "",
                "",
            ]
        )
        self._rules.append(Rule(prefix, "answer", times, head.encode()))

    def cut(self) -> None:
        """Cuts all connections."""
        with self._changed:
            connections = list(self._open)
        for connection in connections:
            _close(connection)

    def go_down(self) -> None:
        """Cuts all connections, and refuses new ones until `come_back`."""
        self._is_down = True
        self.cut()

    def come_back(self) -> None:
        self._is_down = False

    # Signals

    def wait_until(self, holds: Callable[[Proxy], bool], what: str) -> None:
        """Waits until what was recorded satisfies a condition."""
        with self._changed:
            met = self._changed.wait_for(lambda: holds(self), TIMEOUT)
        assert met, f"not seen: {what}; requests: {self.requests[-20:]}, {self.statuses[-20:]}"

    def count(self, prefix: str) -> int:
        """Returns the number of requests so far whose line begins with `prefix`."""
        return sum(request.startswith(prefix) for request in self.requests)

    def close(self) -> None:
        self._is_down = True
        _close(self._listener)
        self.cut()

    # Connections

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = None if self._is_down else socket.create_connection(self._backend)
        except OSError:
            server = None
        if server is None:
            _close(client)
            return
        with self._changed:
            self._open |= {client, server}
        connection = Connection(self, client, server)
        threading.Thread(target=connection.relay_answers, daemon=True).start()
        connection.relay_requests()
        with self._changed:
            self._open -= {client, server}

    def note_request(self, line: str) -> Optional[Rule]:
        """Records a request, and returns the fault that is meant for it."""
        with self._changed:
            self.requests.append(line)
            self._changed.notify_all()
            for rule in self._rules:
                if line.startswith(rule.prefix):
                    rule.times -= 1
                    if rule.times == 0:
                        self._rules.remove(rule)
                    return rule
        return None

    def note_status(self, status: int) -> None:
        with self._changed:
            self.statuses.append(status)
            self._changed.notify_all()


class Connection:
    """A connection of the client, and the one to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._loses_answer = False

    def relay_requests(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._client.recv(65536):
                found = REQUEST.match(piece)
                if found:
                    rule = self._proxy.note_request(found[1].decode())
                    if rule is not None and rule.what == "lose-request":
                        break
                    if rule is not None and rule.what == "answer":
                        self._answer(rule.answer)
                        break
                    self._loses_answer = rule is not None
                self._server.sendall(piece)
        self._close()

    def relay_answers(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._server.recv(65536):
                if self._loses_answer:
                    break
                found = STATUS.match(piece)
                if found:
                    self._proxy.note_status(int(found[1]))
                self._client.sendall(piece)
        self._close()

    def _answer(self, answer: bytes) -> None:
        self._client.sendall(answer)
        self._client.shutdown(socket.SHUT_WR)
        # A body that is not read would reset the connection, and the answer with it.
        while self._client.recv(65536):
            pass

    def _close(self) -> None:
        _close(self._client)
        _close(self._server)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
