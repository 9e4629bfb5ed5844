"""The tutorials are true: their blocks run in an empty folder, and print what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from keylane.testing import free_port, program

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|//) (\w+\.\w+)\n")
MARK = "== the end of a block =="


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a clone: of it only the packages, because a build changes them."""
    unbuilt = shutil.ignore_patterns("node_modules", "build", "dist", "__pycache__")
    for client in ("python", "typescript"):
        source = Path("clients") / client
        shutil.copytree(ROOT / source, tmp_path / "keylane" / source, ignore=unbuilt)
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "keylane").symlink_to(Path(program()).resolve())
    return tmp_path


def script_of(blocks: list[tuple[str, str]]) -> str:
    """Returns one script: blocks with the name of a file are written into it, and others run."""
    parts = ["set -euo pipefail"]
    for language, text in blocks:
        file = FILE.match(text)
        if file:
            parts.append(f"cat > {file[1]} <<'END-OF-FILE'\n{text}END-OF-FILE\n")
        elif language == "sh":
            parts.append(text)
        if language != "text":
            parts.append(f"echo '{MARK}'")
    return "\n".join(parts)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", ["python", "typescript"])
def test_the_blocks_run_and_print_what_the_page_shows(folder: Path, client: str) -> None:
    page = ROOT / f"docs/clients/{client}-tutorial.md"
    blocks = BLOCK.findall(page.read_text())
    steps = [number for number, (language, _) in enumerate(blocks) if language != "text"]
    assert len(steps) > 8
    assert {language for language, _ in blocks} <= {"sh", "toml", "text", "python", "ts"}
    address = f"127.0.0.1:{free_port()}"
    served = f"keylane serve --listen {address} "
    blocks = [(language, text.replace("keylane serve ", served)) for language, text in blocks]
    environment = {
        name: value
        for name, value in os.environ.items()
        # Not those of the environment in which this test runs.
        if name not in ("KEYLANE_TOKEN", "PYTHONPATH", "VIRTUAL_ENV")
    }
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["KEYLANE_SERVER"] = f"http://{address}"
    shell = subprocess.Popen(
        ["bash", "-c", script_of(blocks)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        # Not for the end of the output, which programs of a failed block would keep open.
        shell.wait(timeout=200)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    output, _ = shell.communicate()
    assert shell.returncode == 0, output
    *printed, rest = output.split(f"{MARK}\n")
    assert (len(printed), rest) == (len(steps), ""), output
    for step, text in zip(steps, printed):
        follows, shown = blocks[step + 1] if step + 1 < len(blocks) else ("", "")
        if follows == "text":
            assert text == shown, blocks[step][1]
