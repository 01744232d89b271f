"""Files that can't be read: damage on a disk is a finding, a store's outage is not."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from upath import UPath

from kafka_drain.archive.receipts import SealedFile
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import index_sha256, read_offsets, read_records
from kafka_drain.errors import DataFileError, StoreUnavailableError
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.committed_file import file_sha256, read_file
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.proof.sealing import Identity, seal_window
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.republish.planning.test_header_names import ROWS, write


class StoredFile:
    """A file of a store, which answers with some bytes or with an error."""

    protocol = "s3"
    suffix = ".parquet"

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer

    def open(self, mode: str, **_: object) -> IO[bytes]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return io.BytesIO(self.answer)


class ClientError(Exception):
    """As the stores' own packages have them."""


ClientError.__module__ = "botocore.exceptions"

READS: list[Callable[[Any], object]] = [
    file_sha256,
    lambda path: read_offsets(path, "parquet", "t"),
    lambda path: list(read_records(path, "parquet", 1000)),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("gone"),
        TimeoutError(),
        PermissionError("no"),
        OSError(5, "503"),
        ClientError("no endpoint"),
    ],
    ids=repr,
)
def test_read_store_unavailable(read: Callable[[Any], object], error: Exception) -> None:
    """A store that doesn't answer is transient, and says nothing about its files."""
    with pytest.raises(StoreUnavailableError, match="can't be read from its store"):
        read(StoredFile(error))


def test_read_store_damaged() -> None:
    """Bytes that a store has answered with, and that are no Parquet, are damage."""
    path: Any = StoredFile(b"no Parquet at all")

    with pytest.raises(DataFileError, match="not readable as Parquet"):
        read_offsets(path, "parquet", "t")


def test_read_store_missing() -> None:
    """A file that a store hasn't got is missing."""
    path: Any = StoredFile(FileNotFoundError(2, "no such key"))

    with pytest.raises(FileNotFoundError):
        file_sha256(path)


def test_read_file_unreadable(tmp_path: Path) -> None:
    """A file that the machine can't read is a finding, with what the system says."""
    # Also root can't read a folder's bytes.
    folder = tmp_path / "data" / "part-0.parquet"
    folder.mkdir(parents=True)
    sink_file = SinkFile("part-0.parquet", folder.stat().st_size, 0, 0, "0")

    found = read_file(str(tmp_path), "data", sink_file, "parquet")

    assert isinstance(found, Finding)
    assert (found.reason, found.where) == (Reason.FILE_CORRUPT, "data/part-0.parquet")
    assert "can't be read: [Errno 21]" in found.detail


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([0, 1, 4], False), ([0, 2], True), ([3, 4, 0], True), (range(6), True)],
)
def test_read_file_nul_header_names(
    tmp_path: Path, file_format: str, numbers: Iterable[int], expected: bool
) -> None:
    """What is sealed says of each file whether a header's name has a NUL, in any format."""
    (tmp_path / "data").mkdir()
    written = write(tmp_path, file_format, [ROWS[number] for number in numbers], "data")
    size = (tmp_path / written.path).stat().st_size

    found = read_file(str(tmp_path), "data", SinkFile("x", size, 0, 0, "0"), file_format)

    assert isinstance(found, CommittedFile)
    assert found.nul_header_names is expected
    # As an executor of Spark hands it over.
    assert CommittedFile.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    [sealed] = _sealed(found)
    assert sealed.nul_header_names is expected
    # Parquet alone has what lets a search skip records.
    assert sealed.index_sha256 == index_sha256(tmp_path / found.path, file_format)
    assert (sealed.index_sha256 is None) is (file_format != "parquet")


def _sealed(file: CommittedFile) -> Sequence[SealedFile]:
    identity = Identity("p", "c", {})
    return seal_window(
        (), [file], (), identity=identity, window="w", replaces=(), fingerprint=None, sealed_at=""
    ).files


def test_damage_of_unreadable(tmp_path: Path) -> None:
    """A sealed file that the machine can't read any more isn't what it was."""
    (tmp_path / "part-0.parquet").mkdir()
    sealed = SealedFile("part-0.parquet", 7, "sha", ())

    found = damage_of(UPath(tmp_path), sealed, 7, deep=True)

    assert found is not None
    assert found.reason == Reason.FILE_CHANGED
    assert "can't be read: [Errno 21]" in found.detail


def test_read_file_last_hashes(tmp_path: Path) -> None:
    """Each partition's newest record is hashed: also one at offset 0, and whatever their order."""
    tps = [TopicPartition("t", number) for number in range(3)]
    newest = {tps[0]: {0: 0}, tps[1]: {7: 0}, tps[2]: {2: 0}}
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    offsets = {tps[0]: [0], tps[1]: [7, 3], tps[2]: [1, 2]}
    [whole] = made.seal({tp: dict.fromkeys(at, 0) for tp, at in offsets.items()}, together=True)

    def read(folder: str, path: str) -> CommittedFile:
        size = (tmp_path / "archive" / path).stat().st_size
        listed = SinkFile(path.removeprefix(f"{folder}/"), size, 0, 0, "0")
        found = read_file(str(made.root), folder, listed, "parquet")
        assert isinstance(found, CommittedFile)
        return found

    found = read("generations/0001/data", whole.path).contents
    alone = {
        tp: read("alone", file.path).contents[0]
        for tp, file in zip(tps, made.write("alone", newest), strict=True)
    }

    assert {each.tp: each.last for each in found} == {tps[0]: 0, tps[1]: 7, tps[2]: 2}
    assert {each.tp: each.last_hash for each in found} == {
        tp: each.last_hash for tp, each in alone.items()
    }
