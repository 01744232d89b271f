"""What a plan by key says of the partitioner that has placed the archive's keys."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.errors import DataFileError
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.key_samples import partitioner_notes
from kafka_drain.republish.planning.placement import partition_of_key
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.shards import ShardFile
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.republish.planning.test_planner import plan_of

PARTITIONS = 6

KEYS = [b"customer %d" % number for number in range(600)]


def made(tmp_path: Path, placement: str | None) -> MadeArchive:
    """Make an archive of 600 keys; without a placement, no partitioner's."""
    archive = MadeArchive(tmp_path / "archive", {"t": "id"})
    keys: dict[int, list[bytes]] = {}
    for number in range(600):
        key = b"customer %d" % number
        at = number % PARTITIONS
        if placement is not None:
            at = partition_of_key(key, PARTITIONS, 0, placement)
        keys.setdefault(at, []).append(key)
    archive.seal(
        {
            TopicPartition("t", number): {at: at for at in range(len(held))}
            for number, held in keys.items()
        },
        key=lambda tp, offset: keys[tp.partition][offset],
    )
    return archive


def notes(archive: MadeArchive, placement: str) -> tuple[RepublishPlan, list[str]]:
    plan = plan_of(archive.archive, files=archive.files, placement=placement)
    return plan, [note for note in plan.notes if "keys of t" in note]


def shares(archive: MadeArchive) -> dict[TopicPartition, list[ShardFile]]:
    """The files of each partition, as a plan has them."""
    found: dict[TopicPartition, list[ShardFile]] = {}
    for shard in plan_of(archive.archive, files=archive.files, placement="key").shards:
        found.setdefault(shard.source, []).extend(shard.files)
    return found


@pytest.mark.parametrize("placement", ["key", "key:crc32", "key:fnv1a"])
def test_notes_alike(tmp_path: Path, placement: str) -> None:
    """Keys that are placed as they were need no word; the plan is refused by older releases."""
    plan, said = notes(made(tmp_path, placement), placement)

    assert said == []
    assert "order of a key's records of one partition" in plan.keeps
    assert RepublishPlan.parse(plan.to_bytes()) == plan
    assert (b'"format_version":4' in plan.to_bytes()) is (placement != "key")


def test_notes_other(tmp_path: Path) -> None:
    """The partitioner of the archive's producers is named, and how to place keys by it."""
    archive = made(tmp_path, "key:crc32")

    _, [said] = notes(archive, "key")
    assert said.startswith("WARNING 102 keys of t were looked at: they were placed by CRC-32")
    assert said.endswith("--placement key:crc32 places keys as they do")
    assert zlib.crc32(b"customer 1") % PARTITIONS != partition_of_key(b"customer 1", PARTITIONS, 0)


def test_notes_unknown(tmp_path: Path) -> None:
    """If no partitioner explains them, that is said."""
    _, [said] = notes(made(tmp_path, None), "key")

    assert "no known partitioner explains their partitions" in said


def test_notes_original(tmp_path: Path) -> None:
    """Where keys choose no partition, none is looked at."""
    plan, said = notes(made(tmp_path, None), "0")

    assert said == []
    assert plan.keeps == "key, value, headers, timestamp and order"


def test_notes_json_lines(tmp_path: Path) -> None:
    """Keys of JSON lines, which are in base64 there, are looked at as they were sent."""
    files = {}
    for number in range(PARTITIONS):
        keys = [key for key in KEYS if partition_of_key(key, PARTITIONS, 0) == number]
        lines = [
            {"key": b64encode(key).decode(), "partition": number, "offset": at, "topic": "t"}
            | {"timestamp": "2026-01-01T00:00:00.000Z", "timestampType": 0}
            for at, key in enumerate(keys)
        ]
        path = tmp_path / f"{number}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        share = ShardFile(path.name, "json", path.stat().st_size, "", 0, len(keys) - 1, 1, True)
        files[TopicPartition("t", number)] = [share]

    assert partitioner_notes(UPath(tmp_path), files, "key") == []
    [said] = partitioner_notes(UPath(tmp_path), files, "key:crc32")
    assert "they were placed by murmur2" in said


@pytest.mark.parametrize("placement", ["key", "key:crc32"])
def test_notes_partitions_empty(tmp_path: Path, placement: str) -> None:
    """Keys were placed among all partitions of the topic, also those that hold no records."""
    archive = made(tmp_path, placement)
    files = {tp: held for tp, held in shares(archive).items() if tp.partition < PARTITIONS - 2}
    assert partitioner_notes(archive.root, files, placement) != []

    write_topic_settings(archive.root, {"t": TopicSettings(PARTITIONS, 1)})

    assert partitioner_notes(archive.root, files, placement) == []


def test_notes_unreadable(tmp_path: Path) -> None:
    """A file that can't be read is named as the archive names it."""
    (tmp_path / "a.parquet").write_bytes(b"damaged")
    share = ShardFile("a.parquet", "parquet", 7, "", 0, 9, 10, True)

    with pytest.raises(DataFileError, match=r"^a\.parquet: "):
        partitioner_notes(UPath(tmp_path), {TopicPartition("t", 0): [share]}, "key")
