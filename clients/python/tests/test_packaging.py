"""The distribution: a wheel for every platform, and one that has the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from keylane.testing import program

# One process of pytest-xdist runs them all, with one environment.
pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(180)]

FOLDER = Path(__file__).parents[1]
# Of the package as it is installed, and nothing of this process.
USE = """
import keylane, keylane.testing, sys
assert keylane.__file__.startswith(sys.prefix), keylane.__file__
try:
    with keylane.testing.Server({"echo": {"command": ["cat"]}}) as server:
        with keylane.Client(server.url) as client:
            job = client.submit("echo", 1, wait=30)
            print(job.state, client.version(), keylane.testing.program())
except keylane.testing.ServerError as error:
    print(error)
"""


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds a wheel into a folder."""
    clean = {name: value for name, value in os.environ.items() if name[:8] != "KEYLANE_"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    return subprocess.run(
        [*command, str(FOLDER)],
        env={**clean, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def wheel_of(folder: Path, **environment: str) -> Path:
    built = build(folder, **environment)
    assert built.returncode == 0, built.stdout
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a new environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def use(scripts: Path, wheel: Path) -> str:
    """Installs a wheel in place of an earlier one, and returns what a program with it prints."""
    pip = [str(scripts / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "uninstall", "--yes", "keylane"], check=True)
    subprocess.run([*pip, "install", "--no-compile", str(wheel)], check=True)
    # Without the command of this machine, and with none but the environment's.
    environment = {name: value for name, value in os.environ.items() if name[:8] != "KEYLANE_"}
    environment["PATH"] = os.pathsep.join([str(scripts), "/usr/bin", "/bin"])
    used = subprocess.run(
        [scripts / "python", "-c", USE],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return used.stdout.strip()


def test_the_wheel_for_every_platform_has_the_client_alone(tmp_path: Path, scripts: Path) -> None:
    wheel = wheel_of(tmp_path)
    assert wheel.name == f"keylane-{version('keylane')}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert "keylane/py.typed" in names
    assert not any("scripts" in name for name in names)
    assert "the program keylane is not in PATH" in use(scripts, wheel)


def test_the_wheel_of_a_platform_has_the_command(tmp_path: Path, scripts: Path) -> None:
    binary = stripped(program(), tmp_path / "binary" / "keylane")
    wheel = wheel_of(tmp_path, KEYLANE_BINARY=str(binary))
    tag = wheel.stem.split("-", 2)[2]
    assert tag.startswith("py3-none-")
    assert sysconfig.get_platform().split("-")[-1] in tag
    number = version("keylane")
    script = scripts / binary.name
    assert use(scripts, wheel) == f"succeeded {number} {script}"
    shown = subprocess.run([script, "-V"], text=True, stdout=subprocess.PIPE, check=True)
    assert shown.stdout.strip() == f"keylane {number}"


def test_another_platform_can_be_named(tmp_path: Path) -> None:
    small = tmp_path / "keylane"
    small.write_text("#!/bin/sh\n")
    small.chmod(0o755)
    wheel = wheel_of(tmp_path, KEYLANE_BINARY=str(small), KEYLANE_PLATFORM="macosx_11_0_arm64")
    assert wheel.name.endswith("-py3-none-macosx_11_0_arm64.whl")


def test_a_missing_binary_is_named(tmp_path: Path) -> None:
    built = build(tmp_path, KEYLANE_BINARY="/nowhere/keylane")
    assert built.returncode != 0
    assert "KEYLANE_BINARY is /nowhere/keylane, which is no executable file" in built.stdout


def stripped(source: str, target: Path) -> Path:
    """Copies the command without its symbols, if the machine can: a wheel of it is built faster."""
    target.parent.mkdir()
    strip = shutil.which("strip")
    if strip is None:
        shutil.copy(source, target)
    else:
        subprocess.run([strip, "-o", target, source], check=True)
    return target
