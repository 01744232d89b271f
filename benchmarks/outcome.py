"""Hash the content of files and topics in offset order, to check that an arm's files are exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from confluent_kafka import Consumer, TopicPartition

from benchmarks.kafka_records import PARTITIONS

__all__ = ["hash_of_files", "hash_of_topic", "read_topic"]

_COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
_AT_ONCE = 50_000


def hash_of_files(folder: str) -> tuple[int, str]:
    """Return the number of records in Parquet files, and the hash of their content."""
    files = sorted(
        path for path in Path(folder).rglob("*.parquet") if "_spark_metadata" not in path.parts
    )
    tables = [pq.ParquetFile(path).read(columns=_COLUMNS) for path in files]
    return _hashed(pa.concat_tables([_same_types(table) for table in tables]))


def hash_of_topic(bootstrap_servers: str, topic: str) -> tuple[int, str]:
    """Return the number and the hash of the records that a consumer reads from a topic."""
    return _hashed(pa.concat_tables(pa.table(t) for t in read_topic(bootstrap_servers, topic)))


def read_topic(bootstrap_servers: str, topic: str, partition: int = -1) -> Iterator[pa.Table]:
    """Yield the records of a topic's partition (-1 for all), as a script would read them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "fetch.max.bytes": 64 << 20,
            "max.partition.fetch.bytes": 16 << 20,
            "queued.max.messages.kbytes": 256 << 10,
        }
    )
    partitions = range(PARTITIONS) if partition < 0 else [partition]
    missing = 0
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
        missing += high - low
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    while missing > 0:
        messages = consumer.consume(min(_AT_ONCE, missing), timeout=20)
        if not messages:
            raise RuntimeError(f"{missing:,} records of {topic} didn't come within 20 s")
        missing -= len(messages)
        yield pa.table(_columns(messages), schema=SCHEMA)
    consumer.close()


def _columns(messages: list[Any]) -> dict[str, list[Any]]:
    headers = [message.headers() for message in messages]
    return {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "headers": [
            [{"key": name, "value": value} for name, value in found] if found else None
            for found in headers
        ],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        # Milliseconds to microseconds.
        "timestamp": [message.timestamp()[1] * 1000 for message in messages],
    }


def _same_types(table: pa.Table) -> pa.Table:
    return table.select(SCHEMA.names).cast(SCHEMA)


def _hashed(table: pa.Table) -> tuple[int, str]:
    order = pc.sort_indices(table, sort_keys=[("partition", "ascending"), ("offset", "ascending")])
    table = table.take(order)
    digest = xxhash.xxh3_128()
    for name in ("partition", "offset", "timestamp"):
        _update(digest, table[name].cast(pa.int64()))
    for name in ("key", "value"):
        _update_bytes(digest, table[name])
    headers = table["headers"]
    _update(digest, pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()))
    pairs = pc.list_flatten(headers)
    for name in ("key", "value"):
        _update_bytes(digest, pc.struct_field(pairs, name).cast(pa.binary()))
    return table.num_rows, digest.hexdigest()


def _update(digest: Any, numbers: pa.ChunkedArray) -> None:
    for chunk in numbers.chunks:
        digest.update(chunk.to_numpy(zero_copy_only=False).tobytes())


def _update_bytes(digest: Any, column: pa.ChunkedArray) -> None:
    _update(digest, pc.fill_null(pc.binary_length(column), -1).cast(pa.int64()))
    for chunk in column.chunks:
        # The values are stored contiguously between the first and the last offset.
        joined = pc.binary_join(
            pa.ListArray.from_arrays([0, len(chunk)], pc.fill_null(chunk, b"")), b""
        )
        digest.update(joined[0].as_py())
