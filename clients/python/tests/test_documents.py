"""The tutorial is true: its blocks run one after another, as written, and print what it shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keylane.testing import Server, free_port, program

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/clients/python.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.\w+)\n")
END = "== the block has ended =="


class Shell:
    """One shell for the whole page, because later blocks name background jobs of earlier ones."""

    def __init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "-eu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, block: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{block}\necho '{END}'\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.rstrip() == END:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"this block failed:\n{block}\n{''.join(lines)}")

    def close(self) -> None:
        assert self._bash.stdin is not None
        with contextlib.suppress(OSError):
            self._bash.stdin.write("kill $(jobs -p) 2> /dev/null || true; wait\n")
            self._bash.stdin.close()
        self._bash.wait(30)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "keylane").symlink_to(program())
    paths = [str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shell = Shell()
    yield shell
    shell.close()


def test_the_blocks_of_the_tutorial_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 20
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("KEYLANE_SERVER", f"http://{address}")
    shell.run(f"export KEYLANE_SERVER=http://{address}")
    names: dict[str, Any] = {"__name__": "tutorial"}
    for (language, text), (follows, shown) in zip(blocks, [*blocks[1:], ("", "")]):
        if language == "text" or text.startswith("pip install"):
            continue
        file = FILE.match(text)
        if file:
            Path(file[1]).write_text(text)
            continue
        printed = run(shell, names, language, listening_at(text, address))
        if follows == "text":
            assert printed == shown, text


def test_the_example_of_the_readme_runs() -> None:
    [_, (_, example), *_] = BLOCK.findall((Path(__file__).parents[1] / "README.md").read_text())
    output = io.StringIO()
    with Server({"render": {"lease": "30s"}}) as server, contextlib.redirect_stdout(output):
        exec(example.replace("http://127.0.0.1:7420", server.url), {})
    assert len(output.getvalue().splitlines()) == 1000


def run(shell: Shell, names: dict[str, Any], language: str, text: str) -> str:
    if language == "sh":
        return shell.run(text)
    assert language == "python", text
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, str(PAGE), "exec"), names)
    return output.getvalue()


def listening_at(block: str, address: str) -> str:
    """Returns the block with a server at a free port, and a store in the folder of the test."""
    served = f"keylane serve --listen {address} "
    return block.replace("keylane serve ", served)
