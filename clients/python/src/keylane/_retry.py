"""Policy of retries and of the choice of a server. It neither sends nor sleeps."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Sequence
from typing import Optional, Union
from urllib.parse import urlsplit

import httpx

from .errors import ApiError, KeylaneError, UnreachableError

logger = logging.getLogger("keylane")

FIRST_PAUSE = 0.1
MAX_PAUSE = 5.0
# A proxy could not get an answer (502, 504), or the server cannot do it now. Requests carry an
# idempotency key or have no effect when repeated, so that all of these may be sent again.
PASSING = frozenset({429, 502, 503, 504, 507})
# With these another server of the cluster may do it: the owner of the store.
ELSEWHERE = frozenset({502, 503, 504})


class Servers:
    """Base URLs of a cluster, and the one that answered last. Shared by threads."""

    def __init__(self, urls: Union[str, Sequence[str], None] = None) -> None:
        if urls is None:
            urls = os.environ.get("KEYLANE_SERVER") or "http://127.0.0.1:7420"
        if isinstance(urls, str):
            urls = urls.split(",")
        self.urls = tuple(url.strip().rstrip("/") for url in urls if url.strip())
        if not self.urls:
            raise ValueError("servers is empty; give a base URL such as http://127.0.0.1:7420")
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(
                    f"servers has {url!r}; give a base URL with its scheme, such as"
                    " http://127.0.0.1:7420"
                )
        self._current = 0

    @property
    def current(self) -> str:
        return self.urls[self._current]

    def leave(self, url: str) -> None:
        """Goes on to the next server, unless another request has done that already."""
        if self.current == url:
            self._current = (self._current + 1) % len(self.urls)


class Attempts:
    """Attempts of one request, until `retry_for` seconds have passed."""

    def __init__(self, servers: Servers, retry_for: float, log_level: int = logging.INFO) -> None:
        self._servers = servers
        self._log_level = log_level
        self._retry_for = retry_for
        self._began = time.monotonic()
        self._failures = 0
        self._left = 0
        self.url = servers.current

    def succeeded(self) -> None:
        """Begins anew: for a stream that has delivered something."""
        self._began = time.monotonic()
        self._failures = self._left = 0

    def after_error(self, error: httpx.TransportError) -> float:
        """Returns the seconds to wait before the next attempt, or raises the last error."""
        if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
            raise error
        reason = str(error) or type(error).__name__
        failure = UnreachableError(f"no answer from {self.url}: {reason}")
        failure.__cause__ = error
        return self._pause(failure, elsewhere=True, at_least=None)

    def after_refusal(self, error: ApiError) -> float:
        """Returns the seconds to wait before the next attempt, or raises the refusal."""
        if error.status not in PASSING:
            raise error
        return self._pause(error, error.status in ELSEWHERE, error.retry_after)

    def _pause(self, error: KeylaneError, elsewhere: bool, at_least: Optional[float]) -> float:
        pause = 0.0
        if elsewhere:
            self._left += 1
            self._servers.leave(self.url)
        # While another server has not been asked, there is no reason to wait.
        if not elsewhere or self._left % len(self._servers.urls) == 0:
            longest = min(MAX_PAUSE, FIRST_PAUSE * 2**self._failures)
            self._failures = min(self._failures + 1, 16)
            pause = max(at_least or 0.0, longest * random.uniform(0.5, 1.0))
        if time.monotonic() + pause - self._began > self._retry_for:
            raise error
        self.url = self._servers.current
        logger.log(self._log_level, "%s; trying again in %.1f s at %s", error, pause, self.url)
        return pause
