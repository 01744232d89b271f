"""Footers that pyarrow would end the process for are refused, whatever is damaged in them."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.data_files import reader
from kafka_drain.data_files.parquet_footer import KeptReads, check_footer, check_metadata
from kafka_drain.data_files.records import RowBounds
from kafka_drain.errors import DataFileError
from tests.kafka_drain.data_files import footers
from tests.kafka_drain.data_files.footers import (
    FILES,
    Value,
    field,
    footer_of,
    put,
    set_field,
    taken,
    with_footer,
)

ROOT = Path(__file__).parents[3]
#: Key, value, partition, offset: BYTE_ARRAY, BYTE_ARRAY, INT32, INT64.
SPARK = ROOT / "tests" / "data" / "bloom_filter_spark41.parquet"
SCHEMA = pq.ParquetFile(SPARK).schema
KEY, PARTITION, OFFSET = 0, 2, 3

LONG, BINARY, LIST, STRUCT = 6, 8, 9, 12


def column(tree: Value, position: int) -> Value:
    """Return the metadata of a column of the first row group."""
    return field(tree, 4, 0, 1, position, 3)


def levels(*counts: int) -> Value:
    return [LIST, [[LONG, count] for count in counts], LONG]


def set_in(position: int, structure: int | None, number: int, to: Value | None) -> Any:
    """Return a damage that sets a field of a column's metadata, or of a structure in them."""

    def damage(tree: Value) -> None:
        described = column(tree, position)
        set_field(described if structure is None else field(described, structure), number, to)

    return damage


def with_columns(change: Callable[[list[Value]], Any]) -> Any:
    return lambda tree: change(field(tree, 4, 0, 1)[1])


def key_of_column(tree: Value) -> None:
    crypto = [STRUCT, [[2, [STRUCT, [[1, [LIST, [[BINARY, b"key"]], BINARY]]]]]]]
    set_field(field(tree, 4, 0, 1, KEY), 8, crypto)


DAMAGES = {
    "definition": (set_in(KEY, 16, 3, levels(1, 2, 3)), "column key has 3 levels, expected 2"),
    "repetition": (set_in(KEY, 16, 2, levels(1, 2)), "column key has 2 levels, expected 1"),
    "unencoded": (set_in(OFFSET, 16, 1, [LONG, 9]), "offset of INT64 has a size that only BYTE_A"),
    "bound": (set_in(OFFSET, 12, 5, [BINARY, b"1234567"]), "bound of column offset has 7 bytes"),
    "no bound": (set_in(PARTITION, 12, 6, [BINARY, b""]), "has 0 bytes, expected 4"),
    "type": (set_in(KEY, None, 1, [5, 2]), "key has type 2, but it is BYTE_ARRAY in the schema"),
    "no such type": (set_in(KEY, None, 1, [5, 99]), "key has type 99"),
    "negative type": (set_in(KEY, None, 1, [5, -2]), "key has type -2"),
    "codec": (set_in(KEY, None, 4, [5, 8]), "key has codec 8, expected 0 to 7"),
    "column missing": (
        with_columns(lambda chunks: chunks.pop()),
        "3 columns, but the schema has 4",
    ),
    "column more": (with_columns(lambda chunks: chunks.append(chunks[0])), "5 columns, but the s"),
    "metadata": (lambda tree: set_field(field(tree, 4, 0, 1, KEY), 3, None), "key has no metadata"),
    "key": (key_of_column, "column key has a key, but the file isn't encrypted"),
}


def damaged_file(damage: Any) -> bytes:
    file = SPARK.read_bytes()
    tree = taken(footer_of(file))
    damage(tree)
    return with_footer(file, put(tree))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_check_footer_undamaged(path: Path) -> None:
    """What Spark and pyarrow write is let through; the tests' own writer writes the same bytes."""
    with path.open("rb") as source:
        check_footer(source, pq.ParquetFile(path).schema)

    footer = footer_of(path.read_bytes())
    assert put(taken(footer)) == footer


@pytest.mark.parametrize("name", DAMAGES)
def test_check_footer_damaged(name: str) -> None:
    """Each is refused with the column, what was seen, and what was expected."""
    damage, match = DAMAGES[name]

    with pytest.raises(DataFileError, match=f"^the footer is damaged: .*{match}"):
        check_footer(io.BytesIO(damaged_file(damage)), SCHEMA)


@pytest.mark.parametrize("name", DAMAGES)
def test_reader_damaged_footer(tmp_path: Path, name: str) -> None:
    """Every way to read a data file refuses it; none ends the process."""
    path = UPath(tmp_path / "part-0.parquet")
    path.write_bytes(damaged_file(DAMAGES[name][0]))
    wanted = RowBounds(keys=frozenset([b"k"]))

    for read in (
        lambda: [*reader.read_records(path, "parquet", 1 << 20)],
        lambda: [*reader.read_records(path, "parquet", 1 << 20, wanted)],
        lambda: reader.read_offsets(path, "parquet", "t"),
        lambda: reader.bytes_to_read(path, "parquet", path.stat().st_size, wanted),
    ):
        with pytest.raises(DataFileError):
            read()


def test_check_footer_encrypted() -> None:
    """The bytes of an encrypted footer aren't looked at: they are authenticated."""
    check_footer(io.BytesIO(b"PARE" + b"\xff" * 40 + b"\x28\0\0\0PARE"), SCHEMA)


