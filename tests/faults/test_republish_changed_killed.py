"""A republish that leaves records out and changes them, killed at random moments.

`CHANGED_RECORDS` sets the number of records; 1,000,000 by default.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import uuid
from pathlib import Path

import pytest

from kafka_drain.offsets import TopicPartition
from tests.faults.republishing import Record, Run, make_target, read_topic, torment
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = [pytest.mark.integration, pytest.mark.soak]

RECORDS = int(os.environ.get("CHANGED_RECORDS", "1000000"))
PARTITIONS, FILES, FIRST_MS, KILLS = 4, 4, 1_767_000_000_000, 10
SECRET = b"a secret key of pseudonyms"


def key_of(tp: TopicPartition, offset: int) -> bytes:
    return b"customer %d" % (offset * PARTITIONS % 5_000 + tp.partition)


def value_of(tp: TopicPartition, offset: int) -> bytes | None:
    if offset % 50 == 49:
        return None
    country = b"FR" if offset % 7 == 0 else b"DE"
    return b'{"id": %d, "email": "%d@example.com", "country": "%s", "sum": 1.50}' % (
        offset, offset * PARTITIONS + tp.partition, country,
    )  # fmt: skip


def expected_of(tp: TopicPartition, offset: int) -> Record | None:
    """Return what is sent of a record, by other means than the product's."""
    if offset % 7 == 0 and offset % 50 != 49:
        return None
    value = value_of(tp, offset)
    if value is not None:
        email = b"%d@example.com" % (offset * PARTITIONS + tp.partition)
        value = value.replace(email, b"***")
    key = hmac.new(SECRET, key_of(tp, offset), hashlib.sha256).hexdigest().encode()
    return key, value, (), FIRST_MS + offset


def test_republish_changed_killed_ten_times(bootstrap_servers: str, tmp_path: Path) -> None:
    """Each record is there once, changed, and in order; the same again gives the same bytes."""
    each = RECORDS // PARTITIONS
    sources = [TopicPartition("customers", partition) for partition in range(PARTITIONS)]
    made = MadeArchive(tmp_path / "archive", {"customers": "id-1"})
    for number in range(FILES):
        rows = dense(each * number // FILES, each * (number + 1) // FILES, FIRST_MS)
        made.seal(dict.fromkeys(sources, rows), key=key_of, value=value_of)
    # A closed generation needs no checkpoint of Spark's.
    made.open_generation()
    key_file = tmp_path / "key"
    key_file.write_bytes(SECRET)
    expected = {
        tp.partition: [one for n in range(each) if (one := expected_of(tp, n)) is not None]
        for tp in sources
    }
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    asked = [
        "--filter", "not $.country=FR", "--mask", "$.email", "--hash", "key",
        "--hash-key-file", key_file,
    ]  # fmt: skip

    def make_run(nth: int) -> Run:
        target = make_target(bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}", PARTITIONS)
        return Run(tmp_path / "archive", bootstrap_servers, target, tmp_path)

    sent = sum(map(len, expected.values()))
    runs = torment(
        make_run,
        sent,
        kills=KILLS,
        zombies=0,
        chance=random.Random(seed),
        arguments=asked,
    )
    for run in runs:
        assert read_topic(bootstrap_servers, run.target) == expected
    receipts = [
        json.loads(path.read_text())
        for path in (tmp_path / "archive" / "republish").glob("*/receipt.json")
    ]
    assert len(receipts) == len(runs)
    for receipt in receipts:
        assert receipt["verification"]["is_exact"]
        assert receipt["change"]["dropped"] == RECORDS - sent
