"""A plan's file: each byte is read once, and no other bytes than the plan's become records."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.records import DataPath
from kafka_drain.errors import ManifestInvalidError, StoreUnavailableError
from kafka_drain.republish.planning.shards import ShardFile
from kafka_drain.republish.sending import checked_file as module
from kafka_drain.republish.sending.checked_file import LOCAL, STORE, Sizes, checked_file
from tests.kafka_drain.data_files.test_reader import (
    ROWS,
    Row,
    Writer,
    each_format,
    row,
    rows_read,
    write_parquet,
)

Ranges = list[tuple[int, int]]


class OnDisk(io.FileIO):
    """A file of a disk that notes which of its bytes are asked for."""

    def __init__(self, path: str, asked: Ranges) -> None:
        super().__init__(path)
        self._asked = asked

    def readinto(self, target: Any) -> int:
        start = self.tell()
        read: int = super().readinto(target)
        self._asked.append((start, start + read))
        return read


class InStore(AbstractBufferedFile):
    """An object that notes each request for some of its bytes."""

    asked: Ranges
    answers_left = 1 << 30

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.answers_left -= 1
        if self.answers_left < 0:
            raise TimeoutError("no answer")
        end = min(end, self.size)
        self.asked.append((start, end))
        found: bytes = self.fs.store[self.path].getvalue()[start:end]
        return found


class CountedPath:
    """A file on a disk, or an object of fsspec's store in memory, that counts what is read."""

    def __init__(self, path: Path, protocol: str, answers: int = 1 << 30) -> None:
        self.path = path
        self.suffix, self.parents = path.suffix, path.parents
        self.protocol = protocol
        self.opens = 0
        self.asked: Ranges = []
        self._answers = answers

    def open(self, mode: str, /, **options: Any) -> Any:
        self.opens += 1
        if not self.protocol:
            return io.BufferedReader(OnDisk(str(self.path), self.asked))
        store = MemoryFileSystem()
        store.pipe_file(str(self.path), self.path.read_bytes())
        opened = InStore(store, str(self.path), mode, **options)
        opened.asked, opened.answers_left = self.asked, self._answers
        return opened

    def __str__(self) -> str:
        return f"{self.protocol}:{self.path}"

    @property
    def bytes_read(self) -> int:
        return sum(end - start for start, end in self.asked)


def planned(path: Path, file_format: str = "parquet") -> ShardFile:
    """Describe a file as a plan does."""
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return ShardFile(path.name, file_format, len(content), sha256, 0, 99, 1, True)


def read_all(path: DataPath, file: ShardFile) -> list[Row]:
    with checked_file(path, file) as checked:
        return rows_read(checked, file.file_format)  # type: ignore[arg-type]


