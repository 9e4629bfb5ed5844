"""Fixtures of the examples' tests: the command, a free address, and programs that end with their test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from keylane.testing import free_port, program

EXAMPLES = Path(__file__).parent

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables for programs of an example: they find the command, this Python, and a free address."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "keylane").symlink_to(Path(program()).resolve())
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("KEYLANE_SERVER", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("KEYLANE_TOKEN", raising=False)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return dict(os.environ)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Starts programs. What still runs at the end of the test is killed, with its children."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str | Path, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in command],
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        # The group can have processes although its leader has ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def output_of(process: subprocess.Popen[str], timeout: float = 90) -> str:
    """The standard output of a program that succeeds."""
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return output


def load(path: Path) -> ModuleType:
    """Imports a program of an example. Examples may have programs of the same name."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require(name: str, found: str | None) -> str:
    """Skips the test if a program was not found; in CI that is a failure."""
    if found is None:
        if os.environ.get("KEYLANE_REQUIRE_PARTS") == "1":
            pytest.fail(f"{name} is missing")
        pytest.skip(f"{name} is missing")
    return found
