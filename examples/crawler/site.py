"""Web servers to crawl: the pages of this repository as HTML, each folder of pages at a host of its own.

python3 site.py prints the address of a page of each host, and serves until it is interrupted. Then it prints a line for
each host: its requests, and how many were open at once.
"""

from __future__ import annotations

import html
import os
import re
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parents[2]
# The files below the first of these that a path begins with are served by its host.
PARTS = ["docs/decisions", "docs/serve", "docs", "crates", "examples", ""]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


class Host:
    """Server of one part of the repository, which counts its requests."""

    def __init__(self, site: Site, part: str, latency: float) -> None:
        self.part = part
        self.latency = latency
        self.paths: list[str] = []
        self.open = self.max_open = 0
        self.changed = threading.Condition()
        """Notified when a request has come or was answered."""
        self.gate = threading.Event()
        """Requests of pages wait while it is not set."""
        self.gate.set()
        self.robots = ""
        """Rules in robots.txt. Without any there is no such page."""
        self.refusals = 0
        """Number of requests of pages that are still to be answered with 429."""
        handler = type("Handler", (_Handler,), {"site": site, "host": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def begin(self, path: str) -> None:
        with self.changed:
            self.paths.append(path)
            self.open += 1
            self.max_open = max(self.max_open, self.open)
            self.changed.notify_all()
        if path != "robots.txt":
            self.gate.wait()
        time.sleep(self.latency)

    def refuses(self, path: str) -> bool:
        with self.changed:
            is_refused = self.refusals > 0 and path != "robots.txt"
            self.refusals -= is_refused
            return is_refused

    def end(self) -> None:
        with self.changed:
            self.open -= 1
            self.changed.notify_all()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class Site:
    """All hosts. An answer takes `latency` seconds."""

    def __init__(self, latency: float = 0.0) -> None:
        self.hosts = [Host(self, part, latency) for part in PARTS]

    def starts(self) -> list[str]:
        """Returns the address of a page of each host."""
        pages = [min((ROOT / host.part).rglob("*.md"), key=lambda page: len(page.parts)) for host in self.hosts]
        return [self.url_of(str(page.relative_to(ROOT))) for page in pages]

    def host_of(self, path: str) -> Host:
        """Returns the host of a path from the root of the repository."""
        return next(host for host in self.hosts if f"{path}/".startswith(host.part))

    def url_of(self, path: str) -> str:
        return f"{self.host_of(path).url}/{path}"

    def page(self, path: str) -> str | None:
        """Returns a page of Markdown as HTML with its links, `None` if it does not exist."""
        file = ROOT / path
        if not file.is_file() or file.suffix != ".md":
            return None
        text = html.escape(file.read_text(), quote=False)
        return f"<!doctype html><title>{path}</title><pre>{LINK.sub(lambda found: self._link(path, found), text)}</pre>"

    def _link(self, path: str, found: re.Match[str]) -> str:
        is_picture, text, target = found.groups()
        target = urldefrag(html.unescape(target)).url
        if is_picture or not target.endswith(".md") or urlsplit(target).scheme:
            return found[0]
        linked = os.path.normpath(Path(path).parent / target)
        return f'<a href="{self.url_of(linked)}">{text}</a>'

    def close(self) -> None:
        for host in self.hosts:
            host.close()


class _Handler(BaseHTTPRequestHandler):
    site: Site
    host: Host

    def do_GET(self) -> None:
        path = unquote(self.path).lstrip("/")
        self.host.begin(path)
        try:
            page = self.site.page(path) if path != "robots.txt" else self.host.robots or None
        finally:
            # Before the answer: the client may send its next request when it has it.
            self.host.end()
        body = (page or "not here").encode()
        if self.host.refuses(path):
            self.send_response(429)
            self.send_header("retry-after", "0")
        else:
            self.send_response(404 if page is None else 200)
        self.send_header("content-type", "text/html; charset=utf-8" if page else "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    # Without the limits more requests would be open.
    site = Site(latency=0.15)
    print(*site.starts(), flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for host in site.hosts:
        print(f"{host.url}: {len(host.paths)} requests, at most {host.max_open} open at once")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
