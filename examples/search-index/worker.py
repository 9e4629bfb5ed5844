"""Applies the changes that the trigger in `schema.sql` submits to the index in $SEARCH_INDEX (default: index.db)."""

from __future__ import annotations

import os
import threading

from index import Index
from keylane import Task, Worker

worker = Worker(concurrency=8, max_leases=64)
own = threading.local()


def index() -> Index:
    """The index, for this thread."""
    if not hasattr(own, "index"):
        own.index = Index(os.environ.get("SEARCH_INDEX", "index.db"))
    found: Index = own.index
    return found


@worker.kind("index")
def apply(task: Task) -> bool:
    return index().apply(task.payload["operation"], task.payload["row"], task.fence)


@worker.kind("up-to-date")
def up_to_date(task: Task) -> None:
    """Has the key that all changes share: it runs when all earlier changes have been applied."""


if __name__ == "__main__":
    worker.run()
