"""The ledger: one line per billed event, and one statement per account and day."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (
    account TEXT PRIMARY KEY,
    day TEXT NOT NULL,          -- day of the last event
    events INTEGER NOT NULL,    -- number of events on this day
    balance INTEGER NOT NULL    -- cents, over all days
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lines (
    event TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    day TEXT NOT NULL,
    number INTEGER NOT NULL,    -- number of the event on this day of the account, from 1
    cents INTEGER NOT NULL,
    balance INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lines_of_day ON lines (day, account);
CREATE TABLE IF NOT EXISTS days (day TEXT PRIMARY KEY) WITHOUT ROWID;
"""

# The tariff is invented: cents per departure, and per mile.
DEPARTURE, MILE, CANCELLED = 25_000, 12, 5_000
# From this event of a day on, an account pays 80 %. So the price of an event depends on those before it.
DISCOUNT_FROM = 21


class Ledger:
    """The ledger in a file of SQLite. Each thread needs one of its own."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(SCHEMA)

    def bill(self, event: dict[str, Any]) -> dict[str, Any]:
        """Bills an event, and returns its line. An event that comes again changes nothing."""
        with self._transaction():
            billed = self._one("SELECT * FROM lines WHERE event = ?", event["id"])
            if billed is not None:
                return billed
            if self._one("SELECT * FROM days WHERE day = ?", event["day"]) is not None:
                raise ValueError(f"event {event['id']} comes after the end of {event['day']}")
            account = self._one("SELECT * FROM accounts WHERE account = ?", event["account"])
            is_same_day = account is not None and account["day"] == event["day"]
            number = account["events"] + 1 if account is not None and is_same_day else 1
            cents = price(event, number)
            balance = cents + (account["balance"] if account is not None else 0)
            line = (event["id"], event["account"], event["day"], number, cents, balance)
            self._db.execute("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?)", line)
            state = (event["account"], event["day"], number, balance)
            self._db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?)", state)
            return {"number": number, "cents": cents, "balance": balance}

    def close_day(self, day: str) -> list[dict[str, Any]]:
        """Closes a day, and returns the statement of each account that had events."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO days VALUES (?)", (day,))
            totals = """
                SELECT account, count(*) AS events, sum(cents) AS cents, max(balance) AS balance
                FROM lines WHERE day = ? GROUP BY account ORDER BY account"""
            return [dict(row) for row in self._db.execute(totals, (day,))]

    def lines(self) -> list[dict[str, Any]]:
        """Returns all lines, by account and in the order of their billing."""
        ordered = "SELECT * FROM lines ORDER BY account, day, number"
        return [dict(row) for row in self._db.execute(ordered)]

    def _one(self, query: str, value: str) -> dict[str, Any] | None:
        row = self._db.execute(query, (value,)).fetchone()
        return None if row is None else dict(row)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            yield


def price(event: dict[str, Any], number: int) -> int:
    """Returns the price of an event in cents, if it is the `number`th of its account and day."""
    if event["cancelled"]:
        return CANCELLED
    full: int = DEPARTURE + MILE * event["miles"]
    return full if number < DISCOUNT_FROM else full * 8 // 10
