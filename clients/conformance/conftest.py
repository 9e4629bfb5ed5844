"""Fixtures: a server, a proxy in front of it, and the testees of the command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Optional

import pytest
from keylane.testing import Kinds, Server

from harness.api import Api
from harness.postgres import database, find_initdb
from harness.proxy import Proxy
from harness.testee import Testee

StartTestee = Callable[..., Testee]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--testee",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="testee of a client, and the command that starts it; repeat the option for more",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "command" not in metafunc.fixturenames:
        return
    testees = dict(text.partition("=")[::2] for text in metafunc.config.getoption("--testee"))
    if not testees or not all(testees.values()):
        raise pytest.UsageError("no testee; give --testee NAME=COMMAND, as in the README")
    metafunc.parametrize("command", testees.values(), ids=testees.keys())


@pytest.fixture
def keylane_kinds() -> Kinds:
    quick = {"backoff": "10ms..10ms", "attempts": 3}
    return {
        # The leases of `slow` do not expire during a test.
        "slow": {"lease": "10m", **quick},
        "short": {"lease": "1s", **quick},
        "echo": {"command": ["cat"]},
    }


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    initdb = find_initdb()
    if initdb is None:
        if os.environ.get("KEYLANE_REQUIRE_PARTS") == "1":
            pytest.fail("initdb is missing; install PostgreSQL")
        pytest.skip("initdb is missing; install PostgreSQL")
    with database(initdb) as address:
        yield address


@pytest.fixture
def database_url(postgres: str, request: pytest.FixtureRequest) -> str:
    """An empty database of the test."""
    name = f"test_{os.getpid()}_{abs(hash(request.node.nodeid))}"
    subprocess.run(["psql", "-qc", f"CREATE DATABASE {name}", f"{postgres}/postgres"], check=True)
    return f"{postgres}/{name}"


@pytest.fixture
def server(keylane_server: Server) -> Server:
    return keylane_server


@pytest.fixture
def api(server: Server) -> Api:
    return Api(server.url)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.url)
    yield proxy
    proxy.close()


@pytest.fixture
def start(command: str) -> Iterator[StartTestee]:
    """Starts testees with base URLs."""
    started: list[Testee] = []

    def start(*urls: str, token: Optional[str] = None) -> Testee:
        started.append(Testee(command, list(urls), token))
        return started[-1]

    yield start
    for testee in started:
        testee.close()


@pytest.fixture
def testee(start: StartTestee, server: Server) -> Testee:
    """A testee that reaches the server directly."""
    return start(server.url)


@pytest.fixture
def behind(start: StartTestee, proxy: Proxy) -> Testee:
    """A testee that reaches the server through the proxy."""
    return start(proxy.url)
