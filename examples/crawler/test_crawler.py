"""The crawler fetches each page once, and keeps the limits of each host."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from keylane import Client
from keylane.testing import Server

from conftest import EXAMPLES, Start, load, output_of

HERE = EXAMPLES / "crawler"
HREF = re.compile(r'href="([^"]+)"')
KIND = tomllib.loads((HERE / "keylane.toml").read_text())["kinds"]["fetch"]


@pytest.fixture
def site() -> Iterator[Any]:
    site = load(HERE / "site.py").Site()
    yield site
    site.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server({"fetch": KIND}) as server:
        yield server


def reachable(site: Any, without: Any = None) -> set[str]:
    """Pages that links lead to from the start pages, none through the host `without`."""
    found, waiting = set(), site.starts()
    while waiting:
        url = waiting.pop()
        if url not in found:
            found.add(url)
            if without is None or not url.startswith(f"{without.url}/"):
                path = url.split("/", 3)[3]
                waiting += HREF.findall(site.page(path) or "")
    return found


def fetched(site: Any) -> list[str]:
    return sorted(f"{host.url}/{path}" for host in site.hosts for path in host.paths if path != "robots.txt")


def test_each_page_is_fetched_once_within_the_limits_of_its_host(start: Start, server: Server, site: Any) -> None:
    address = {"KEYLANE_SERVER": server.url}
    slow = next(host for host in site.hosts if host.part == "docs")
    slow.gate.clear()
    start(sys.executable, HERE / "worker.py", **address)
    start(sys.executable, HERE / "worker.py", **address)
    crawl = start(sys.executable, HERE / "crawl.py", "test", *site.starts(), **address)

    # A host that does not answer gets two requests, and holds up no other host.
    others = {url for url in reachable(site, without=slow) if not url.startswith(f"{slow.url}/")}
    for host in site.hosts:
        pages = {url for url in others if url.startswith(f"{host.url}/")}
        with host.changed:
            assert host.changed.wait_for(lambda host=host, pages=pages: {*host.paths} >= paths_of(pages), 60)
    with slow.changed:
        assert slow.changed.wait_for(lambda: slow.open == KIND["max_per_key"], 60)
    slow.gate.set()

    output = output_of(crawl)
    pages = reachable(site)
    assert f"{len(pages)} pages of {len(site.hosts)} hosts" in output
    assert fetched(site) == sorted(pages)
    assert max(host.max_open for host in site.hosts) <= KIND["max_per_key"]
    check_rates(server)

    # A crawl of the same name has nothing left to do.
    again = start(sys.executable, HERE / "crawl.py", "test", *site.starts(), **address)
    assert sorted(output_of(again).splitlines()) == sorted(output.splitlines())
    assert fetched(site) == sorted(pages)


def paths_of(urls: set[str]) -> set[str]:
    return {url.split("/", 3)[3] for url in urls}


def check_rates(server: Server) -> None:
    """By the times at which the server has started the tasks, which it counts for the rate."""
    starts = defaultdict(list)
    with Client(server.url) as client:
        for job in client.jobs(label="crawl:test"):
            [result] = client.results(job)
            assert result.started_at is not None
            starts[result.keys[0]].append(result.started_at.timestamp())
    burst, interval = KIND["burst_per_key"], 1 / int(KIND["rate_per_key"].removesuffix("/s"))
    assert max(map(len, starts.values())) > 5 * burst
    for times in starts.values():
        times.sort()
        for begin, end in zip(times, times[burst:], strict=False):
            # Times are in whole milliseconds.
            assert end - begin >= interval - 0.002


def test_refusals_are_repeated_and_robots_txt_is_obeyed(start: Start, server: Server, site: Any) -> None:
    address = {"KEYLANE_SERVER": server.url}
    host = next(host for host in site.hosts if host.part == "examples")
    host.robots, host.refusals = "User-agent: *\nDisallow: /examples/data/\n", 2
    start(sys.executable, HERE / "worker.py", **address)
    output = output_of(start(sys.executable, HERE / "crawl.py", "test", *site.starts(), **address))
    assert f"robots.txt excludes it {host.url}/examples/data/README.md" in output
    pages = {url for url in reachable(site) if "/examples/data/" not in url}
    assert set(fetched(site)) == pages
    assert len(fetched(site)) == len(pages) + 2


def test_the_command_crawls_its_own_servers(start: Start) -> None:
    output = output_of(start(HERE / "run"))
    assert re.search(r"^\d+ pages of 6 hosts, \d+ broken links$", output, re.MULTILINE)
    hosts = re.findall(r"(\d+) requests, at most (\d+) open at once", output)
    assert len(hosts) == 6
    # Answers take long enough that more would be open at once without the limit.
    assert Counter(int(count) for _, count in hosts).keys() <= {1, 2}
