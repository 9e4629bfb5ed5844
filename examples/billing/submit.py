"""Submits the flights of a file as billing events, and prints the statements of each day.

python3 submit.py FLIGHTS.csv
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keylane import Client, Job, Subtask

# Events share this key, and the end of a day has it alone. So the end of a day runs after all earlier events, of
# whatever account, and before all later ones. While no day ends, the key holds up nothing.
BOOKS = "books"


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Reads a billing event from each flight, in the order of the file."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            day = f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}"
            yield {
                "id": f"{day}-{row['carrier']}{row['flight']}-{row['origin']}",
                "day": day,
                "account": row["carrier"],
                "cancelled": row["dep_time"] == "NA",
                "miles": int(row["distance"]),
            }


def submit_day(client: Client, day: str, events: Iterator[dict[str, Any]]) -> Job:
    """Submits the events of a day and its end. Returns the job of the end.

    The jobs have ids of their own, so a day that is submitted again is the same day.
    """
    subtasks = (Subtask(event, key=event["account"], shared_keys=[BOOKS]) for event in events)
    client.submit("bill", subtasks=subtasks, id=f"flights-{day}")
    return client.submit("close-day", {"day": day}, key=BOOKS, id=f"end-of-{day}")


def print_statements(day: str, statements: list[dict[str, Any]]) -> None:
    print(f"{day}: {sum(row['events'] for row in statements)} events")
    for row in statements:
        print(
            f"  {row['account']}  {row['events']:4} events  {row['cents'] / 100:12,.2f}"
            f"  balance {row['balance'] / 100:14,.2f}"
        )


def main(path: Path) -> None:
    with Client() as client:
        days = itertools.groupby(read_events(path), key=lambda event: event["day"])
        # All days are submitted at once. Keylane keeps their order.
        ends = [(day, submit_day(client, day, events)) for day, events in days]
        for day, end in ends:
            client.wait(end).check()
            print_statements(day, next(client.results(end)).result)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
