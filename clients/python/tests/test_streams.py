"""Parsers and bodies of streams."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from keylane import Job, Subtask
from keylane._calls import subtask_body, wire
from keylane._decode import decode, timestamp
from keylane._sse import EventPlace, Message, Parser
from keylane._upload import AsyncUpload, Upload

TEXT = (
    "retry: 2000\n: keylane\n\n"
    'id: 7-1\nevent: job_changed\ndata: {"a":\ndata: "x\u2028y\x1cz"}\n\n'
    "id: 7-2\nevent: reset\ndata: {}\n\n"
).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_parsed_from_pieces_of_any_size(size: int) -> None:
    parser = Parser()
    messages = [
        message
        for start in range(0, len(TEXT), size)
        for message in parser.feed(TEXT[start : start + size])
    ]
    assert messages == [
        Message("job_changed", '{"a":\n"x\u2028y\x1cz"}', "7-1"),
        Message("reset", "{}", "7-2"),
    ]
    assert parser.retry == 2.0


def job(state: str = "running") -> dict[str, Any]:
    counts = dict.fromkeys(
        ["total", "waiting", "ready", "running", "backing_off", "succeeded", "failed"], 0
    )
    return {
        "id": "job_1",
        "kind": "task",
        "state": state,
        "version": 1,
        "progress": 0.5,
        "created_at": "2026-01-31T08:00:00Z",
        "counts": {**counts, "cancelled": 0, "later": 1},
        "later": True,
    }


def message(id: str, event: str, state: str | None = None) -> Message:
    data: dict[str, Any] = {"id": id, "event": event, "at": "2026-01-31T08:00:00.5Z"}
    if state is not None:
        data["job"] = job(state)
    return Message(event, json.dumps(data), id)


def test_the_state_that_begins_a_resumed_stream_is_not_the_end() -> None:
    place = EventPlace(of_job=True)
    assert "last-event-id" not in place.connect()
    assert place.accept(message("7-1", "job_changed", "running")) is not None
    assert place.connect()["last-event-id"] == "7-1"
    # The job has ended, and what was missed is behind.
    assert place.accept(message("7-1", "job_ended", "failed")) is None
    assert not place.ended
    missed = place.accept(message("7-2", "subtask_failed"))
    assert missed is not None
    assert missed.event == "subtask_failed"
    assert place.accept(message("7-3", "job_ended", "failed")) is not None
    assert place.ended


def test_after_a_reset_the_state_counts() -> None:
    place = EventPlace(of_job=True)
    place.connect()
    place.accept(message("7-1", "job_changed", "running"))
    place.connect()
    assert place.accept(message("8-1", "reset")) is not None
    assert place.accept(message("8-1", "job_ended", "succeeded")) is not None
    assert place.ended


def test_unknown_members_are_ignored_and_kept_in_raw() -> None:
    read = decode(Job, job())
    assert (read.state, read.counts.total, read.ended_at) == ("running", 0, None)
    assert read.raw["later"] is True


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-01-31T08:00:00Z", 0),
        ("2026-01-31T08:00:00.5Z", 500_000),
        ("2026-01-31T08:00:00.123456789Z", 123_456),
        ("2026-01-31T08:00:00.001+00:00", 1000),
    ],
)
def test_times_are_read(text: str, micros: int) -> None:
    assert timestamp(text) == datetime(2026, 1, 31, 8, 0, 0, micros, tzinfo=timezone.utc)


def test_durations_and_times_are_converted() -> None:
    assert wire(timedelta(minutes=1.5)) == 90_000
    zone = timezone(timedelta(hours=1))
    assert wire(datetime(2026, 1, 31, 9, tzinfo=zone)) == "2026-01-31T08:00:00.000+00:00"
    with pytest.raises(ValueError, match="no time zone"):
        wire(datetime(2026, 1, 31))


def test_a_subtask_has_only_what_was_set() -> None:
    assert subtask_body(Subtask(1, key="a")) == {"payload": 1, "key": "a"}
    full = Subtask(None, keys=["a", "b"], shared_keys=["c"], barrier=True)
    assert subtask_body(full) == {
        "payload": None,
        "keys": ["a", "b"],
        "shared_keys": ["c"],
        "barrier": True,
    }


def numbers(count: int) -> Iterator[dict[str, int]]:
    for number in range(count):
        yield {"payload": number}


def take(blocks: Iterator[bytes], count: int) -> bytes:
    return b"".join(block for block, _ in zip(blocks, range(count)))


def test_an_iterator_is_sent_again_from_the_beginning_after_each_break() -> None:
    whole = b"".join(Upload({"kind": "task"}, list(numbers(50_000))).blocks())
    assert whole.count(b"\n") == 50_001
    upload = Upload({"kind": "task"}, numbers(50_000))
    for count in (3, 1, 7, 2):
        broken_off = take(upload.blocks(), count)
        assert broken_off
        assert whole.startswith(broken_off)
    assert b"".join(upload.blocks()) == whole
    upload.close()


def test_an_asynchronous_iterator_is_sent_again_from_the_beginning() -> None:
    async def generate() -> AsyncIterator[dict[str, int]]:
        for item in numbers(20_000):
            yield item

    async def send() -> None:
        whole = b"".join(Upload({"kind": "task"}, list(numbers(20_000))).blocks())
        upload = AsyncUpload({"kind": "task"}, generate())
        async for block in upload.blocks():
            assert whole.startswith(block)
            break
        assert b"".join([block async for block in upload.blocks()]) == whole
        upload.close()

    asyncio.run(send())


def test_a_stream_takes_little_memory() -> None:
    upload = Upload({"kind": "task"}, numbers(50_000))
    tracemalloc.start()
    size = sum(len(block) for block in upload.blocks())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    upload.close()
    assert size > 800_000
    assert peak < 500_000
