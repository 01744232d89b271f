"""One file of a plan: its records come from the very bytes that have the plan's SHA-256.

A file is hashed to its end before any of it is handed out.

- What fits is held in memory as it is hashed, and its records are read from there. The file is read
  once; whoever changes or replaces it later changes nothing of what is sent.
- A larger file is read again, through the same open file: another one that takes its name isn't
  seen. While it was hashed, the state of the hash was kept at each block. Bytes that are read again
  must lead from one of these states to a later one, or they are refused: that is how a file that is
  changed in place isn't sent either.

On a disk, the second reading comes from the operating system's cache. In a store it is a second
transfer, so more of a store's files is held. A copy on a disk would spare that as well, but it
needs room for a file of each source partition at a time where verify goes by keys, in containers
that may have none.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal, NamedTuple, cast

from kafka_drain.data_files.records import DataPath
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.republish.planning.shards import ShardFile
from kafka_drain.storage.outages import lies_in_store, naming_outages

__all__ = ["CheckedFile", "checked_file"]


class Sizes(NamedTuple):
    """How files are read, in bytes.

    Attributes:
        held: So much is held in memory at most, of all files that are open at a time.
        chunk: So much is read at a time while a file is hashed.
        buffer: So much at least when it is read again.
    """

    held: int
    chunk: int
    buffer: int


LOCAL = Sizes(held=32 << 20, chunk=1 << 20, buffer=1 << 20)
#: Each reading is a request. What compaction writes by default (256 MB) is held.
STORE = Sizes(held=256 << 20, chunk=16 << 20, buffer=4 << 20)

#: The hash's state is kept at each of these: 250 bytes of memory. Chunks and buffers are multiples.
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that has the plan's bytes; formats read it as they read a path.

    Attributes:
        suffix: The end of the name, from its last dot.
        protocol: The store's where that is still read, otherwise empty.
        content: The bytes.
    """

    suffix: str
    protocol: str
    content: IO[bytes]

    def open(self, mode: Literal["rb"], /, **options: Any) -> IO[bytes]:
        """Return the bytes, once; fsspec's options, such as what to read ahead, mean nothing."""
        return self.content


@contextmanager
def checked_file(path: DataPath, file: ShardFile, sharers: int = 1) -> Iterator[CheckedFile]:
    """Open a file once it was seen to have the plan's bytes.

    Args:
        path: Where it lies.
        file: What the plan says of it.
        sharers: How many files that are open at a time share the memory.

    Raises:
        ManifestInvalidError: When the file is missing, or has other bytes; also later, by what
            reads from it, when it was changed meanwhile.
        StoreUnavailableError: When its store doesn't answer.
    """
    sizes = STORE if lies_in_store(path) else LOCAL
    with _opened(path, file) as source:
        blocks = _blocks(path, source, file, sizes.chunk)
        if file.bytes <= sizes.held // sharers:
            held = io.BytesIO()
            held.writelines(block for block, _ in blocks)
            held.seek(0)
            source.close()
            yield CheckedFile(path.suffix, "", held)
            return
        states = [hashlib.sha256(), *(state.copy() for _, state in blocks)]
        again = _ReadAgain(path, source, file, states)
        protocol = getattr(path, "protocol", "")
        try:
            yield CheckedFile(path.suffix, protocol, io.BufferedReader(again, sizes.buffer))
        finally:
            # Formats' libraries make errors of their own of those in their source.
            if again.failure is not None:
                raise again.failure


def _opened(path: DataPath, file: ShardFile) -> IO[bytes]:
    # Of a store, what is asked for is read and nothing ahead: fsspec would at each jump.
    options = {"cache_type": "none"} if lies_in_store(path) else {}
    try:
        with naming_outages(path):
            opened: IO[bytes] = cast(Any, path).open("rb", **options)
            return opened
    except FileNotFoundError as error:
        raise ManifestInvalidError(
            f"{file.path} is missing since the plan was made, {_expected(file)}; restore it from a "
            "copy, nothing of it was sent by this attempt"
        ) from error


def _blocks(
    path: DataPath, source: IO[bytes], file: ShardFile, chunk_bytes: int
) -> Iterator[tuple[memoryview, hashlib._Hash]]:
    """Yield a file's blocks, each with the state of the hash after it.

    Raises:
        ManifestInvalidError: After the last one, when these aren't the plan's bytes.
    """
    size, state = 0, hashlib.sha256()
    while size <= file.bytes:
        with naming_outages(path):
            chunk = source.read(chunk_bytes)
        if not chunk:
            break
        size += len(chunk)
        for at in range(0, len(chunk), BLOCK_BYTES):
            block = memoryview(chunk)[at : at + BLOCK_BYTES]
            state.update(block)
            yield block, state
    seen = f"{size:,} bytes with SHA-256 {state.hexdigest()}"
    if size > file.bytes:
        seen = f"more than {file.bytes:,} bytes"
    if size != file.bytes or state.hexdigest() != file.sha256:
        raise ManifestInvalidError(
            f"{file.path} was changed since the plan was made: it has {seen}, {_expected(file)}; "
            "restore it from a copy, nothing of it was sent by this attempt"
        )


def _expected(file: ShardFile) -> str:
    return f"expected {file.bytes:,} bytes with SHA-256 {file.sha256 or '(none)'}"


class _ReadAgain(io.RawIOBase):
    """A file that was hashed, read again through the same open file.

    Args:
        path: Where it lies.
        source: The open file.
        file: What the plan says of it.
        states: The hash before the first block, and after each.

    Attributes:
        failure: What ended the reading; None while nothing has.
    """

    def __init__(
        self, path: DataPath, source: IO[bytes], file: ShardFile, states: list[hashlib._Hash]
    ) -> None:
        self._path = path
        self._source = source
        self._file = file
        self._states = states
        self._at = 0
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.bytes}
        self._at = origin[whence] + offset
        return self._at

    def readinto(self, target: Any) -> int:
        at, end = self._at, min(self._at + len(target), self._file.bytes)
        if at >= end:
            return 0
        first, after = at // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        start = first * BLOCK_BYTES
        try:
            content = self._checked(first, after)
        except Exception as error:
            self.failure = error
            raise
        target[: end - at] = memoryview(content)[at - start : end - start]
        self._at = end
        return end - at

    def _checked(self, first: int, after: int) -> bytes:
        """Return some blocks, if they are those that were hashed."""
        start, end = first * BLOCK_BYTES, min(after * BLOCK_BYTES, self._file.bytes)
        with naming_outages(self._path):
            self._source.seek(start)
            content = self._source.read(end - start)
        state = self._states[first].copy()
        state.update(content)
        if state.digest() != self._states[after].digest():
            raise ManifestInvalidError(
                f"{self._file.path} was changed while it was read: its bytes {start:,} to {end:,} "
                f"aren't those that were hashed, {_expected(self._file)}; restore it from a copy, "
                "none of these bytes was sent"
            )
        return content
