#!/usr/bin/env python3
"""Compares builds of the command with different allocators: packages/allocators.py FLIGHTS ROUNDS PROGRAM...

FLIGHTS is a table of flights, such as examples/data/flights-2013-week1.csv. Each round runs all programs in turns: `run --worker` over the
flights, and a server that gets them as subtasks of one job, and then 2,000 jobs of one subtask each from 8 clients. Prints
the medians and ranges of the time, of the processor time, and of the largest resident memory.
"""

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Answers each task at once.
WORKER = """
import json, sys
print('{"op":"ready"}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["op"] == "task":
        print('{"op":"done","id":%s,"result":1}' % json.dumps(message["id"]), flush=True)
"""
FIELDS = ["--csv", "--header", "--key", "tailnum", "--null-value", "NA"]
PORT = 7499
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def usage(process):
    """Waits for a process; returns its processor time."""
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{process.args} ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def run(program, flights):
    begin = time.monotonic()
    process = subprocess.Popen([program, "run", "--worker", "-j", "2", *FIELDS, flights, "--", "cat"], **QUIET)
    processor, memory = usage(process)
    return {"run": (time.monotonic() - begin, processor, memory)}


def submit_small_jobs(count):
    client = http.client.HTTPConnection("127.0.0.1", PORT)
    for number in range(count):
        body = json.dumps({"kind": "flight", "subtasks": [{"payload": number}]})
        client.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
        response = client.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{response.status}: {text}")


def status(process):
    """Processor time and largest resident memory of a running process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    memory = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(memory[1]) / 1024


def serve(program, flights):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "keylane.toml")
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{PORT}"\nstore = "{folder}/keylane.db"\n'
            f'[kinds.flight]\nworker = ["python3", "-c", {json.dumps(WORKER)}]\nworkers = 2\n'
        )
        server = subprocess.Popen([program, "serve", "--config", config], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for line in server.stdout:
                if "listening" in line:
                    break
            threading.Thread(target=server.stdout.read, daemon=True).start()
            begin = time.monotonic()
            command = [program, "submit", "flight", "--server", f"http://127.0.0.1:{PORT}", *FIELDS[:1], flights, *FIELDS[1:], "--wait"]
            subprocess.run(command, check=True, **QUIET)
            large = (time.monotonic() - begin, *status(server))
            begin = time.monotonic()
            clients = [threading.Thread(target=submit_small_jobs, args=[250]) for _ in range(8)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            processor, memory = status(server)
            small = (time.monotonic() - begin, processor - large[1], memory)
        finally:
            server.terminate()
            server.wait()
        return {"serve, one large job": large, "serve, 2,000 jobs": small}


def main():
    flights, rounds, *programs = sys.argv[1:]
    results = {}
    for _ in range(int(rounds)):
        for program in programs:
            for name, values in (run(program, flights) | serve(program, flights)).items():
                results.setdefault((name, program), []).append(values)
    print("workload, program: seconds | seconds of processor time | largest resident memory in MiB")
    for (name, program), values in sorted(results.items()):
        columns = [f"{statistics.median(column):.2f} ({min(column):.2f}-{max(column):.2f})" for column in zip(*values)]
        print(f"{name}, {Path(program).name}: {' | '.join(columns)}")


if __name__ == "__main__":
    main()
