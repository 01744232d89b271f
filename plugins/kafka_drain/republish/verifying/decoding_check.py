"""Read a finished run's records back from the target, and decode them with its schemas.

Verify has proven that the target holds the archive's bytes with other schema ids. This proves what
the ids are for: that the target's registry decodes each record to the value that the archive's own
schemas give.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from operator import methodcaller
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.planning.binding import Binding, contradiction_of
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import named_runs
from kafka_drain.republish.verifying.offset_map import OffsetMap
from kafka_drain.republish.verifying.target_reader import TargetReader, target_client
from kafka_drain.republish.verifying.verify import END_TIMEOUT_SECONDS
from kafka_drain.schemas.capture import read_document
from kafka_drain.schemas.decoders import Decoders, kept_schemas, registered_schemas
from kafka_drain.schemas.framing import framing_of
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_ids import (
    HEADERS,
    SchemaId,
    SchemaIds,
    id_in,
    id_of_payload,
    with_id,
)
from kafka_drain.schemas.subjects import Subjects

#: Number of records that a result names.
SHOWN = 5

# Python 3.11's direct call of a C method doesn't check whether it failed.
_headers_of = methodcaller("headers")


@dataclass
class DecodingCheck:
    """The result of decoding.

    Attributes:
        records: Number of records that were read.
        decoded: Number of keys and values that both registries decode to the same value.
        expected: Number of keys and values that have a schema id according to the plan.
        without: Number of keys and values that have none.
        kept: Number that have an id which the plan keeps as it is.
        framings: Number of those that seem to have another registry's framing, by whose it is.
        failed: Number that can't be decoded, or have another value.
        problems: The first of these, in words.
    """

    records: int = 0
    decoded: int = 0
    expected: int = 0
    without: int = 0
    kept: int = 0
    framings: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether each key and value with a schema id has its value in the target."""
        return self.failed == 0 and self.decoded == self.expected

    def content(self) -> dict[str, Any]:
        """Return the numbers as JSON types."""
        return {
            "exact": self.is_exact,
            "records": self.records,
            "decoded": self.decoded,
            "expected": self.expected,
            "without": self.without,
            "failed": self.failed,
            "kept": self.kept,
            "framings": dict(self.framings),
        }

    def lines(self) -> list[str]:
        """Return it as text for the user."""
        found = (
            f"decoded {self.decoded:,} of {self.expected:,} keys and values in "
            f"{self.records:,} records; {self.without:,} have no schema id"
        )
        if self.kept:
            found += f", {self.kept:,} have one that was kept"
        other = [
            f"WARNING {count:,} keys and values look like {framing}, and weren't decoded"
            for framing, count in sorted(self.framings.items())
        ]
        return [found, *other, *(f"WARNING {problem}" for problem in self.problems)]


def check_run(
    archive: Archive, name: str, cluster: KafkaCluster, registry: SchemaRegistry
) -> DecodingCheck:
    """Decode the records that a finished run has sent; see `check_decoding`.

    Args:
        name: The run's name, or its key, which is its folder in `republish/`.
        cluster: The target cluster.
        registry: The target's Schema Registry.

    Raises:
        ConfigError: When there is no finished run of this name or key.
        TopicError: When it sent to another cluster, or to a topic that is gone.
    """
    runs = named_runs(archive.state, name)
    run = next((each for each in runs if each.has_ended), runs[0])
    plan, written = run.plan(), run.offset_map()
    if plan is None or written is None or not run.has_ended:
        raise ConfigError(
            f"{archive.root} has no finished run {name}; expected a run's name, or that of its "
            "folder in republish/"
        )
    contradiction = contradiction_of(cluster, Binding.of_plan(plan))
    if contradiction is not None:
        raise TopicError(
            f"run {name} {contradiction}. Nothing was read; name the cluster that it sent to"
        )
    return check_decoding(
        plan,
        OffsetMap.parse(written),
        cluster,
        Decoders(registered_schemas(Subjects(registry))),
        Decoders(kept_schemas(read_document(archive.root))),
    )


