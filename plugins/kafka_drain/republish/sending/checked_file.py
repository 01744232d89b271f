"""Read a file of a plan, guaranteeing that its records come from bytes with the plan's SHA-256.

A file is hashed to its end before any of its bytes are handed out.

- A file that fits is kept in memory while it is hashed, and its records are read from there. It is
  read once; changing or replacing it later doesn't affect what is sent.
- A larger file is read again through the same open file, so another file that takes its name isn't
  seen. While it is hashed, a second, faster hash of each block is noted (XXH3 with 128 bits and a
  random seed, for which nobody can prepare other bytes). Blocks that are read again must have it,
  otherwise they are refused. This way, a file that is changed in place isn't sent either.

On a local disk, the second read is served from the operating system's cache. In an object store it
is a second transfer, so more of a store's files is kept in memory. A copy on disk would avoid that
too, but needs room for one file per source partition at a time when verify goes by keys, and
containers may not have that room.
"""

from __future__ import annotations

import errno
import hashlib
import io
import resource
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal, NamedTuple, cast

from kafka_drain.data_files.records import DataPath
from kafka_drain.errors import MachineError, ManifestInvalidError
from kafka_drain.republish.planning.shards import ShardFile
from kafka_drain.storage.outages import lies_in_store, naming_outages


class Sizes(NamedTuple):
    """Sizes for reading files, in bytes.

    Attributes:
        held: Maximum size kept in memory, for all files that are open at the same time.
        chunk: Size of a read while a file is hashed, unless it is held and lies on a disk.
        buffer: Minimum size of a read when it is read again.
    """

    held: int
    chunk: int
    buffer: int


LOCAL = Sizes(held=32 << 20, chunk=1 << 20, buffer=1 << 20)
#: Each read is a request. Files that compaction writes by default (256 MB) are kept in memory.
STORE = Sizes(held=256 << 20, chunk=16 << 20, buffer=4 << 20)

#: Size of the blocks of a file that is read again. Chunks and buffers are multiples of it.
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that has the plan's bytes; readers use it in place of a path.

    Attributes:
        suffix: The end of the name, from its last dot.
        protocol: The store's protocol if the store is still being read, otherwise empty.
        parents: The folders around it, the innermost first: an archive's data keys lie in one.
    """

    suffix: str
    protocol: str
    parents: Sequence[Any]
    content: IO[bytes]

    def open(self, mode: Literal["rb"], /, **options: Any) -> IO[bytes]:
        """Return the bytes, once; fsspec options, such as read-ahead settings, are ignored."""
        return self.content


@contextmanager
def checked_file(path: DataPath, file: ShardFile, sharers: int = 1) -> Iterator[CheckedFile]:
    """Open a file after checking that it has the plan's bytes.

    Args:
        path: The file's location.
        file: The file's entry in the plan.
        sharers: Number of simultaneously open files that share the memory.

    Raises:
        MachineError: When the process may have no more open files.
        ManifestInvalidError: When the file is missing or has other bytes; also raised later, from
            reads, if the file was changed in the meantime.
        StoreUnavailableError: When its store doesn't answer.
    """
    sizes = STORE if lies_in_store(path) else LOCAL
    is_held = file.bytes <= sizes.held // sharers
    # As a whole, bytes of a disk become the held file without another copy.
    chunk = file.bytes + 1 if is_held and sizes is LOCAL else sizes.chunk
    with _opened(path, file) as source:
        chunks = _chunks(path, source, file, chunk)
        if is_held:
            held = io.BytesIO(next(chunks, b""))
            held.seek(0, io.SEEK_END)
            held.writelines(chunks)
            held.seek(0)
            source.close()
            yield CheckedFile(path.suffix, "", path.parents, held)
            return
        again = _ReadAgain(path, source, file, chunks)
        protocol = getattr(path, "protocol", "")
        try:
            yield CheckedFile(path.suffix, protocol, path.parents, _Buffered(again, sizes.buffer))
        finally:
            # The file formats' libraries replace errors of their source with their own.
            if again.failure is not None:
                raise again.failure


def _opened(path: DataPath, file: ShardFile) -> IO[bytes]:
    # From a store, read the requested bytes only: fsspec would read ahead after each seek.
    options = {"cache_type": "none"} if lies_in_store(path) else {}

    def opened() -> IO[bytes]:
        with naming_outages(path):
            return cast("IO[bytes]", cast(Any, path).open("rb", **options))

    try:
        try:
            return opened()
        except OSError as error:
            if error.errno != errno.EMFILE or not _raise_limit():
                raise
        return opened()
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise MachineError(
                f"{file.path} can't be opened: this process has as many open files as it may, "
                f"{resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}, because records of a "
                "partition interleave in many files; raise the limit (ulimit -n), and try again. "
                "Nothing of it was sent by this attempt"
            ) from error
        if not isinstance(error, FileNotFoundError):
            raise
        raise ManifestInvalidError(
            f"{file.path} has gone missing since the plan was made, {_expected(file)}; restore it "
            "from a copy; nothing of it was sent by this attempt"
        ) from error


def _raise_limit() -> bool:
    """Let this process have as many open files as it may ask for; False if it has them already.

    The usual limit, 1,024, is for programs that don't know of more (select).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


