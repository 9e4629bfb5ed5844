"""The index follows the table: in order per row, however many connections change it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from keylane import Client, NotFoundError
from keylane.testing import Server

from conftest import EXAMPLES, Start, load, output_of, require

HERE = EXAMPLES / "search-index"
HARNESS = load(EXAMPLES.parent / "clients/conformance/harness/postgres.py")
Index = load(HERE / "index.py").Index

# Each change of an index file, for the test alone.
HISTORY = """
CREATE TABLE history (id INTEGER, revision INTEGER);
CREATE TRIGGER history AFTER INSERT ON applied
BEGIN INSERT INTO history VALUES (new.id, new.revision); END;
"""


@pytest.fixture
def database() -> Iterator[str]:
    with HARNESS.database(require("initdb", HARNESS.find_initdb())) as address:
        yield f"{address}/postgres"


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[Server]:
    kinds = tomllib.loads((HERE / "keylane.toml").read_text())["kinds"]
    # The leases of a killed worker end soon.
    kinds = {name: {**kind, "lease": "1s"} for name, kind in kinds.items()}
    with Server(kinds, {"store": database, "data_folder": str(tmp_path / "server")}) as server:
        yield server


def insert(connection: psycopg.Connection[Any], text: str) -> int:
    query = "INSERT INTO sections (page, heading, body) VALUES ('page', 'heading', %s) RETURNING id"
    row = connection.execute(query, (text,)).fetchone()
    assert row is not None
    number: int = row[0]
    return number


def change_rows(database: str, rows: list[int], seed: int) -> None:
    """Edits rows of all connections, and inserts and deletes its own. A third of this is rolled back."""
    chance, own = random.Random(seed), 0
    with psycopg.connect(database, autocommit=True) as connection:
        for turn in range(40):
            with connection.transaction(force_rollback=turn % 3 == 0):
                row = chance.choice(rows)
                edit = "UPDATE sections SET body = %s, revision = revision + 1 WHERE id = %s"
                connection.execute(edit, (f"edit {turn} of {seed}", row))
                connection.execute(edit, (f"second edit {turn} of {seed}", row))
                if turn % 4 == 1:
                    own = insert(connection, f"insert {turn} of {seed}")
                if turn % 8 == 3:
                    connection.execute("DELETE FROM sections WHERE id = %s", (own,))


def wait_for_index(client: Client, database: str) -> None:
    """Waits for a task behind all changes."""
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SELECT keylane.submit('up-to-date', key => 'sections')").fetchone()
    assert row is not None
    while True:
        try:
            client.wait(row[0]).check()
        except NotFoundError:
            continue  # the server takes it within a second
        return


def test_the_index_equals_the_table(start: Start, server: Server, database: str, tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    Index(str(path))
    history = sqlite3.connect(path)
    history.executescript(HISTORY)
    variables = {"KEYLANE_SERVER": server.url, "SEARCH_INDEX": str(path)}
    with psycopg.connect(database, autocommit=True) as connection, Client(server.url) as client:
        connection.execute((HERE / "schema.sql").read_text())
        rows = [insert(connection, f"text {number}") for number in range(12)]
        worker = start(sys.executable, HERE / "worker.py", **variables)
        with ThreadPoolExecutor() as threads:
            writers = [threads.submit(change_rows, database, rows, seed) for seed in range(5)]
            wait_for_index(client, database)
            os.killpg(worker.pid, signal.SIGKILL)
            server.kill()
            server.start()
            start(sys.executable, HERE / "worker.py", **variables)
            start(sys.executable, HERE / "worker.py", **variables)
            for writer in writers:
                writer.result()
        wait_for_index(client, database)
        table = connection.execute("SELECT id, page, heading, body, revision FROM sections ORDER BY id").fetchall()
        assert Index(str(path)).rows() == table
        assert len(table) > 12

    applied = history.execute("SELECT id, revision FROM history").fetchall()
    assert len(applied) > 250
    for row in rows:
        revisions = [revision for number, revision in applied if number == row]
        assert revisions == sorted(revisions)
        # Each one, and not only the last.
        assert set(revisions) == set(range(1, revisions[-1] + 1))


def test_a_late_change_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    old = {"id": 1, "page": "page", "heading": "heading", "body": "old", "revision": 1}
    new = {**old, "body": "new", "revision": 2}
    assert index.apply("INSERT", old, fence=10)
    assert index.apply("UPDATE", new, fence=12)
    assert not index.apply("INSERT", old, fence=10)
    assert [row[3] for row in index.rows()] == ["new"]
    assert index.apply("DELETE", new, fence=13)
    assert not index.apply("UPDATE", new, fence=12)
    assert index.rows() == []


def test_the_command_indexes_the_documentation(start: Start) -> None:
    require("initdb", HARNESS.find_initdb())
    output = output_of(start(HERE / "run"))
    assert "rows in their last revisions" in output
    assert "[rebalance]" in output


def test_the_command_takes_a_database(start: Start, database: str) -> None:
    assert "rows in their last revisions" in output_of(start(HERE / "run", database))
