#!/usr/bin/env python3
"""Measures how long a server takes to start with many unfinished jobs: start.py JOBS ROUNDS KEYLANE [KEYLANE..]

Jobs of one subtask on 1,000 keys, due in an hour, are stored in a file and in PostgreSQL, and the server is killed. Then each program starts
in turn with each store, and is killed. Prints the time from the start of the process to the first request that is answered by the service:
medians and ranges in milliseconds. PostgreSQL is started from Debian's package.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

from leased_servers import DATABASE_PORT, PORT, create, database_server

AT_ONCE = 1_000
ADDRESS = f"http://127.0.0.1:{PORT}"


def is_ready():
    try:
        return urllib.request.urlopen(f"{ADDRESS}/readyz").status == 200
    except (urllib.error.URLError, OSError):
        return False


def started(program, folder, store):
    """Starts a server, and waits until it is ready. Returns it with the time that this took."""
    command = [program, "serve", "--store", store, "--listen", f"127.0.0.1:{PORT}", "--kind", "work=cat"]
    begin = time.monotonic()
    with open(folder / "log", "a") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "XDG_DATA_HOME": str(folder)})
    while not is_ready():
        if server.poll() is not None:
            raise RuntimeError((folder / "log").read_text())
        time.sleep(0.01)
    return server, (time.monotonic() - begin) * 1000


def killed(server):
    server.kill()
    server.wait()


def fill(jobs):
    for first in range(0, jobs, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, jobs))
        batch = [{"kind": "work", "key": f"key-{n % 1_000}", "payload": n, "delay_ms": 3_600_000} for n in numbers]
        headers = {"content-type": "application/json"}
        body = json.dumps({"jobs": batch}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{ADDRESS}/v1/jobs/batch", body, headers)).read()


def main():
    jobs, rounds, *programs = sys.argv[1:]
    times = {}
    with database_server() as folder:
        create("start")
        stores = {"file": str(folder / "store.db"), "PostgreSQL": f"postgres://keylane@127.0.0.1:{DATABASE_PORT}/start"}
        for store in stores.values():
            server, _ = started(programs[0], folder, store)
            fill(int(jobs))
            killed(server)
        for _ in range(int(rounds)):
            for name, store in stores.items():
                for program in programs:
                    server, took = started(program, folder, store)
                    times.setdefault((name, program), []).append(took)
                    killed(server)
    for (name, program), values in times.items():
        print(f"{name}, {program}: {statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f}) ms")


if __name__ == "__main__":
    main()
