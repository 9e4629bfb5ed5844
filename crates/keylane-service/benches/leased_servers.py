#!/usr/bin/env python3
"""Measures kinds with a lease at one server and at three: leased_servers.py KEYLANE FLIGHTS [ROUNDS]

FLIGHTS is a table of flights, such as examples/data/flights-2013-week1.csv. Each round submits it, with the aircraft as the key, to new
servers with new databases: without a lease at one server, with one at one server, and with one at three. Each server has two long-lived
workers that answer at once. PostgreSQL is started from Debian's package. Prints the subtasks per second: medians and ranges.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = """
import json, sys
print('{"op":"ready"}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["op"] == "task":
        print('{"op":"done","id":%s,"result":1}' % json.dumps(message["id"]), flush=True)
"""
PORT = 7610
DATABASE_PORT = 7600
QUIET = {"check": True, "stdout": subprocess.DEVNULL}


def as_owner(command):
    """PostgreSQL refuses to run as root."""
    user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return [*user, *command] if os.geteuid() == 0 else command


def started(program, folder, database, number, lease):
    """Starts a server, and waits until it owns the store or knows the server that does."""
    folder.mkdir()
    config, log = folder / "keylane.toml", folder / "log"
    config.write_text(
        f'[server]\nlisten = "127.0.0.1:{PORT + number}"\ndata_folder = "{folder}"\n'
        f'store = "postgres://keylane@127.0.0.1:{DATABASE_PORT}/{database}"\n'
        f'[kinds.flight]\nworker = ["python3", "-c", {json.dumps(WORKER)}]\nworkers = 2\n' + ('lease = "10s"\n' if lease else "")
    )
    with log.open("w") as output:
        server = subprocess.Popen([program, "serve", "--config", config], stdout=output, stderr=output)
    while not any(text in log.read_text() for text in ["dashboard", "owns the store"]):
        if server.poll() is not None:
            raise RuntimeError(log.read_text())
        time.sleep(0.05)
    return server


def create(database):
    connection = ["-h", "127.0.0.1", "-p", str(DATABASE_PORT), "-U", "keylane"]
    subprocess.run(["createdb", *connection, database], **QUIET)


def measure(program, flights, folder, database, servers, lease):
    create(database)
    running = [started(program, folder / f"{database}-{number}", database, number, lease) for number in range(servers)]
    try:
        fields = ["--csv", flights, "--header", "--key", "tailnum", "--null-value", "NA"]
        begin = time.monotonic()
        subprocess.run([program, "submit", "flight", "--server", f"http://127.0.0.1:{PORT}", *fields, "--wait"], **QUIET, stderr=subprocess.DEVNULL)
        return (len(Path(flights).read_text().splitlines()) - 1) / (time.monotonic() - begin)
    finally:
        for server in running:
            server.terminate()
        for server in running:
            server.wait()


@contextlib.contextmanager
def database_server():
    """Runs PostgreSQL. Yields a folder for the servers."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        data = f"{folder}/database"
        subprocess.run(as_owner([binaries / "initdb", "-A", "trust", "-U", "keylane", "-D", data]), **QUIET)
        options = f"-p {DATABASE_PORT} -k {data}"
        subprocess.run(as_owner([binaries / "pg_ctl", "-D", data, "-w", "-o", options, "start"]), **QUIET)
        try:
            yield Path(folder)
        finally:
            subprocess.run(as_owner([binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop"]), **QUIET)


def main():
    program, flights, *rounds = sys.argv[1:]
    cases = {"without a lease, one server": (1, False), "with a lease, one server": (1, True), "with a lease, three servers": (3, True)}
    rates = {name: [] for name in cases}
    with database_server() as folder:
        for number in range(int(rounds[0]) if rounds else 5):
            for place, (name, case) in enumerate(cases.items()):
                rates[name].append(measure(program, flights, folder, f"b{number}_{place}", *case))
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")


if __name__ == "__main__":
    main()
