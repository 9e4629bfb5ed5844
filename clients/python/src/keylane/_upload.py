"""Bodies of streamed submissions. They can be sent again after a broken connection."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Optional, Union

from ._calls import SubtaskLike, subtask_body
from ._json import encode

BLOCK = 64 * 1024


class Lines:
    """Collects lines to blocks, because each piece that is sent costs a system call."""

    def __init__(self, first: bytes) -> None:
        self._block = bytearray(first)

    def add(self, subtask: SubtaskLike) -> Optional[bytes]:
        """Adds a line, and returns the block if it is full."""
        self._block += encode(subtask_body(subtask))
        self._block += b"\n"
        return self.take() if len(self._block) >= BLOCK else None

    def take(self) -> bytes:
        block = bytes(self._block)
        self._block.clear()
        return block


class Spool:
    """Blocks that came from an iterator, which cannot be read twice, in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="keylane-")  # noqa: SIM115 - `close` closes it

    def record(self, block: bytes) -> None:
        self._file.write(block)

    def replay(self) -> Iterator[bytes]:
        # An earlier replay may have been broken off anywhere.
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        while self._file.tell() < size:
            yield self._file.read(min(BLOCK, size - self._file.tell()))

    def close(self) -> None:
        self._file.close()


class Upload:
    """Body for the synchronous client: the job in the first line, a subtask in each further one."""

    def __init__(self, job: Mapping[str, Any], subtasks: Iterable[SubtaskLike]) -> None:
        self._first = encode(job) + b"\n"
        self._subtasks = subtasks
        self._once = isinstance(subtasks, Iterator)
        self._spool: Optional[Spool] = None
        self._rest: Optional[Iterator[bytes]] = None
        self.error: Optional[Exception] = None
        """Error of the iterator or of a subtask, for which nothing was submitted."""

    def blocks(self) -> Iterator[bytes]:
        """Returns the body from its beginning."""
        try:
            yield from self._replayed() if self._once else self._encoded()
        except Exception as error:
            self.error = error
            raise

    def _encoded(self) -> Iterator[bytes]:
        lines = Lines(self._first)
        for subtask in self._subtasks:
            block = lines.add(subtask)
            if block is not None:
                yield block
        yield lines.take()

    def _replayed(self) -> Iterator[bytes]:
        if self._spool is None or self._rest is None:
            self._spool, self._rest = Spool(), self._encoded()
        yield from self._spool.replay()
        for block in self._rest:
            self._spool.record(block)
            yield block

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()


class AsyncUpload:
    """Body for the asynchronous client, of subtasks that come from either kind of iterable."""

    def __init__(
        self,
        job: Mapping[str, Any],
        subtasks: Union[Iterable[SubtaskLike], AsyncIterable[SubtaskLike]],
    ) -> None:
        self._first = encode(job) + b"\n"
        self._subtasks = subtasks
        self._once = isinstance(subtasks, (Iterator, AsyncIterator))
        self._spool: Optional[Spool] = None
        self._rest: Optional[AsyncIterator[bytes]] = None
        self.error: Optional[Exception] = None

    async def blocks(self) -> AsyncIterator[bytes]:
        """Returns the body from its beginning."""
        try:
            async for block in self._replayed() if self._once else self._encoded():
                yield block
        except Exception as error:
            self.error = error
            raise

    async def _encoded(self) -> AsyncIterator[bytes]:
        lines = Lines(self._first)
        if isinstance(self._subtasks, AsyncIterable):
            async for subtask in self._subtasks:
                block = lines.add(subtask)
                if block is not None:
                    yield block
        else:
            for subtask in self._subtasks:
                block = lines.add(subtask)
                if block is not None:
                    yield block
        yield lines.take()

    async def _replayed(self) -> AsyncIterator[bytes]:
        if self._spool is None or self._rest is None:
            self._spool, self._rest = Spool(), self._encoded()
        for block in self._spool.replay():
            yield block
        async for block in self._rest:
            self._spool.record(block)
            yield block

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
