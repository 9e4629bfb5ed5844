"""The API without a client: what the suite sees and does beside the testee."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Optional, TypeVar

import httpx

from .testee import TIMEOUT

T = TypeVar("T")


class Api:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT)

    def get(self, path: str, **query: Any) -> Any:
        response = self._http.get(path, params=query)
        response.raise_for_status()
        return response.json()

    def post(self, path: str, body: Optional[dict[str, Any]] = None) -> Any:
        response = self._http.post(path, json=body or {})
        response.raise_for_status()
        return response.json() if response.content else None

    def jobs(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get("/v1/jobs")["items"]
        return items

    def subtask(self, job: str, number: int) -> dict[str, Any]:
        subtask: dict[str, Any] = self.get(f"/v1/jobs/{job}/subtasks/{number}")
        return subtask

    def results(self, job: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/v1/jobs/{job}/results", limit=1000)["items"]
        return items

    def leases_of(self, worker: str) -> int:
        """Returns the number of leases of a worker."""
        workers = self.get("/v1/workers")["items"]
        found = [item["leases"] for item in workers if item.get("name") == worker]
        return int(found[0]) if found else 0

    def do(self, kind: str, count: int) -> None:
        """Does `count` subtasks of a kind. The result of each is its payload."""
        claim = {"kinds": [kind], "max": 1000, "wait_ms": 10_000, "worker": "suite"}
        leases = self.post("/v1/leases", claim)["leases"]
        while True:
            ends = [{"id": lease["id"], "result": lease["payload"]} for lease in leases]
            count -= len(ends)
            body: dict[str, Any] = {"leases": ends, **({"claim": claim} if count else {})}
            answer = self.post("/v1/leases/complete", body)
            if not count:
                return
            leases = answer["leases"]
            assert leases, f"{count} subtasks of {kind} are missing"


def eventually(holds: Callable[[], T], what: str) -> T:
    """Asks until the answer is true, and returns it."""
    deadline = time.monotonic() + TIMEOUT
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"not seen within {TIMEOUT} seconds: {what}"
        time.sleep(0.02)
    return answer