@pytest.fixture(params=["held", "again"])
def is_held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Hold a file in memory, or read it again, some blocks at a time."""
    if request.param == "again":
        read_again(monkeypatch)
    return bool(request.param == "held")


def read_again(monkeypatch: pytest.MonkeyPatch, block: int = 64) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    for name in ("LOCAL", "STORE"):
        monkeypatch.setattr(module, name, Sizes(held=0, chunk=4 * block, buffer=block))


# what is read


@each_format
@pytest.mark.parametrize("protocol", ["", "s3"], ids=["disk", "store"])
def test_checked_file_read_once(
    tmp_path: Path, file_format: str, write: Writer, protocol: str
) -> None:
    """A file that fits into memory is opened once, and each of its bytes is read once."""
    written = Path(write(tmp_path, ROWS))
    path = CountedPath(written, protocol)

    assert read_all(path, planned(written, file_format)) == ROWS

    size = written.stat().st_size
    assert path.opens == 1
    assert [asked for asked in path.asked if asked != (size, size)] == [(0, size)]


@pytest.mark.parametrize("protocol", ["", "s3"], ids=["disk", "store"])
def test_checked_file_read_once_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Of a file of several chunks, each is one reading, in a store one request."""
    written = Path(write_parquet(tmp_path, ROWS))
    size = written.stat().st_size
    for name in ("LOCAL", "STORE"):
        monkeypatch.setattr(module, name, Sizes(held=size, chunk=size // 3, buffer=1))
    path = CountedPath(written, protocol)

    read_all(path, planned(written))

    bounds = [*range(0, size, size // 3), size]
    assert path.opens == 1
    starts = sorted({start for start, end in path.asked if start < end})
    assert path.bytes_read == size
    assert protocol == "" or starts == bounds[:-1]


@each_format
@pytest.mark.parametrize("protocol", ["", "s3"], ids=["disk", "store"])
def test_checked_file_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file_format: str,
    write: Writer,
    protocol: str,
) -> None:
    """A file that doesn't fit is read again, of the same open file, for the same records.

    Its SHA-256 is computed once: for each byte that is read again, it would double the cost.
    """
    read_again(monkeypatch)
    written = Path(write(tmp_path, ROWS))
    path = CountedPath(written, protocol)
    file = planned(written, file_format)
    hashed: list[int] = []
    sha256 = hashlib.sha256

    class Sha256:
        def __init__(self) -> None:
            self._hash = sha256()
            self.hexdigest = self._hash.hexdigest

        def update(self, content: bytes) -> None:
            hashed.append(len(content))
            self._hash.update(content)

    monkeypatch.setattr(hashlib, "sha256", Sha256)

    assert read_all(path, file) == ROWS

    assert path.opens == 1
    assert path.bytes_read > written.stat().st_size == sum(hashed)


@settings(max_examples=200, deadline=None)
@example(size=2, steps=[("read", 1), ("read_buffer", 0), ("read", 2)])
@given(
    size=st.integers(0, 300),
    steps=st.lists(
        st.tuples(st.sampled_from(["seek", "read", "read_buffer"]), st.integers(0, 320)),
        max_size=8,
    ),
)
def test_checked_file_read_in_parts(
    tmp_path_factory: pytest.TempPathFactory, size: int, steps: list[tuple[str, int]]
) -> None:
    """Each way of reading a part goes on where another one ended, as in a file in memory."""
    path = tmp_path_factory.mktemp("parts") / "x"
    path.write_bytes(bytes(at % 251 for at in range(size)))
    whole = io.BytesIO(path.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        read_again(patch)
        with checked_file(path, replace(planned(path), bytes=size)) as checked:
            if size == 0:
                return
            for step, number in steps:
                if step == "seek":
                    whole.seek(number)
                    checked.content.seek(number)
                    continue
                found = getattr(checked.content, step)(number)
                assert bytes(found) == whole.read(number)


def test_checked_file_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are open at a time share the memory: the more, the less of it each may take."""
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(module, "LOCAL", LOCAL._replace(held=20))

    held = []
    for sharers in (1, 2, 3):
        with checked_file(path, planned(path), sharers) as checked:
            held.append(isinstance(checked.content, io.BytesIO))
            assert checked.content.read() == b"0123456789"

    assert held == [True, True, False]


def test_sizes() -> None:
    """Blocks fill chunks and buffers, and what compaction writes by default is held of a store."""
    for sizes in (LOCAL, STORE):
        assert sizes.chunk % module.BLOCK_BYTES == sizes.buffer % module.BLOCK_BYTES == 0
    assert STORE.held >= 256_000_000


@settings(max_examples=60)
@given(st.data())
def test_checked_file_any_reading(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Wherever a reader goes, a file that is read again gives what is there."""
    content = data.draw(st.binary(max_size=70))
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(content)
    plain = io.BytesIO(content)
    with pytest.MonkeyPatch.context() as monkeypatch:
        read_again(monkeypatch, block=data.draw(st.sampled_from([1, 4, 7])))
        with checked_file(path, planned(path)) as checked:
            for _ in range(data.draw(st.integers(1, 6))):
                whence = data.draw(st.sampled_from([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]))
                lowest = -{io.SEEK_SET: 0, io.SEEK_CUR: plain.tell(), io.SEEK_END: len(content)}[
                    whence
                ]
                step = data.draw(st.integers(lowest, 80))
                size = data.draw(st.integers(-1, 80))
                readers: tuple[IO[bytes], ...] = (plain, checked.content)
                assert len({reader.seek(step, whence) for reader in readers}) == 1
                assert len({reader.read(size) for reader in readers}) == 1


# whose bytes they are


@each_format
@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_checked_file_swapped(
    tmp_path: Path, is_held: bool, file_format: str, write: Writer, in_place: bool
) -> None:
    """A file that is swapped between hash and records never gives another one's records.

    Where it was replaced, or is held, those of the plan come; where it was changed in place under
    a reader, none does.
    """
    other, folder = tmp_path / "other", tmp_path / "planned"
    other.mkdir(), folder.mkdir()
    swapped = Path(write(other, [row(n, value=b"forged") for n in range(30)]))
    path = Path(write(folder, ROWS))
    file = planned(path, file_format)

    def records() -> list[Row]:
        with checked_file(path, file) as checked:
            if in_place:
                path.write_bytes(swapped.read_bytes())
            else:
                os.replace(swapped, path)
            return rows_read(checked, file_format)  # type: ignore[arg-type]

    if in_place and not is_held:
        with pytest.raises(ManifestInvalidError, match=r"part-0\S+ was changed while it was read"):
            records()
    else:
        assert records() == ROWS


def read_changed(path: Path, changed: bytes, start: int = 0) -> bytes:
    """Return what is read, from a place on, of ten digits that are changed after their hash."""
    path.write_bytes(b"0123456789")
    with checked_file(path, planned(path)) as checked:
        path.write_bytes(changed)
        checked.content.seek(start)
        return checked.content.read()


@pytest.mark.parametrize("place", range(10))
def test_checked_file_each_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Whichever byte is changed after the hash, it isn't given out, and what follows is."""
    read_again(monkeypatch, block=4)
    changed = b"0123456789".replace(b"%d" % place, b"x")

    with pytest.raises(ManifestInvalidError, match="10 bytes with SHA-256 84d8"):
        read_changed(tmp_path / "x", changed, place)
    following = 4 * (place // 4 + 1)
    assert read_changed(tmp_path / "x", changed, following) == b"0123456789"[following:]


def test_checked_file_other_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended after the hash isn't read; what is cut off is missed."""
    read_again(monkeypatch, block=4)

    assert read_changed(tmp_path / "x", b"0123456789abc") == b"0123456789"
    with pytest.raises(ManifestInvalidError, match="x was changed while it was read"):
        read_changed(tmp_path / "x", b"01234")


@pytest.mark.usefixtures("is_held")
def test_checked_file_wrong_hash(tmp_path: Path) -> None:
    """Of a file with another hash nothing is given out."""
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")

    with (
        pytest.raises(ManifestInvalidError, match="nothing of it was sent by this attempt"),
        checked_file(path, replace(planned(path), sha256="0" * 64)),
    ):
        pytest.fail("it was opened")


def test_checked_file_much_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has grown is refused once that is seen: memory has room for the plan's bytes."""
    monkeypatch.setattr(module, "LOCAL", LOCAL._replace(chunk=1 << 16))
    written = tmp_path / "x"
    written.write_bytes(bytes(100_000))
    file = planned(written)
    written.write_bytes(bytes(10_000_000))
    path = CountedPath(written, "")

    with pytest.raises(ManifestInvalidError, match="it has more than 100,000 bytes"):
        read_all(path, file)

    assert path.bytes_read < 200_000


@pytest.mark.parametrize("answers", [0, 3, 40], ids=["first", "hashing", "reading again"])
def test_checked_file_store_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """A store that ceases to answer is named, and is no damage of the file."""
    read_again(monkeypatch)
    written = Path(write_parquet(tmp_path, ROWS))
    assert 3 < written.stat().st_size // 256 < 40

    with pytest.raises(
        StoreUnavailableError, match=r"part-0\.parquet can't be read from its store"
    ):
        read_all(CountedPath(written, "s3", answers), planned(written))
