"""Fixtures for pytest, which are there as soon as the package is installed.

`keylane_server` is a real server for one test. Override `keylane_kinds` and `keylane_settings` in a
module or a `conftest.py` to configure it:

    @pytest.fixture
    def keylane_kinds():
        return {"render": {"lease": "30s", "attempts": 3}}

    def test_render(keylane_server):
        client = Client(keylane_server.url)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .testing import Kinds, Server


@pytest.fixture
def keylane_kinds() -> Kinds:
    """Kinds of the server of `keylane_server`; by default `task`, for workers."""
    return {"task": {"lease": "30s"}}


@pytest.fixture
def keylane_settings() -> Mapping[str, Any]:
    """Table `[server]` of the configuration of `keylane_server`."""
    return {}


@pytest.fixture
def keylane_server(keylane_kinds: Kinds, keylane_settings: Mapping[str, Any]) -> Iterator[Server]:
    """A real server on a free port, with a store in a temporary folder. It ends with the test."""
    with Server(keylane_kinds, keylane_settings) as server:
        yield server
