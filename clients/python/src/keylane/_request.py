"""Requests and their answers, apart from any input or output: what both clients send."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Optional, TypeVar
from urllib.parse import quote, urlencode

import httpx

from ._decode import decode
from ._json import encode
from .errors import ApiError, api_error

T = TypeVar("T")


@dataclass(frozen=True)
class Request(Generic[T]):
    """Request that can be sent again, to any of the servers."""

    method: str
    path: str
    """Path below the base URL, percent-encoded, with its query."""
    read: Callable[[httpx.Response], T]
    """Decodes a successful answer."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Optional[bytes] = None
    wait: float = 0.0
    """Seconds for which the server may hold the answer back, beyond the client's timeout."""


def request(
    method: str,
    path: str,
    read: Callable[[httpx.Response], T],
    *,
    query: Optional[Mapping[str, Any]] = None,
    headers: Optional[Mapping[str, str]] = None,
    json: Any = None,
    wait: float = 0.0,
) -> Request[T]:
    """Builds a request; members of `query` that are `None` are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    body = None if json is None else encode(json)
    kept = dict(headers or {})
    if body is not None:
        kept["content-type"] = "application/json"
    return Request(method, with_query(path, given), read, kept, body, wait)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def segment(text: str) -> str:
    """Returns a text as one segment of a path."""
    return quote(text, safe="")


def nothing(_: httpx.Response) -> None:
    """Reads an answer without content."""


def reads(cls: type[T]) -> Callable[[httpx.Response], T]:
    """Returns a reader of a JSON object."""
    return lambda response: decode(cls, response.json())


def reads_items(cls: type[T]) -> Callable[[httpx.Response], list[T]]:
    """Returns a reader of the member `items` of a JSON object."""
    return lambda response: [decode(cls, item) for item in response.json()["items"]]


def refusal(response: httpx.Response) -> ApiError:
    """Returns the error for an answer whose body was read."""
    retry_after = _retry_after(response.headers.get("retry-after"))
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        # A proxy, or a server that is no Keylane.
        text = response.text.strip()[:200]
        problem = {"detail": text or response.reason_phrase or "an answer without a body"}
    return api_error(response.status_code, problem, retry_after)


def is_success(response: httpx.Response) -> bool:
    return response.is_success or response.status_code == httpx.codes.NOT_MODIFIED


def _retry_after(text: Optional[str]) -> Optional[float]:
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