def test_check_footer_encrypted_column() -> None:
    """In a file with encrypted columns, whose footer isn't, they have a key, and no metadata."""

    def encrypt(tree: Value) -> None:
        key_of_column(tree)
        set_field(field(tree, 4, 0, 1, KEY), 3, None)
        set_field(tree, 8, [STRUCT, [[1, [STRUCT, []]]]])

    check_footer(io.BytesIO(damaged_file(encrypt)), SCHEMA)


HAND_MADE = {
    "empty": ("", "ends early"),
    "no stop": ("15 02", "ends early"),
    "endless integer": ("15" + "ff" * 11 + "00", "integer that doesn't end"),
    "long binary": ("18 7f 00", "says that 127 values follow"),
    "long list": ("19 fc ff ff ff ff 0f", "values follow"),
    "double": ("17 00 00", "ends early"),
    "unknown type": ("1e 00", "value of type 14"),
    "groups no structures": ("49 15 00 00", "list has elements of type 5"),
    "groups no list": ("4c 00 00", "field 4 has type 12"),
    "groups twice": ("49 0c 09 08 0c 00", "field 4 has type 9, or occurs twice"),
    "field of 17 bits": ("05 88 80 08 00 00", "it has a field 65540"),
    "deep structures": ("1c" * 100, "nested too deep"),
    "deep lists": ("19" + "19" * 100, "nested too deep"),
    "group without columns": ("49 1c 00 00", "0 columns, but the schema has 4"),
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_check_metadata_hand_made(name: str) -> None:
    """What isn't Thrift's compact protocol, or that C++ reads in another way, is refused."""
    content, match = HAND_MADE[name]

    with pytest.raises(DataFileError, match=match):
        check_metadata(bytes.fromhex(content), SCHEMA)


@pytest.mark.parametrize(
    "content",
    [
        "00",
        # Each type in a field that isn't known: booleans, byte, integers, double, binary, lists of
        # booleans and integers, a set, maps, a structure.
        "f1 12 13 ff 14 01 15 01 16 01 17 0102030405060708 18 02 6162 00",
        "a9 21 01 02 19 25 02 04 1a 15 02 1b 00 1b 01 55 02 04 1c 11 00 00",
        # A field's number by itself, and one below the one before it.
        "05 d0 0f 02 05 c8 0f 02 00",
        # What follows is the signature.
        "00 ff ff",
    ],
)
def test_check_metadata_unknown_fields(content: str) -> None:
    """Fields of later releases of the format are passed by."""
    check_metadata(bytes.fromhex(content), SCHEMA)


@given(st.binary(max_size=200))
def test_check_metadata_random(content: bytes) -> None:
    """Random bytes are refused with this error only, and reading them ends."""
    with suppress(DataFileError):
        check_metadata(content, SCHEMA)


@given(st.data())
def test_check_metadata_random_bytes_in_footer(data: st.DataObject) -> None:
    """The same within a footer."""
    content = bytearray(footer_of(SPARK.read_bytes()))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(1, 9))] = data.draw(st.binary(max_size=9))
    with suppress(DataFileError):
        check_metadata(bytes(content), SCHEMA)


def looked(first: int, count: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Look at damaged files in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", footers.__name__, str(first), str(count), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
    )


def test_check_footer_fuzzed() -> None:
    """Of hundreds of damaged footers none ends the process, and some are refused by the check."""
    result = looked(0, 600)

    assert result.returncode == 0, result.stderr[-2_000:]
    read, refused, others = map(int, result.stdout.split())
    assert read + refused + others == 600
    assert min(read, refused, others) > 30


def test_look_unchecked() -> None:
    """Without the check, pyarrow ends the process: once it doesn't, the check can go."""
    result = looked(0, 600, "unchecked")

    assert result.returncode < 0
    assert "parquet::ParquetException" in result.stderr


class Requests(io.BytesIO):
    """A file that counts reads."""

    requests = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.requests += 1
        return super().read(size)


@pytest.mark.parametrize("columns", [4, 1_000])
def test_kept_reads(columns: int) -> None:
    """The check of a large file in a store takes no further request, however long the footer is."""
    content = Requests()
    pq.write_table(pa.table({f"column {n}": [1, 2] for n in range(columns)}), content)
    content.requests = 0
    opened = pq.ParquetFile(content, pre_buffer=False)
    needed = content.requests
    content.requests = 0

    source = KeptReads(content)
    opened = pq.ParquetFile(source, pre_buffer=False)
    check_footer(source, opened.schema)

    assert content.requests == needed == (1 if columns == 4 else 2)
    source.forget()
    source.seek(0)
    assert (source.read(4), source.tell()) == (b"PAR1", 4)
    assert content.requests == needed + 1


def test_kept_reads_of_native_file(tmp_path: Path) -> None:
    """What pyarrow reads of a file of its own is kept as well, such as of one in a store."""
    pq.write_table(pa.table({"column": [1, 2]}), tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.parquet")) as file:
        source = KeptReads(file)
        footer = pq.read_metadata(source)
        read_by_pyarrow = dict(source._kept or {})

        check_footer(source, footer.schema)

        assert read_by_pyarrow
        assert source._kept == read_by_pyarrow


def test_kept_reads_elsewhere() -> None:
    """What wasn't read is read, from where it was sought."""
    source = KeptReads(io.BytesIO(b"0123456789"))
    source.seek(4)

    assert source.read(4) == b"4567"
    source.seek(5)
    assert (source.read(2), source.tell()) == (b"56", 7)
    assert source.read(2) == b"78"
    source.seek(5)
    assert source.read() == b"56789"
    source.seek(2)
    assert source.read(3) == b"234"
