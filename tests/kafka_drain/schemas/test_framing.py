"""The framing of other registries, told by a payload's bytes."""

from __future__ import annotations

import pytest

from kafka_drain.schemas.framing import APICURIO, GLUE, count_framings
from tests.kafka_drain.schemas.records import batch_of, row


@pytest.mark.parametrize(
    ("payload", "framing"),
    [
        (b"\3\0" + bytes(16), GLUE),
        (b"\3\5" + bytes(16) + b"x", GLUE),
        (b"\3\5" + bytes(15), None),
        (b"\3\1" + bytes(16), None),
        (bytes(5) + b"\0\0\0\7", APICURIO),
        # A number of eight bytes, and an id of Confluent's.
        (bytes(7) + b"\7", None),
        (b"\0\0\0\0\7abcdef", None),
        (b"", None),
        (None, None),
    ],
)
def test_count_framings(payload: bytes | None, framing: str | None) -> None:
    """Each framing is told by the first bytes and the size."""
    found = count_framings(batch_of([row(None, payload)]), "t")

    assert found == ({} if framing is None else {("t", "value", framing): 1})
