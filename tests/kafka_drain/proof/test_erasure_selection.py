"""Which records an erasure names: each criterion on both sides of its bounds, and all together."""

from __future__ import annotations

import hmac
from datetime import datetime, timezone
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.archive.documents import ErasureDocument
from kafka_drain.archive.erasures import header_hash, key_hash
from kafka_drain.archive.receipts import SealedContent
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.erasure_selection import Named
from tests.tables import each_of

SALT = bytes(range(32))
#: The largest offset that a file may have.
LAST = (1 << 63) - 1


def named(**changes: Any) -> Named:
    """An erasure of all that topic t with id 1 had: ten offsets of partition 0, five of 1."""
    document = {
        "format_version": 1,
        "request": "r",
        "by": "b",
        "asked_at": "2026-01-01T00:00:00.000+00:00",
        "salt": SALT.hex(),
        "keys": [],
        "headers": [],
        "topics": [],
        "from_ms": None,
        "to_ms": None,
        "scope": [
            {"topic": "t", "topic_id": "1", "ends": {"0": 10, "1": 5}},
            {"topic": "t", "topic_id": "0", "ends": None},
        ],
        "for_ever": False,
    }
    return Named(ErasureDocument.model_validate(document | changes))


def batch(*rows: dict[str, Any], unit: str = "us") -> pa.RecordBatch:
    """Records of partition 0 from offset 0 on, unless they say otherwise."""
    whole = [{"partition": 0, "offset": n} | row for n, row in enumerate(rows)]
    found = pa.RecordBatch.from_pylist(whole, schema=SCHEMA)
    place = SCHEMA.get_field_index("timestamp")
    times = found["timestamp"].cast(pa.timestamp(unit, tz="UTC"))
    return found.set_column(place, pa.field("timestamp", times.type), times)


def rows(
    found: Named, *records: dict[str, Any], topic: str = "t", topic_id: str = "1"
) -> list[int]:
    """Return the numbers of the records that are named."""
    mask = found.rows(batch(*records), topic, topic_id)
    assert mask.null_count == 0
    return [number for number, is_named in enumerate(mask.to_pylist()) if is_named]


def test_hashes() -> None:
    """Hashes depend on the salt, and a key is never mistaken for a header or another split."""
    found = {
        key_hash(SALT, b"ab"),
        key_hash(b"other", b"ab"),
        header_hash(SALT, "a", b"b"),
        header_hash(SALT, "ab", b""),
        header_hash(SALT, "", b"ab"),
        header_hash(b"other", "a", b"b"),
    }

    assert len(found) == 6
    assert {len(each) for each in found} == {64}
    # HMAC-SHA-256, as docs/format.md says.
    assert key_hash(b"salt", b"key") == (
        "cbd189a8672eea4efc46b5c8d42fda1d0efe8dbc694103b3d7b8fa47da927f7f"
    )
    assert header_hash(b"salt", "a", b"b") == (
        "9bc8d981781148ef13633cbec411ca12815a5a0d4c029ceffcb85d65898944e3"
    )
    # The length is that of the name in UTF-8.
    content = b"header\0" + b"\0\0\0\2" + "é".encode() + b"c"
    assert header_hash(b"salt", "é", b"c") == hmac.digest(b"salt", content, "sha256").hex()


def test_rows_of_keys() -> None:
    """One of the keys, byte by byte; a record without a key has none of them."""
    found = named(keys=[key_hash(SALT, b"a"), key_hash(SALT, b"\x00\xff")])

    keys = [b"a", b"A", None, b"\x00\xff", b"", b"a"]
    assert rows(found, *({"key": key} for key in keys)) == [0, 3, 5]
    assert rows(named(keys=[key_hash(SALT, b"")]), *({"key": key} for key in keys)) == [4]
    assert found.columns == ["key"]


def test_rows_of_headers() -> None:
    """One of the headers, at any place and repeated; a header without a value is an empty one."""
    hashed = [("a", b"1"), ("a", b"2"), ("b", b"1"), ("c", b"")]
    found = named(headers=[{"name": n, "hash": header_hash(SALT, n, v)} for n, v in hashed])

    headers = [
        None,
        [],
        [{"key": "a", "value": b"1"}],
        [{"key": "a", "value": b"3"}, {"key": "a", "value": b"2"}],
        [{"key": "b", "value": b"2"}],
        [{"key": "c", "value": None}],
        [{"key": "d", "value": b"1"}],
    ]
    assert rows(found, *({"headers": each} for each in headers)) == [2, 3, 5]
    assert found.columns == ["headers"]


