"""A window is compared with the files that it replaces, by what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from kafka_drain.archive.receipts import Receipt
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.records import TimestampError
from kafka_drain.errors import DataFileError, KeyUnavailableError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import replaced_files
from kafka_drain.proof.content_checks import content_of
from kafka_drain.proof.replaced_files import compare_replaced
from kafka_drain.proof.replacement import Replacement
from kafka_drain.proof.sealing import Identity, seal_window
from tests.kafka_drain.golden import END, add_batch, note_batch, open_next, sealed_copy
from tests.kafka_drain.made_archive import Batch, MadeArchive, dense

R = OffsetRange
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NO_HEADERS: dict[str, Any] = {}


def rewritten(*offsets: tuple[TopicPartition, int]) -> Callable[[TopicPartition, int], bytes]:
    """Return a column of values, which differ at some offsets."""
    return lambda tp, offset: b"other" if (tp, offset) in offsets else b"value"


class Case:
    """An archive with a segment of two files, and a window that is to replace them."""

    def __init__(self, folder: Path, *, is_known: bool = True, **columns: Any) -> None:
        self.made = MadeArchive(folder / "archive", {"flights": "id-1"})
        self.rows: Batch = {P0: dense(0, 10), P1: dense(0, 10)}
        self.old = self.made.seal_window("old", self.rows, is_known=is_known, columns=columns)

    def compare(
        self, rows: Batch | None = None, replaces: int = 2, *, known: bool = True, **columns: Any
    ) -> Replacement:
        """Write a window, and compare it."""
        rows = self.rows if rows is None else rows
        files = self.made.write("windows/new/data/0", rows, **columns)
        receipt: Receipt = seal_window(
            [(tp, OffsetRange(min(of), max(of) + 1)) for tp, of in rows.items()],
            files,
            (),
            identity=Identity("made", "cluster-1", self.made.topic_ids),
            window="new",
            replaces=[file.path for file in self.old[:replaces]],
            fingerprint=content_of(files).fingerprint if known else None,
            sealed_at="now",
        )
        return compare_replaced(self.made.archive.snapshot(), receipt, "parquet")

    def lose(self, number: int, *, changed: bool = False) -> None:
        """Lose a file, or change a byte of it."""
        path = Path(str(self.made.root / self.old[number].path))
        if changed:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        else:
            path.unlink()


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("new", [True, False])
def test_compare_same(tmp_path: Path, old: bool, new: bool) -> None:
    """The same records are equal, whether receipts have their hashes or only the files do."""
    assert Case(tmp_path, is_known=old).compare(known=new).is_equal


def test_compare_by_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the receipts have the same hash, no file is read."""
    case = Case(tmp_path)
    monkeypatch.setattr(replaced_files, "read_records", None)
    monkeypatch.setattr(replaced_files, "damage_of", None)

    assert case.compare().is_equal


@pytest.mark.parametrize("is_known", [True, False])
def test_compare_changed(tmp_path: Path, is_known: bool) -> None:
    """Other records at the same offsets are named, partition by partition."""
    found = Case(tmp_path, is_known=is_known).compare(value=rewritten((P0, 3), (P0, 4), (P1, 9)))

    assert found.names == ("flights:0:3-5", "flights:1:9-10")
    assert found.unknown == {}


@pytest.mark.parametrize("column", ["key", "value", "timestamp", "timestampType", "headers"])
def test_compare_columns(tmp_path: Path, column: str) -> None:
    """Each part of a record counts."""
    other: dict[str, Any] = {
        "key": b"another",
        "value": None,
        "timestamp": None,
        "timestampType": 1,
        "headers": [{"key": "h", "value": b"v"}],
    }

    assert Case(tmp_path).compare(**{column: other[column]}).names == (
        "flights:0:0-10",
        "flights:1:0-10",
    )


def test_compare_absent(tmp_path: Path) -> None:
    """A record that the window doesn't have differs, even if it has another one more."""
    rows: Batch = {P0: {**dense(0, 5), **dense(6, 11)}, P1: dense(0, 10)}

    assert Case(tmp_path).compare(rows).names == ("flights:0:5-6",)


