"""Schema ids: what is one, and what replaces it."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka_drain.errors import SourceRecordError
from kafka_drain.schemas.schema_ids import SchemaIds, id_in, id_of_payload, with_id
from tests.kafka_drain.schemas.records import G1, G2, IDS, guid, prefix


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (None, None),
        (b"", None),
        (b"\0\0\0\0", None),
        (prefix(0), 0),
        (prefix(7) + b"rest", 7),
        (prefix(0xFFFFFFFF), 0xFFFFFFFF),
        (guid(G1)[:-1], None),
        (guid(G1), G1),
        (guid(G2) + b"\2\4", G2),
        (b"\2" + bytes(16), None),
        (b'{"id": 1}', None),
    ],
)
def test_id_in(head: bytes | None, expected: object) -> None:
    """An id is five bytes from a zero byte on, a GUID 17 from a byte of value 1 on."""
    assert id_in(head) == expected
    assert id_of_payload(head) == (expected if isinstance(expected, int) else None)


def test_with_id_keeps_the_rest() -> None:
    """What follows the id stays: Protobuf's message indexes, and the payload."""
    assert with_id(prefix(1) + b"\4\2\2x", IDS) == prefix(70_000) + b"\4\2\2x"
    assert with_id(guid(G1) + b"\4\2\2", IDS) == guid(G2) + b"\4\2\2"
    assert with_id(b"plain", IDS) == b"plain"


@pytest.mark.parametrize("head", [prefix(3), guid(str(UUID(int=3)))])
def test_with_id_unknown(head: bytes) -> None:
    """An id without a translation isn't passed on."""
    with pytest.raises(SourceRecordError, match=r"schema id .*3, which the plan doesn.t translate"):
        with_id(head, IDS)


def test_schema_ids_read_again() -> None:
    """A translation is the same after it was written and read."""
    ids = SchemaIds(IDS.ids, IDS.guids, frozenset({"orders:key"}))

    assert SchemaIds.from_dict(ids.to_dict()) == ids
    assert ids.parts_of("orders") == ["value"]
    assert ids.parts_of("other") == ["key", "value"]
    assert 300 in ids
    assert G1 in ids
    assert 301 not in ids
