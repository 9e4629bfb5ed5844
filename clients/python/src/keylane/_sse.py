"""Server-sent events: a parser of bytes, and the place in a stream that reconnects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ._decode import decode
from .models import Event

# The server sends a comment every 15 seconds.
SILENCE = 45.0


@dataclass
class Message:
    name: str
    data: str
    id: Optional[str]


class Parser:
    """Parses a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: Optional[str] = None
        self.retry: Optional[float] = None
        """Seconds to wait before connecting again, if the server named them."""

    def feed(self, piece: bytes) -> Iterator[Message]:
        # Lines end with LF here. Texts in JSON may have other characters that end lines in Python.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            message = self._line(line.rstrip(b"\r").decode())
            if message is not None:
                yield message

    def _line(self, line: str) -> Optional[Message]:
        if not line:
            name, data = self._name, self._data
            self._name, self._data = "", []
            return Message(name, "\n".join(data), self._id) if data else None
        field, _, value = line.partition(":")
        if value.startswith(" "):
            value = value[1:]
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        elif field == "retry" and value.isdigit():
            self.retry = int(value) / 1000
        return None


class EventPlace:
    """Place in a stream of events, over any number of connections."""

    def __init__(self, of_job: bool) -> None:
        self._of_job = of_job
        self._last: Optional[str] = None
        self._resumes_at: Optional[str] = None
        self.ended = False

    def connect(self) -> dict[str, str]:
        """Returns the headers of the next connection."""
        headers = {"accept": "text/event-stream"}
        if self._last is not None:
            headers["last-event-id"] = self._last
        self._resumes_at = self._last
        return headers

    def accept(self, message: Message) -> Optional[Event]:
        """Returns the event of a message; `None` if it is no news."""
        event = decode(Event, json.loads(message.data))
        self._last = message.id
        if not self._of_job:
            return event
        if event.event == "reset":
            self._resumes_at = None
        elif event.id == self._resumes_at:
            # Each connection begins with the present state of the job. The events that were missed
            # come behind it, so it is not the end, even if the job has ended.
            return None
        self.ended = event.event == "job_purged" or (event.job is not None and event.job.ended)
        return event
