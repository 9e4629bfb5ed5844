"""Bills the events that `submit.py` submits, into the ledger in $BILLING_LEDGER (default: ledger.db)."""

from __future__ import annotations

import os
import threading
from typing import Any

from keylane import Task, Worker
from ledger import Ledger

worker = Worker(concurrency=16)
own = threading.local()


def ledger() -> Ledger:
    """The ledger of this thread."""
    if not hasattr(own, "ledger"):
        own.ledger = Ledger(os.environ.get("BILLING_LEDGER", "ledger.db"))
    found: Ledger = own.ledger
    return found


@worker.kind("bill")
def bill(task: Task) -> dict[str, Any]:
    return ledger().bill(task.payload)


@worker.kind("close-day")
def close_day(task: Task) -> list[dict[str, Any]]:
    return ledger().close_day(task.payload["day"])


if __name__ == "__main__":
    worker.run()
