"""Find the records that an erasure names: arithmetic on batches of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.archive.documents import ErasureDocument
from kafka_drain.archive.erasures import header_hash, key_hash
from kafka_drain.archive.receipts import SealedContent
from kafka_drain.data_files.records import units_per_second
from kafka_drain.kafka.identity import earlier_incarnations

#: More than any offset.
_NO_END = 1 << 63


@dataclass(frozen=True)
class Named:
    """The records that an erasure names.

    A record must have one of the keys if there are any, one of the headers if there are any, be of
    one of the topics, in the time range, and within the scope: before the end that its partition
    had in Kafka when the erasure was asked for.

    Attributes:
        document: The erasure's document.
    """

    document: ErasureDocument

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self.document.keys)

    @cached_property
    def _headers(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for row in self.document.headers:
            found.setdefault(row.name, set()).add(row.hash)
        return {name: frozenset(hashes) for name, hashes in found.items()}

    @cached_property
    def _ends(self) -> Mapping[tuple[str, str], Mapping[str, int] | None]:
        return {(row.topic, row.topic_id): row.ends for row in self.document.scope}

    @cached_property
    def _salt(self) -> bytes:
        return bytes.fromhex(self.document.salt)

    @property
    def columns(self) -> list[str]:
        """The columns that decide, besides partition and offset."""
        wants = {
            "key": bool(self.document.keys),
            "headers": bool(self.document.headers),
            "timestamp": self.document.from_ms is not None or self.document.to_ms is not None,
        }
        return [name for name, is_wanted in wants.items() if is_wanted]

    def end(self, topic: str, topic_id: str, partition: int) -> int:
        """Return the end of the offsets that it reaches, exclusive; 0 for none of a partition."""
        if self.document.topics and topic not in self.document.topics:
            return 0
        if self.document.for_ever:
            return _NO_END
        if (topic, topic_id) in self._ends:
            ends = self._ends[topic, topic_id]
            return _NO_END if ends is None else ends.get(str(partition), 0)
        # A log that was rewritten since, or one beside it: its offsets went on.
        before = (self._ends.get((topic, earlier)) for earlier in earlier_incarnations(topic_id))
        return next(filter(None, before), {}).get(str(partition), 0)

    def may_be_in(self, content: SealedContent, topic_id: str) -> bool:
        """Return whether a file's contents of a partition may hold such a record.

        Timestamps that couldn't be represented are unknown.
        """
        first, last = content.first_timestamp, content.last_timestamp
        from_ms, to_ms = self.document.from_ms, self.document.to_ms
        return (
            content.first_offset < self.end(content.topic, topic_id, content.partition)
            and (from_ms is None or last is None or last >= from_ms)
            and (to_ms is None or first is None or first < to_ms)
        )

    def rows(self, batch: pa.RecordBatch, topic: str, topic_id: str) -> pa.BooleanArray:
        """Return for each row of a topic's batch whether it is one of the records.

        Args:
            batch: Has the columns partition and offset, and those of `columns`.
        """
        found = self._in_scope(batch, topic, topic_id)
        if "timestamp" in self.columns:
            found = pc.and_(found, self._in_time(batch["timestamp"]))
        if self._keys:
            found = pc.and_(found, self._has_key(batch["key"]))
        if self._headers and pc.any(found).as_py():
            found = pc.and_(found, self._has_header(batch["headers"]))
        return found

    def _in_scope(self, batch: pa.RecordBatch, topic: str, topic_id: str) -> pa.BooleanArray:
        partitions = batch["partition"]
        found = pa.array([False]).take(pa.array([0] * batch.num_rows, pa.int64()))
        for partition in pc.unique(partitions).to_pylist():
            end = self.end(topic, topic_id, partition)
            its = pc.equal(partitions, pa.scalar(partition, partitions.type))
            before = pc.less_equal(batch["offset"], pa.scalar(end - 1, pa.int64()))
            found = pc.or_(found, pc.and_(its, before))
        return found

    def _in_time(self, times: Any) -> pa.BooleanArray:
        # As numbers: a bound may lie outside of what the column's unit can represent.
        per_second = units_per_second(times.type)
        ticks = times.cast(pa.int64())
        found = pc.is_valid(ticks)
        bounds = (
            (self.document.from_ms, pc.greater_equal),
            (self.document.to_ms, pc.less),
        )
        for bound, compare in bounds:
            if bound is not None:
                limit = -(-bound * per_second // 1000)
                limit = min(max(limit, -(1 << 63)), (1 << 63) - 1)
                found = pc.and_(found, compare(ticks, pa.scalar(limit, pa.int64())))
        return found.fill_null(False)

    def _has_key(self, keys: Any) -> pa.BooleanArray:
        # Most batches have each key often, or none of the erased ones.
        different = pc.unique(keys).drop_null()
        hits = [key for key in different.to_pylist() if key_hash(self._salt, key) in self._keys]
        return pc.is_in(keys, value_set=pa.array(hits, keys.type)).fill_null(False)

    def _has_header(self, headers: Any) -> pa.BooleanArray:
        return pa.array(
            [
                any(
                    header["key"] in self._headers
                    and header_hash(self._salt, header["key"], header["value"] or b"")
                    in self._headers[header["key"]]
                    for header in row or ()
                )
                for row in headers.to_pylist()
            ],
            pa.bool_(),
        )
