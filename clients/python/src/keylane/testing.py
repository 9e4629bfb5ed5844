"""A real server for tests, without or with pytest.

from keylane.testing import Server

with Server(kinds={"render": {"lease": "30s"}}) as server:
    client = Client(server.url)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from .errors import KeylaneError

Kinds = Mapping[str, Mapping[str, Any]]


class ServerError(KeylaneError):
    """The server did not start, or has ended by itself. The text has what it printed."""


def program() -> str:
    """Returns the path of the command: `KEYLANE_PROGRAM`, or `keylane` beside Python or in PATH."""
    named = os.environ.get("KEYLANE_PROGRAM")
    if named:
        return named
    suffix = ".exe" if sys.platform == "win32" else ""
    installed = Path(sysconfig.get_path("scripts")) / f"keylane{suffix}"
    if installed.exists():
        return str(installed)
    found = shutil.which("keylane")
    if found is None:
        raise ServerError(
            "the program keylane is not in PATH; install it, or set KEYLANE_PROGRAM to its path"
        )
    return found


class Server:
    """`keylane serve` on a free port of this machine, with a store in a temporary folder.

    `kinds` and `settings` are the tables of the configuration: `[kinds.NAME]` and `[server]`.
    `arguments` are more arguments of the command, and `environment` more variables.
    """

    def __init__(
        self,
        kinds: Optional[Kinds] = None,
        settings: Optional[Mapping[str, Any]] = None,
        *,
        arguments: tuple[str, ...] = (),
        environment: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="keylane-"))
        self._arguments = arguments
        self._environment = dict(environment or {})
        self._process: Optional[subprocess.Popen[str]] = None
        self._output: list[str] = []
        self._printed = threading.Condition()
        self._listens = self._ended = False
        self._reader: Optional[threading.Thread] = None
        self._address = "127.0.0.1:0"
        self.url = ""
        """Base URL of the server. It stays the same over restarts."""
        own = {"store": str(self._folder / "keylane.db"), **(settings or {})}
        self.config = self._folder / "keylane.toml"
        """The configuration file, which the next start reads again."""
        self.config.write_text(to_toml({"server": own, "kinds": dict(kinds or {})}))

    def start(self, *, wait: bool = True) -> None:
        """Starts the server, and waits until it is ready.

        With `wait=False` it returns at once: for a server that waits for the store of another one.
        """
        if not wait and not self.url:
            # Such a server prints its address when it has the store.
            self._address = f"127.0.0.1:{free_port()}"
            self.url = f"http://{self._address}"
        self._listens = self._ended = False
        arguments = ["--config", str(self.config), "--listen", self._address, *self._arguments]
        self._process = subprocess.Popen(
            [program(), "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self._environment},
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Waits until the server has opened its store, and listens."""
        with self._printed:
            self._printed.wait_for(lambda: self._listens or self._ended, timeout)
        if not self._listens:
            raise ServerError(f"keylane serve did not start:\n{self.output}")

    def wait_output(self, text: str, timeout: float = 30.0) -> None:
        """Waits until the server has printed a text, such as `stopping`."""
        with self._printed:
            found = self._printed.wait_for(lambda: text in self.output or self._ended, timeout)
        if not found or text not in self.output:
            raise ServerError(f"keylane serve did not print {text!r}:\n{self.output}")

    def stop(self, timeout: float = 30.0) -> None:
        """Stops the server as a service manager does, and waits for its end."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        self._end(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL, 30.0)

    def restart(self) -> None:
        """Stops the server, and starts it again at the same address with the same store."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kills the server, and removes its folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def output(self) -> str:
        """Lines that the server has printed since its creation."""
        return "".join(self._output)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._printed:
                self._output.append(line)
                _, found, url = line.partition("listening on ")
                if found:
                    self.url = url.strip()
                    self._address = self.url.partition("://")[2]
                    self._listens = True
                self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()

    def _end(self, number: int, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()


def free_port() -> int:
    """Returns a port that no program of this machine listens at."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def to_toml(tables: Mapping[str, Any]) -> str:
    """Returns tables as TOML: the part of it that a configuration needs."""
    lines: list[str] = []
    _table("", tables, lines)
    return "\n".join(lines) + "\n"


def _table(path: str, table: Mapping[str, Any], lines: list[str]) -> None:
    if path:
        lines.append(f"[{path}]")
    inner = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            inner[name] = value
        elif value is not None:
            lines.append(f"{_name(name)} = {_value(value)}")
    for name, value in inner.items():
        _table(f"{path}.{_name(name)}" if path else _name(name), value, lines)


def _name(name: str) -> str:
    return json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, (str, bool, int, float)):
        # These are written alike in JSON and TOML.
        return json.dumps(value)
    raise TypeError(f"a {type(value).__name__} cannot be in a configuration: {value!r}")
