"""Servers of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keylane import Client
from keylane.testing import Kinds, Server

pytest_plugins = ["pytester"]


@pytest.fixture
def keylane_kinds() -> Kinds:
    quick = {"backoff": "10ms..10ms", "attempts": 2}
    return {"task": {"lease": "1m", **quick}, "echo": {"command": ["cat"]}}


@pytest.fixture
def client(keylane_server: Server) -> Iterator[Client]:
    with Client(keylane_server.url) as client:
        yield client
