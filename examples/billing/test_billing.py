"""The statements are those of a sequential run, also if the server and a worker are killed meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tomllib
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from keylane import Client
from keylane.testing import Server

from conftest import EXAMPLES, Start, load, output_of

HERE = EXAMPLES / "billing"


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """The flights of the first two days."""
    lines = (EXAMPLES / "data/flights-2013-week1.csv").read_text().splitlines(keepends=True)
    days = [line for line in lines[1:] if line.startswith(("2013,1,1,", "2013,1,2,"))]
    path = tmp_path / "flights.csv"
    path.write_text("".join([lines[0], *days]))
    return path


def bill_one_by_one(path: Path) -> tuple[list[tuple[Any, ...]], str]:
    """Lines of the ledger and the printed statements, from a loop over the file."""
    lines, text = [], ""
    balances: Counter[str] = Counter()
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    for day, flights in itertools.groupby(rows, key=lambda row: f"{row[0]}-{row[1]:0>2}-{row[2]:0>2}"):
        numbers: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for row in flights:
            carrier = row[9]
            numbers[carrier] += 1
            full = 25_000 + 12 * int(row[15])
            cents = 5_000 if row[3] == "NA" else full if numbers[carrier] <= 20 else full * 8 // 10
            balances[carrier] += cents
            totals[carrier] += cents
            event = f"{day}-{carrier}{row[10]}-{row[12]}"
            lines.append((event, carrier, day, numbers[carrier], cents, balances[carrier]))
        text += f"{day}: {sum(numbers.values())} events\n"
        for carrier in sorted(numbers):
            text += (
                f"  {carrier}  {numbers[carrier]:4} events  {totals[carrier] / 100:12,.2f}"
                f"  balance {balances[carrier] / 100:14,.2f}\n"
            )
    return sorted(lines, key=lambda line: (line[1], line[2], line[3])), text


def test_the_command_prints_the_statements(start: Start, flights: Path) -> None:
    _, statements = bill_one_by_one(flights)
    assert statements in output_of(start(HERE / "run", flights))


def test_killed_servers_and_workers_change_no_statement(start: Start, flights: Path, tmp_path: Path) -> None:
    kinds = tomllib.loads((HERE / "keylane.toml").read_text())["kinds"]
    # The leases of a killed worker end soon.
    kinds = {name: {**kind, "lease": "1s"} for name, kind in kinds.items()}
    submit, ledger = load(HERE / "submit.py"), tmp_path / "ledger.db"
    with Server(kinds) as server, Client(server.url) as client:
        addresses = {"KEYLANE_SERVER": server.url, "BILLING_LEDGER": str(ledger)}
        # The first day is submitted twice, and counts once.
        day, events = next(itertools.groupby(submit.read_events(flights), key=itemgetter("day")))
        submit.submit_day(client, day, events)
        submission = start(sys.executable, HERE / "submit.py", flights, **addresses)
        for count in (100, 300):
            worker = start(sys.executable, HERE / "worker.py", **addresses)
            for _ in itertools.islice(client.results(f"flights-{day}", follow=True), count):
                pass
            os.killpg(worker.pid, signal.SIGKILL)
            server.kill()
            server.start()
        start(sys.executable, HERE / "worker.py", **addresses)
        lines, statements = bill_one_by_one(flights)
        assert output_of(submission) == statements
    billed = load(HERE / "ledger.py").Ledger(str(ledger)).lines()
    assert [tuple(line.values()) for line in billed] == lines
