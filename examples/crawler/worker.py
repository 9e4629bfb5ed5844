"""Fetches pages, and submits a job for each page that they link to.

Any number of these may run, on any machines: the server keeps the limits of each host over all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urljoin
from urllib.robotparser import RobotFileParser

import httpx
from keylane import AsyncClient, Task, TaskFailure, Worker
from pages import find_links, host_of, job_of

AGENT = "keylane-example-crawler"

# As many leases as handlers: a request begins when the server has counted its start for the rate.
worker = Worker(concurrency=32)
keylane = AsyncClient()
web = httpx.AsyncClient(headers={"user-agent": AGENT}, timeout=60)
rules: dict[str, asyncio.Task[RobotFileParser]] = {}
submitted: set[tuple[str, str]] = set()


@worker.kind("fetch")
async def fetch(task: Task) -> dict[str, Any]:
    url, crawl, hosts = (task.payload[name] for name in ("url", "crawl", "hosts"))
    try:
        if not (await rules_of(url)).can_fetch(AGENT, url):
            return {"url": url, "status": "robots.txt excludes it", "links": []}
        response = await web.get(url)
    except httpx.TransportError as error:
        raise TaskFailure(f"{type(error).__name__}: {error}") from None
    if response.status_code in (429, 503):
        # The next attempt comes when the host says so, and keeps its place.
        after = response.headers.get("retry-after", "")
        raise TaskFailure(f"status {response.status_code}", after=float(after) if after.isdecimal() else None)
    links = links_of(url, response, hosts)
    # Before this page has ended. So a page whose links are not submitted has not ended.
    await asyncio.gather(*(submit(crawl, link, hosts) for link in links))
    return {"url": url, "status": response.status_code, "links": links}


def links_of(url: str, response: httpx.Response, hosts: list[str]) -> list[str]:
    if response.is_redirect:
        # A page of its own, with the limits of its host.
        target = urljoin(url, response.headers["location"])
        return [target] if host_of(target) in hosts else []
    is_html = response.headers.get("content-type", "").startswith("text/html")
    return find_links(url, response.text, hosts) if response.is_success and is_html else []


async def submit(crawl: str, url: str, hosts: list[str]) -> None:
    if (crawl, url) not in submitted:
        await keylane.submit(**job_of(crawl, url, hosts))
        submitted.add((crawl, url))


async def rules_of(url: str) -> RobotFileParser:
    """Returns the rules of the page's host, which are read once."""
    robots = urljoin(url, "/robots.txt")
    if robots not in rules:
        rules[robots] = asyncio.create_task(read_rules(robots))
    try:
        return await asyncio.shield(rules[robots])
    except httpx.HTTPError:
        rules.pop(robots, None)
        raise


async def read_rules(url: str) -> RobotFileParser:
    response = await web.get(url)
    parser = RobotFileParser(url)
    # A host without rules allows everything.
    parser.parse(response.text.splitlines() if response.is_success else [])
    return parser


if __name__ == "__main__":
    worker.run()