def test_compare_more(tmp_path: Path) -> None:
    """Further records of the window replace nothing."""
    rows: Batch = {P0: dense(0, 15), P1: dense(0, 10)}

    assert Case(tmp_path).compare(rows).is_equal


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("replaces", [1, 2])
@pytest.mark.parametrize(
    ("value", "names"),
    [
        (b"value", ()),
        # Which of them differs, no receipt tells.
        (rewritten((P0, 3)), ("flights:0:0-10",)),
    ],
)
def test_compare_lost(
    tmp_path: Path, changed: bool, replaces: int, value: Any, names: tuple[str, ...]
) -> None:
    """Of a lost file, the receipt has the hash, together with the segment's other file."""
    case = Case(tmp_path)
    case.lose(0, changed=changed)
    rows = {tp: of for tp, of in case.rows.items() if tp == P0 or replaces == 2}

    found = case.compare(rows, replaces, value=value)

    assert (found.names, found.unknown) == (names, {})


@pytest.mark.parametrize("how", ["no fingerprint", "another lost", "expired"])
def test_compare_lost_unknown(tmp_path: Path, how: str) -> None:
    """What no receipt tells apart isn't taken for equal."""
    case = Case(tmp_path, is_known=how != "no fingerprint")
    case.lose(0)
    if how == "another lost":
        case.lose(1)
    start = 4 if how == "expired" else 0

    found = case.compare({P0: dense(start, 10)}, 1)

    assert found.changed == {}
    assert found.names == (f"flights:0:{start}-10",)


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("value", [b"value", b"other"])
@pytest.mark.parametrize("is_idle", [True, False])
def test_compare_one_of_several_topics(
    tmp_path: Path, is_idle: bool, value: bytes, is_lost: bool
) -> None:
    """A window of one topic stands for files of a segment that was read from others too.

    Its receipt has the id of that topic alone, those of generations all ids.
    """
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1", "trains": "id-2"})
    trains, rows = TopicPartition("trains", 0), {P0: dense(0, 10)}
    batch: Batch = rows if is_idle else {**rows, trains: dense(0, 7)}
    gaps = [Gap(trains, OffsetRange(0, 0), GapReason.COMPACTED)] if is_idle else []
    read = content_of(made.write("read", batch)).fingerprint
    [old, *_] = made.seal(batch, gaps=gaps, fingerprint=read)
    if is_lost:
        Path(str(made.root / old.path)).unlink()

    found = _window_of(made, rows, [old.path], value=value)

    assert found.is_equal is (value == b"value")


def test_compare_topic_made_again(tmp_path: Path) -> None:
    """The same offsets of a topic that was made again are other records."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    rows = {P0: dense(0, 10)}
    [old] = made.seal(rows)
    made.open_generation(flights="id-2")

    assert _window_of(made, rows, [old.path]).names == ("flights:0:0-10",)


def _window_of(made: MadeArchive, rows: Batch, replaces: list[str], **columns: Any) -> Replacement:
    """Write a window that is to replace files, and compare it."""
    files = made.write("windows/new/data/0", rows, **columns)
    receipt = seal_window(
        [(tp, OffsetRange(min(of), max(of) + 1)) for tp, of in rows.items()],
        files,
        (),
        identity=Identity("made", "cluster-1", made.topic_ids),
        window="new",
        replaces=replaces,
        fingerprint=content_of(files).fingerprint,
        sealed_at="now",
    )
    return compare_replaced(made.archive.snapshot(), receipt, "parquet")


def test_compare_lost_and_changed(tmp_path: Path) -> None:
    """Where a file is lost and another one isn't, each is compared by what is left."""
    case = Case(tmp_path)
    case.lose(0)

    assert case.compare(value=rewritten((P1, 2))).names == ("flights:1:2-3",)


def test_compare_without_headers(tmp_path: Path) -> None:
    """Files that were drained without headers have the same records, whatever headers Kafka has."""
    case = Case(tmp_path, is_known=False)
    for file in case.old:
        path = Path(str(case.made.root / file.path))
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["headers"]), path)
    _seal_again(case)
    headers = pa.array([[("h", b"v")]], pa.map_(pa.string(), pa.binary())).to_pylist()[0]

    assert case.compare(headers=[{"key": key, "value": value} for key, value in headers]).is_equal
    assert not case.compare(value=rewritten((P0, 1))).is_equal