def _chunks(
    path: DataPath, source: IO[bytes], file: ShardFile, chunk_bytes: int
) -> Iterator[bytes]:
    """Yield a file's bytes, all of them chunks of the same size but for the last one.

    Raises:
        ManifestInvalidError: After the last one, when these aren't the plan's bytes.
    """
    size, state = 0, hashlib.sha256()
    while size <= file.bytes:
        with naming_outages(path):
            # One byte more than expected tells a longer file. gcsfs splits a longer read among
            # several requests, and Google's store refuses those that begin after the end.
            chunk = source.read(min(chunk_bytes, file.bytes - size + 1))
        if not chunk:
            break
        size += len(chunk)
        state.update(chunk)
        yield chunk
    seen = f"{size:,} bytes with SHA-256 {state.hexdigest()}"
    if size > file.bytes:
        seen = f"more than {file.bytes:,} bytes"
    if size != file.bytes or state.hexdigest() != file.sha256:
        raise ManifestInvalidError(
            f"{file.path} was changed since the plan was made: it has {seen}, {_expected(file)}; "
            "restore it from a copy; nothing of it was sent by this attempt"
        )


def _expected(file: ShardFile) -> str:
    return f"expected {file.bytes:,} bytes with SHA-256 {file.sha256 or '(none)'}"


class _ReadAgain(io.RawIOBase):
    """A file that was hashed, read again through the same open file.

    Args:
        path: The file's location.
        source: The open file.
        file: The file's entry in the plan.
        chunks: All of its bytes, while they are hashed for the first time.

    Attributes:
        failure: The error that ended reading; None if there was none.
    """

    def __init__(
        self, path: DataPath, source: IO[bytes], file: ShardFile, chunks: Iterator[bytes]
    ) -> None:
        self._path = path
        self._source = source
        self._file = file
        # Not at the top: executors need pyarrow alone, unless a file is read again.
        from xxhash import xxh3_128_digest

        self._hash = partial(xxh3_128_digest, seed=secrets.randbits(64))
        self._hashes = [hashed for chunk in chunks for hashed in self._hashed(chunk)]
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
        found = self.view(self._at, len(target))
        target[: len(found)] = found
        self._at += len(found)
        return len(found)

    def view(self, at: int, size: int) -> memoryview:
        """Return bytes without copying them again, fewer at the end; moves nothing."""
        end = min(at + size, self._file.bytes)
        if at >= end:
            return memoryview(b"")
        first, after = at // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        start = first * BLOCK_BYTES
        try:
            content = self._checked(first, after)
        except Exception as error:
            self.failure = error
            raise
        return memoryview(content)[at - start : end - start]

    def _checked(self, first: int, after: int) -> bytes:
        """Return some blocks after checking that they are the ones that were hashed."""
        start, end = first * BLOCK_BYTES, min(after * BLOCK_BYTES, self._file.bytes)
        with naming_outages(self._path):
            self._source.seek(start)
            content = self._source.read(end - start)
        if self._hashed(content) != self._hashes[first:after]:
            raise ManifestInvalidError(
                f"{self._file.path} was changed while it was read: its bytes {start:,} to {end:,} "
                f"differ from those that were hashed, {_expected(self._file)}; restore it from a "
                "copy; none of these bytes was sent"
            )
        return content

    def _hashed(self, content: bytes) -> list[bytes]:
        """Return the hash of each block."""
        view = memoryview(content)
        starts = range(0, len(view), BLOCK_BYTES)
        return [self._hash(view[at : at + BLOCK_BYTES]) for at in starts]


class _Buffered(io.BufferedReader):
    """A file that is read again, for readers of a few bytes at a time and for pyarrow."""

    raw: _ReadAgain

    def read_buffer(self, size: int) -> memoryview:
        """Return the next bytes, as pyarrow prefers to take them (`pyarrow.PythonFile`)."""
        # Past the buffer, which knows where the raw file stands.
        found = self.raw.view(at := self.tell(), size)
        self.seek(at + len(found))
        return found
