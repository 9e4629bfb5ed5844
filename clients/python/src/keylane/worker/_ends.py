"""Ends of leases, as items of the request that reports them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Optional

from .._json import encode
from ..errors import TaskFailure
from ..models import Lease

# Bounds of the server: leases in a request, bytes of a request's results, characters of an error.
MAX_LEASES = 1000
MAX_BYTES = 16 * 1024 * 1024
MAX_ERROR = 8000
MAX_LOG = 256 * 1024
# Batches stay well below the bound; a single result may come close to it.
BATCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LeaseEnd:
    """End of a lease: a result, a failure, or the return of a subtask that was not begun."""

    lease: Lease
    item: bytes


def succeeded(lease: Lease, result: Any, log: str) -> LeaseEnd:
    """Raises a `TaskFailure` for a result that the server cannot take."""
    try:
        text = encode(result)
    except (TypeError, ValueError) as error:
        raise TaskFailure(
            f"the handler returned a {type(result).__name__} that is no JSON: {error}", retry=False
        ) from error
    item = b'{"id":' + encode(lease.id) + b',"result":' + text + _log(log) + b"}"
    if len(item) > MAX_BYTES:
        raise TaskFailure(
            f"the result has {len(text)} bytes of JSON; the server takes {MAX_BYTES}", retry=False
        )
    return LeaseEnd(lease, item)


def failed(lease: Lease, failure: TaskFailure, log: str) -> LeaseEnd:
    body: dict[str, Any] = {"id": lease.id, "error": _printable(str(failure))[:MAX_ERROR]}
    if not failure.retry:
        body["retry"] = False
    if failure.after is not None:
        body["after_ms"] = round(failure.after * 1000)
    return LeaseEnd(lease, encode(body)[:-1] + _log(log) + b"}")


def released(lease: Lease) -> LeaseEnd:
    return LeaseEnd(lease, encode({"id": lease.id, "release": True}))


def take_batch(ends: deque[LeaseEnd]) -> list[LeaseEnd]:
    """Takes ends for one request from the front."""
    batch: list[LeaseEnd] = []
    size = 0
    while ends and len(batch) < MAX_LEASES:
        size += len(ends[0].item)
        if batch and size > BATCH_BYTES:
            break
        batch.append(ends.popleft())
    return batch


def log_text(lines: list[str], traceback: Optional[str]) -> str:
    parts = lines if traceback is None else [*lines, traceback]
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def _log(text: str) -> bytes:
    return b',"log":' + encode(_printable(text[-MAX_LOG:])) if text else b""


def _printable(text: str) -> str:
    """Replaces halves of surrogate pairs, which UTF-8 cannot have."""
    return text.encode(errors="replace").decode()
