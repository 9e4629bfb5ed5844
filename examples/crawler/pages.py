"""Pages of a crawl: one job of Keylane for each address."""

from __future__ import annotations

import hashlib
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit


def host_of(url: str) -> str:
    """Returns the host of an address, with its port: the key of the page."""
    return urlsplit(url).netloc


def job_of(crawl: str, url: str, hosts: list[str]) -> dict[str, Any]:
    """Returns the arguments of `submit` for a page.

    The id is made of the crawl and the address, so however many links a page has, it has one job.
    """
    digest = hashlib.sha256(url.encode()).hexdigest()[:32]
    return {
        "kind": "fetch",
        "payload": {"url": url, "crawl": crawl, "hosts": hosts},
        "key": host_of(url),
        "id": f"{crawl}-{digest}",
        "labels": {"crawl": crawl},
    }


def find_links(url: str, html: str, hosts: list[str]) -> list[str]:
    """Returns the addresses on `hosts` that a page links to, each once."""
    parser = _Links()
    parser.feed(html)
    links = (urldefrag(urljoin(url, link)).url for link in parser.links)
    followed = (link for link in links if link.startswith("http") and host_of(link) in hosts)
    return list(dict.fromkeys(followed))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