@each_of("unit", ["s", "ms", "us", "ns"])
@each_of(
    "bounds, expected",
    [
        ({"from_ms": 2_000}, [2, 3, 4]),
        ({"to_ms": 2_000}, [0, 1]),
        ({"from_ms": 1_000, "to_ms": 3_000}, [1, 2]),
        ({"from_ms": 1_001, "to_ms": 2_001}, [2]),
        ({"from_ms": -(1 << 63)}, [0, 1, 2, 3, 4]),
        ({"to_ms": (1 << 63) - 1}, [0, 1, 2, 3, 4]),
    ],
)
def test_rows_of_time(unit: str, bounds: dict[str, int], expected: list[int]) -> None:
    """From the first time on, before the second, whatever the unit of the file's times."""
    found = named(**bounds)
    times = [{"timestamp": datetime.fromtimestamp(n, timezone.utc)} for n in range(5)]

    mask = found.rows(batch(*times, {"timestamp": None}, unit=unit), "t", "1")

    assert [n for n, is_named in enumerate(mask.to_pylist()) if is_named] == expected
    assert mask.null_count == 0
    assert found.columns == ["timestamp"]


def test_rows_of_time_before_1970() -> None:
    """A bound before 1970 is one as any other."""
    times = [{"timestamp": datetime.fromtimestamp(n, timezone.utc)} for n in (-2, -1, 1)]

    assert rows(named(from_ms=-1_000), *times) == [1, 2]


@pytest.mark.parametrize(
    ("topics", "for_ever", "topic", "topic_id", "expected"),
    [
        ([], False, "t", "1", [0, 2]),
        # The topic was deleted, or another one has its name: no record is added to it.
        ([], False, "t", "0", [0, 1, 2, 3, 4, 5]),
        # It was made after the request.
        ([], False, "t", "2", []),
        # The logs, or one of them, were rewritten after the request.
        ([], False, "t", "1~2", [0, 2]),
        ([], False, "t", "1~3", [0, 2]),
        ([], False, "t", "0~2", []),
        ([], False, "u", "1", []),
        (["t"], False, "t", "1", [0, 2]),
        (["u"], False, "t", "1", []),
        (["u"], True, "t", "1", []),
        ([], True, "u", "7", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_rows_in_scope(
    topics: list[str], for_ever: bool, topic: str, topic_id: str, expected: list[int]
) -> None:
    """Before the end that the partition had; all of an older topic, none of a newer one."""
    places = [(0, 9), (0, 10), (1, 4), (1, 5), (2, 0), (0, LAST)]
    records = [{"partition": partition, "offset": offset} for partition, offset in places]

    found = named(topics=topics, for_ever=for_ever)

    assert rows(found, *records, topic=topic, topic_id=topic_id) == expected
    assert found.columns == []


@pytest.mark.parametrize("holds", list(product((False, True), repeat=4)))
def test_rows_need_every_criterion(holds: tuple[bool, ...]) -> None:
    """A record must have key, header and time, and be in the scope; one is not enough."""
    key, header, time, scope = holds
    found = named(
        keys=[key_hash(SALT, b"a")],
        headers=[{"name": "h", "hash": header_hash(SALT, "h", b"1")}],
        from_ms=0,
        to_ms=1,
    )
    record = {
        "key": b"a" if key else b"b",
        "headers": [{"key": "h", "value": b"1" if header else b"2"}],
        "timestamp": datetime.fromtimestamp(0 if time else 1, timezone.utc),
        "offset": 9 if scope else 10,
    }

    assert rows(found, record) == ([0] if all(holds) else [])
    assert found.columns == ["key", "headers", "timestamp"]


def test_rows_of_none() -> None:
    """An empty batch names nothing."""
    assert rows(named()) == []


@pytest.mark.parametrize(
    ("first_offset", "times", "bounds", "may_be"),
    [
        (9, (0, 9), {}, True),
        (10, (0, 9), {}, False),
        (0, (0, 9), {"from_ms": 9}, True),
        (0, (0, 9), {"from_ms": 10}, False),
        (0, (1, 9), {"to_ms": 2}, True),
        (0, (1, 9), {"to_ms": 1}, False),
        (0, (None, None), {"from_ms": 10, "to_ms": 20}, True),
        (10, (None, None), {"from_ms": 10, "to_ms": 20}, False),
    ],
)
def test_may_be_in(
    first_offset: int, times: tuple[int | None, int | None], bounds: dict[str, int], may_be: bool
) -> None:
    """A receipt rules a file out by its first offset and its times; unknown times rule out none."""
    tp = TopicPartition("t", 0)
    content = SealedContent.of(tp, first_offset, 20, 1, *times)

    assert named(**bounds).may_be_in(content, "1") is may_be
    assert named(**bounds).may_be_in(content, "2") is False
