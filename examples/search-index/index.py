"""The search index, in a file of SQLite with its extension FTS5.

python3 index.py FILE search WORDS    prints the best sections
python3 index.py FILE rows            prints id and revision of each row
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

SCHEMA = """
CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5 (page UNINDEXED, heading, body, revision UNINDEXED);
-- For each row of the table its last change here. A deleted row stays, so that a late change cannot bring it back.
CREATE TABLE IF NOT EXISTS applied (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL, revision INTEGER NOT NULL);
"""


class Index:
    """The index. Each thread needs one of its own."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(SCHEMA)

    def apply(self, operation: str, row: dict[str, Any], fence: int) -> bool:
        """Applies a change, and returns `False` if a later one was applied before.

        Tasks of a row run in order. But a worker whose lease has expired may still write when another one has gone on;
        its fence is lower.
        """
        with self._transaction():
            last = self._db.execute("SELECT fence FROM applied WHERE id = ?", (row["id"],)).fetchone()
            if last is not None and last[0] > fence:
                return False
            self._db.execute("DELETE FROM search WHERE rowid = ?", (row["id"],))
            if operation != "DELETE":
                values = tuple(row[name] for name in ("id", "page", "heading", "body", "revision"))
                columns = "rowid, page, heading, body, revision"
                self._db.execute(f"INSERT INTO search ({columns}) VALUES (?, ?, ?, ?, ?)", values)
            change = (row["id"], fence, row["revision"])
            self._db.execute("INSERT OR REPLACE INTO applied VALUES (?, ?, ?)", change)
            return True

    def search(self, words: str) -> list[tuple[Any, ...]]:
        """Returns page, heading and an excerpt of the best sections."""
        best = """
            SELECT page, heading, snippet(search, 2, '[', ']', ' … ', 12) FROM search
            WHERE search MATCH ? ORDER BY bm25(search, 0, 5, 1) LIMIT 5"""
        return self._db.execute(best, (words,)).fetchall()

    def rows(self) -> list[tuple[Any, ...]]:
        """Returns all rows, by their ids."""
        return self._db.execute("SELECT rowid, page, heading, body, revision FROM search ORDER BY rowid").fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            yield


if __name__ == "__main__":
    match sys.argv[1:]:
        case [path, "search", *words]:
            for page, heading, excerpt in Index(path).search(" ".join(words)):
                print(f"{page}: {heading}\n    {' '.join(excerpt.split())}")
        case [path, "rows"]:
            for row in Index(path).rows():
                print(row[0], row[4])
        case _:
            sys.exit(__doc__)
