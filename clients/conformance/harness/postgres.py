"""A database of PostgreSQL for one session of tests."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from keylane.testing import free_port


def find_initdb() -> Optional[str]:
    found = shutil.which("initdb")
    return found or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)


@contextlib.contextmanager
def database(initdb: str) -> Iterator[str]:
    """Starts a database in a folder of its own, and returns its address."""
    programs = Path(os.path.realpath(initdb)).parent
    folder = Path(tempfile.mkdtemp(prefix="keylane-postgres-"))
    # PostgreSQL refuses to run as root.
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "keylane", "-A", "trust", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        user=user,
    )
    port = free_port()
    options = ["-p", str(port), "-k", str(folder), "-c", "fsync=off"]
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, *options],
        stderr=subprocess.PIPE,
        text=True,
        user=user,
    )
    try:
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "ready to accept connections" in line:
                break
        assert server.poll() is None, "".join(lines)
        yield f"postgres://keylane@127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGQUIT)
        server.communicate()
        shutil.rmtree(folder, ignore_errors=True)