def check_decoding(
    plan: RepublishPlan,
    offset_map: OffsetMap,
    cluster: KafkaCluster,
    target: Decoders,
    source: Decoders,
) -> DecodingCheck:
    """Decode a run's records with the target's schemas and with the archive's.

    Args:
        plan: The run's plan, which has a translation of schema ids.
        offset_map: Offsets of its records.
        cluster: The target cluster.
        target: Decodes with the target's registry.
        source: Decodes with the schemas that the archive keeps.

    Raises:
        TransientError: When the target can't be read to the end.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    check = DecodingCheck()
    translation = plan.translation or SchemaIds()
    check.expected = sum(row["translated"] for row in (plan.schema_ids or {"counts": []})["counts"])
    back = SchemaIds(
        {new: old for old, new in translation.ids.items()},
        {new: old for old, new in translation.guids.items()},
    )
    spans = _spans(offset_map)
    ticker = Ticker("decode", Progress("records", plan.records))
    with closing(target_client(cluster, len(spans))) as client:
        for tp, places in sorted(spans.items()):
            reader = TargetReader(
                cluster,
                tp,
                first=min(ranges[0].start for ranges in places.values()),
                end=max(ranges[-1].end for ranges in places.values()),
                with_keys=False,
                timeout_seconds=END_TIMEOUT_SECONDS,
                client=client,
            )
            kept_of = cache(partial(_kept, translation))
            for messages in reader.messages(lambda: False):
                for message, topics in _own(messages, places):
                    check.records += 1
                    _check(check, message, kept_of(topics), back, target, source)
                ticker.at(check.records)
    if plan.schema_ids is None:
        # Nothing was translated, so the plan hasn't counted the ids.
        check.expected = check.decoded + check.failed
    return check


def _kept(translation: SchemaIds, topics: Collection[str]) -> dict[str, Collection[SchemaId]]:
    """Return the parts of a record that have ids, each with the ids that are kept.

    Args:
        topics: The source topics that it may have come from.
    """
    parts = [part for part in HEADERS if any(part in translation.parts_of(t) for t in topics)]
    return {
        part: frozenset().union(*(translation.kept_ids(topic, part) for topic in topics))
        for part in parts
    }


def _spans(
    offset_map: OffsetMap,
) -> Mapping[TopicPartition, Mapping[str, Sequence[OffsetRange]]]:
    """Return, for each target partition, where the run's records of each source topic are."""
    spans: dict[TopicPartition, dict[str, list[OffsetRange]]] = {}
    for part in offset_map.partitions:
        for block in part.blocks:
            held = OffsetRange(block.target_start, block.target_end)
            spans.setdefault(part.target, {}).setdefault(part.source.topic, []).append(held)
    return {
        tp: {topic: merge(ranges) for topic, ranges in places.items()}
        for tp, places in spans.items()
    }


def _own(
    messages: Iterable[Any], places: Mapping[str, Sequence[OffsetRange]]
) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yield the messages that lie where the run's are, with the topics that they may be of.

    Those between are other producers'. Joined blocks don't tell theirs apart, nor topics.
    """
    left = {topic: deque(ranges) for topic, ranges in places.items()}
    for message in messages:
        offset = message.offset()
        for ranges in left.values():
            while ranges and ranges[0].end <= offset:
                ranges.popleft()
        topics = frozenset(t for t, ranges in left.items() if ranges and ranges[0].start <= offset)
        if topics:
            yield message, topics


def _check(
    check: DecodingCheck,
    message: Any,
    kept: Mapping[str, Collection[SchemaId]],
    back: SchemaIds,
    target: Decoders,
    source: Decoders,
) -> None:
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):
        # A header name isn't UTF-8, so the record is another producer's, as names in files are
        # text. Don't call again: confluent-kafka 2.16 would return a null pointer in a tuple.
        return
    for part, kept_ids in kept.items():
        payload = message.key() if part == "key" else message.value()
        framing = framing_of(payload, len(payload or b""))
        if framing is not None:
            check.framings[framing] += 1
        if kept_ids and _id_of(part, payload, headers) in kept_ids:
            check.kept += 1
            continue
        try:
            found = target.decode(part, payload, headers)
            if found is None:
                check.without += payload is not None
                continue
            before = source.decode(part, *_as_it_was(part, payload, headers, back))
            if before is None or not _same(before.value, found.value):
                raise ValueError(f"schema id {found.id} gives another value than in the archive")
        except Exception as error:  # whatever decoders raise, the record can't be read
            check.failed += 1
            if len(check.problems) < SHOWN:
                check.problems.append(
                    f"the {part} at offset {message.offset():,} of {message.topic()}-"
                    f"{message.partition()} isn't decoded: {error}"
                )
        else:
            check.decoded += 1


def _id_of(part: str, payload: bytes | None, headers: Any) -> SchemaId | None:
    for name, content in headers or ():
        if name == HEADERS[part] and id_in(content) is not None:
            return id_in(content)
    return id_of_payload(payload)


def _as_it_was(part: str, payload: bytes, headers: Any, back: SchemaIds) -> tuple[bytes, Any]:
    """Return a payload and headers with the ids that they have in the archive."""
    changed = [
        (name, with_id(content, back) if name == HEADERS[part] and content else content)
        for name, content in headers or ()
    ]
    if any(name == HEADERS[part] and id_in(content) is not None for name, content in changed):
        return payload, changed
    return with_id(payload, back), changed


def _same(one: Any, other: Any) -> bool:
    # NaN isn't equal to itself, but the same value.
    return bool(one == other) or repr(one) == repr(other)