def _seal_again(case: Case) -> None:
    """Seal the files of the old window as they are now."""
    window = case.made.archive.snapshot().any_window("old")
    receipt = window.receipt
    files = []
    for file in receipt.files:
        content = Path(str(case.made.root / file.path)).read_bytes()
        import hashlib

        sha256 = hashlib.sha256(content).hexdigest()
        files.append(replace(file, bytes=len(content), sha256=sha256))
    (window.folder / "receipt.json").unlink()
    window.write_receipt(replace(receipt, files=tuple(files)).sealed())


def test_compare_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks narrow down which offsets differ; a long run of them has one range."""
    monkeypatch.setattr(replaced_files, "BLOCK", 16)
    case = Case(tmp_path, is_known=False)
    case.rows = {P0: dense(0, 400)}
    case.old = case.made.seal_window("older", case.rows, is_known=False)
    others = [(P0, 5), *((P0, n) for n in range(100, 300, 2))]

    assert case.compare(replaces=1, value=rewritten(*others)).names == (
        "flights:0:5-6",
        "flights:0:100-299",
    )


@pytest.mark.parametrize(
    "error",
    [
        TimestampError("a record's time can't be read"),
        KeyUnavailableError("its key can't be had"),
        DataFileError("its file can't be read"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("value", [b"value", b"other"])
def test_compare_intact_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, value: bytes
) -> None:
    """Records that can't be read any more are judged by their receipt, and not taken as equal."""
    case = Case(tmp_path)
    gone = str(case.old[0].path)

    def read(path: UPath, *rest: Any) -> Iterable[pa.RecordBatch]:
        if str(path).endswith(gone):
            raise error
        return read_records(path, *rest)

    monkeypatch.setattr(replaced_files, "read_records", read)

    found = case.compare(known=False, value=lambda tp, _: value if tp == P0 else b"value")

    assert found == (Replacement() if value == b"value" else Replacement({P0: [R(0, 10)]}))


def test_compare_unsealed(tmp_path: Path) -> None:
    """Files that no receipt seals are compared when their batch is."""
    case = Case(tmp_path)
    case.old = [replace(file, path=f"generations/0001/data/{n}") for n, file in enumerate(case.old)]

    assert case.compare(value=b"other").is_equal


@pytest.mark.parametrize("batch", [0, 1])
def test_compare_unsealed_not_noted(tmp_path: Path, batch: int) -> None:
    """Without a note, nobody can tell a changed file from a rewritten log."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, "parquet", ["topic"])
    files = {
        number: add_batch(generation, number, END + number, END + number + 1) for number in (0, 1)
    }
    changed, gone = files[batch]
    gone.unlink()
    names = [path.relative_to(tmp_path / "archive").as_posix() for path in (changed, gone)]
    ranges = [(tp, OffsetRange(END + batch, END + batch + 1)) for tp in (P0, P1)]
    receipt = seal_window(
        ranges,
        [],
        [],
        identity=Identity("p", "c", {"flights": "id"}),
        window="repair_1",
        replaces=names,
        fingerprint=None,
        sealed_at="",
    )

    def compare() -> Replacement:
        return compare_replaced(archive.snapshot(), receipt, "parquet")

    assert compare() == Replacement({}, {P0: [ranges[0][1]]})
    note_batch(generation, batch, files[batch][:1], END + batch, END + batch + 1)
    assert compare() == Replacement()
    # A compacted manifest doesn't tell the batch: it may be the one without a note.
    manifest = Path(str(generation.data)) / "_spark_metadata"
    lines = [line for name in "01" for line in (manifest / name).read_text().split("\n")[1:]]
    (manifest / "1.compact").write_text("\n".join(["v1", *lines]))
    assert compare() == Replacement({}, {P0: [ranges[0][1]]})
    other = 1 - batch
    note_batch(generation, other, files[other], END + other, END + other + 1)
    assert compare() == Replacement()
