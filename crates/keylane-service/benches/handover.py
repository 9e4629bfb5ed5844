#!/usr/bin/env python3
"""Measures how long a cluster of two servers refuses jobs while its owner is drained: handover.py KEYLANE [ROUNDS]

In each round the owner is drained through the other server, to which jobs of one subtask are sent meanwhile, one after another; then it is
resumed. Prints the time from the request to drain to the first answer of the next owner, and the longest time from sending a job to its
acceptance: medians and ranges in milliseconds. PostgreSQL is started from Debian's package.
"""

import http.client
import json
import statistics
import sys
import threading
import time
import urllib.parse

from leased_servers import PORT, create, database_server, started


def ask(connection, method, path, body=None):
    connection.request(method, path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def submit_until(end, connection, waits):
    """Submits jobs one after another, each until it is accepted, and adds the time of each to `waits`."""
    while not end.is_set():
        begin = time.monotonic()
        while ask(connection, "POST", "/v1/jobs", '{"kind":"flight","payload":1}')[0] != 202:
            time.sleep(0.001)
        waits.append((time.monotonic() - begin) * 1000)


def round_of(owner, other):
    """Drains a server through another one."""
    connections = [http.client.HTTPConnection("127.0.0.1", PORT + other) for _ in range(2)]
    # It may have been drained a moment ago, and not know the owner yet.
    while ask(connections[0], "GET", "/v1/nodes")[0] != 200:
        time.sleep(0.001)
    end, waits = threading.Event(), []
    submitting = threading.Thread(target=submit_until, args=(end, connections[1], waits))
    submitting.start()
    address = urllib.parse.quote(f"http://127.0.0.1:{PORT + owner}", safe="")
    begin = time.monotonic()
    status, answer = ask(connections[0], "POST", f"/v1/nodes/drain?address={address}")
    assert status == 200, answer
    is_next = False
    while not is_next:
        status, nodes = ask(connections[0], "GET", "/v1/nodes")
        is_next = status == 200 and any(node["owner"] and node["address"].endswith(str(PORT + other)) for node in json.loads(nodes)["items"])
    took = (time.monotonic() - begin) * 1000
    end.set()
    submitting.join()
    status, answer = ask(connections[0], "POST", f"/v1/nodes/resume?address={address}")
    assert status == 200, answer
    return took, max(waits)


def main():
    program, *rounds = sys.argv[1:]
    with database_server() as folder:
        create("handover")
        servers = [started(program, folder / f"server-{number}", "handover", number, True) for number in range(2)]
        try:
            results = [round_of(number % 2, 1 - number % 2) for number in range(int(rounds[0]) if rounds else 10)]
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
    for name, values in zip(["until the next owner answers", "longest wait of a job"], zip(*results)):
        print(f"{name}: {statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f}) ms")


if __name__ == "__main__":
    main()
