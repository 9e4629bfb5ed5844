"""Results are the same with the parallel consumer, with Keylane, and with a move from one to the other."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from keylane.testing import program

from conftest import EXAMPLES, Start, output_of, require

HERE = EXAMPLES / "from-parallel-consumer"


def read_flights() -> dict[str, list[str]]:
    """Flights of each aircraft, in order."""
    flights = defaultdict(list)
    with (EXAMPLES / "data/flights-2013-week1.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if "NA" not in (row["dep_time"], row["tailnum"]):
                flight = (
                    f"{row['carrier']}{row['flight']} {row['origin']} to {row['dest']} on {row['month']}-{row['day']}"
                )
                flights[row["tailnum"]].append(flight)
    return flights


@pytest.fixture
def parts() -> None:
    for name in ("mvn", "javac"):
        require(name, shutil.which(name))
    jars = Path(os.environ.get("KEYLANE_KAFKA_JARS", EXAMPLES.parent / "target/kafka-jars"))
    require("a broker of Kafka (.ci/kafka-jars)", str(jars) if jars.is_dir() else None)
    help_text = subprocess.run([program(), "consume", "--help"], capture_output=True, text=True, check=True).stdout
    require("Kafka in the command", "yes" if "This build has Kafka" in help_text else None)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("parts")
def test_a_move_in_the_middle_loses_and_repeats_nothing(start: Start, tmp_path: Path) -> None:
    output = output_of(start(HERE / "run", tmp_path / "results"), timeout=240)
    flights = read_flights()
    total = sum(map(len, flights.values()))
    assert f"before: the parallel consumer has handled {total // 2} of {total} flights" in output
    assert "are the same" in output
    for folder in ("stays", "moves"):
        logbooks = {path.name: path.read_text().splitlines() for path in (tmp_path / "results" / folder).iterdir()}
        assert {name: [line.split(" last seen")[0] for line in lines] for name, lines in logbooks.items()} == flights
