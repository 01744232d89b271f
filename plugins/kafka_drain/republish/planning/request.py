"""The options of a republish: the single definition that everything else uses. Opens nothing.

The form of `republish_<name>`, the flags of `kafka-drain republish`, the operator's template fields
and the reference page are generated from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import Self

from kafka_drain.config.checks import refuse
from kafka_drain.config.model import collected
from kafka_drain.config.options import Limit, Moment, Options, Ranges, option
from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.spec import ChangeRequest
from kafka_drain.republish.planning.placement import ORIGINAL, parse_placement
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, EXACTLY_ONCE, STRICT
from kafka_drain.republish.planning.selection import Selection
from kafka_drain.schemas.schema_ids import HEADERS

#: Placeholder for the topic that a record came from.
OWN_TOPIC = "{topic}"

#: The default target: the source itself may still hold the records.
RESTORED = "{topic}.restored"

#: Sections of the form, and groups of flags.
WHERE, WHICH, CHANGED, HOW = (
    "Where to",
    "Which records",
    "What is changed",
    "How they are sent",
)


def _topic_name(name: str, target: str | None) -> str | None:
    if target is not None and not target.strip():
        raise refuse(
            name,
            target,
            f"a topic name, in which {OWN_TOPIC} stands for the topic that a record came from; "
            f"the default is {RESTORED}",
        )
    return target


def _renames(name: str, renames: dict[str, str]) -> dict[str, str]:
    for topic, target in renames.items():
        _topic_name(f"{name} of {topic}", target)
    return renames


#: An id, or a GUID.
_ID = r"0|[1-9]\d*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KEPT = re.compile(rf"[^:]+:(?:{'|'.join(HEADERS)})(?::(?:{_ID}))?")


def _parts(name: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    for part in parts:
        if not _KEPT.fullmatch(part):
            accepted = "a topic's keys or values, such as orders:key, or one id, as orders:key:7"
            raise refuse(name, part, accepted)
    return parts


def _placement(_: str, value: Any) -> str | int:
    return parse_placement(value)


Target = Annotated[str | None, AfterValidator(collected(_topic_name))]
Placement = Annotated[
    str | int, BeforeValidator(collected(_placement)), WithJsonSchema({"type": "string"})
]
Renames = Annotated[dict[str, str], AfterValidator(collected(_renames))]
# Shown as text in the form, whose lists have one line per value.
Partition = Annotated[int, Field(ge=0), WithJsonSchema({"type": "string"})]
Pace = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]
Parts = Annotated[tuple[str, ...], AfterValidator(collected(_parts))]


class RepublishRequest(Options):
    """The options of a republish.

    Raises:
        ConfigError: When a key is unknown, a value isn't acceptable, or two values contradict each
            other.
    """

    declares: ClassVar[str] = "republish"
    removed: ClassVar[dict[str, str]] = {
        "transactions": "each transaction has a producer epoch of its own now, as with 'strict'. "
        "Leave it out, also to finish a run that began with 'fast'"
    }

    target_topic: Target = option(
        WHERE,
        RESTORED,
        "Topic that gets all records. {topic} stands for the topic that a record came from, as in "
        "{topic}_restored. Default: {topic}.restored.",
        none=[
            "--same-topics",
            "Send each record to the topic that it came from, except for --rename: for use in "
            "another cluster, or if the source is gone or empty.",
        ],
    )
    into_source: bool = option(
        WHERE,
        False,
        "Also send into a source topic that still holds records: they will be duplicated there, "
        "and drained again. Without a target topic, each record goes to the topic it came from. "
        "Not needed if the source is gone or empty.",
    )
    create_target: bool = option(
        WHERE,
        False,
        "Create missing target topics like their source, with the partitions and configuration "
        "that the last drain saw.",
    )
    placement: Placement = option(
        WHERE,
        ORIGINAL,
        "Partition in the target. original (default): the partition that a record came from. key: "
        "by key like Java producers, for a target with a different number of partitions; key:crc32 "
        "like librdkafka's, key:fnv1a like Sarama's. A number: that partition, for all records.",
        examples=["original", "key", "key:crc32", "0"],
        metavar="original|key[:crc32|:fnv1a]|NUMBER",
    )
    rename: Renames = option(
        WHERE,
        {},
        "Target topics for individual source topics; all others go to the target topic.",
        metavar="TOPIC=TARGET",
    )
    from_time: Moment = option(
        WHICH,
        None,
        "Only records with this timestamp or a later one, to the millisecond, such as "
        "2026-11-21T13:00:00.250Z. Default: from the beginning.",
        metavar="TIME",
    )
    to_time: Moment = option(
        WHICH,
        None,
        "Only records with a timestamp before this one, to the millisecond, such as "
        "2026-11-21T13:00:00.250Z: the moment to restore to. Default: to the end.",
        metavar="TIME",
    )
    topics: tuple[str, ...] = option(
        WHICH,
        (),
        "Only records of these source topics. Default: all topics.",
        flags=["--topic"],
        metavar="TOPIC",
    )
    partitions: tuple[Partition, ...] = option(
        WHICH,
        (),
        "Only records of these source partitions. Default: all partitions.",
        flags=["--partition"],
        metavar="NUMBER",
    )
    offsets: Ranges = option(
        WHICH,
        (),
        "Only records with these offsets, such as flights:0:100-200 (the end is exclusive). "
        "Default: all offsets.",
        metavar="TOPIC:PARTITION:START-END",
    )
    sealed_only: bool = option(
        WHICH,
        False,
        "Leave out files that no validation has sealed yet. Otherwise such files stop the run.",
    )
    run_name: str | None = option(
        WHICH,
        None,
        "Name of the run. Reusing a name resumes that run, or does nothing if it has finished. By "
        "default, the same request is the same run; in Airflow, the same task of the same DAG run.",
        flags=["--run-name", "--run"],
        metavar="NAME",
    )
    follow: bool = option(
        WHICH,
        False,
        "Send only what was sealed since the previous run with this option: a mirror, built run by "
        "run. The selection of records can't change between runs.",
    )
    filters: tuple[str, ...] = option(
        CHANGED,
        (),
        "Only records that fulfil this condition: key=TEXT, header:NAME=TEXT, or a path in the "
        "value such as $.order.country=DE (in the key: key:$.id=42); without =, it only has to be "
        "there. "
        "After 'not ', records that don't. Texts that are expected of the same part are "
        "alternatives; all else must hold at once. Default: all records.",
        flags=["--filter"],
        metavar="CONDITION",
    )
    mask: tuple[str, ...] = option(
        CHANGED,
        (),
        "Replace a field by an empty value of its type, and texts by *** or the given text: a path "
        "in the value, JSON or Avro, such as $.customer.email, one in the key such as key:$.id, or "
        "header:NAME.",
        metavar="FIELD[=TEXT]",
    )
    hash_fields: tuple[str, ...] = option(
        CHANGED,
        (),
        "Replace a field by a pseudonym, the HMAC-SHA-256 of its content: key (the whole one), or "
        "as for mask. The same content gets the same pseudonym everywhere.",
        flags=["--hash"],
        metavar="FIELD",
    )
    hash_key_file: str | None = option(
        CHANGED,
        None,
        "File with the secret key of pseudonyms, at least 16 bytes. In Airflow, the pipeline's "
        "hash_key_conn_id may have it instead.",
        metavar="FILE",
    )
    drop_headers: tuple[str, ...] = option(
        CHANGED,
        (),
        "Leave out headers of this name.",
        flags=["--drop-header"],
        metavar="NAME",
    )
    change: str | None = option(
        CHANGED,
        None,
        "A function of your own that leaves records out and changes key, value and headers: batch "
        "in, batch out (pyarrow). It comes after filter, mask and hash.",
        metavar="MODULE:FUNCTION",
    )
    mark_changed: bool = option(
        CHANGED,
        False,
        "Add a header, kafka-drain.changed, to each record that isn't what it was.",
    )
    delivery: Literal["exactly_once", "at_least_once"] = option(
        HOW,
        EXACTLY_ONCE,
        "exactly_once (default), or at_least_once with Spark's own Kafka sink, which sets no "
        "timestamps and sends everything again on a retry.",
    )
    engine: Literal["auto", "worker", "spark"] = option(
        HOW,
        "auto",
        "worker: processes on this machine (in Airflow, on its worker). spark: Spark's executors. "
        "auto (default): the worker up to 20 GB.",
    )
    provenance: bool = option(
        HOW,
        False,
        "Add three headers with the topic, partition and offset that a record came from.",
    )
    schema_map: str | None = option(
        HOW,
        None,
        "Replace the schema ids in keys, values and headers by those of another Schema Registry: "
        "name of a map that restore-schemas wrote. Default: records stay as they are.",
        metavar="NAME",
    )
    keep_ids: Parts = option(
        HOW,
        (),
        "With a schema map: keys or values that stay as they are, such as orders:key, because "
        "they only look as if they had schema ids; or one id, such as orders:key:0.",
        metavar="TOPIC:key|value[:ID]",
    )
    records_per_second: Limit = option(
        HOW, 0, "Limit for all partitions together; 0 for no limit.", metavar="N"
    )
    bytes_per_second: Limit = option(
        HOW,
        0,
        "Limit for keys and values before compression, all partitions together; 0 for no limit.",
        metavar="N",
    )
    pace: Pace = option(
        HOW,
        None,
        "Send records in their own time: the gaps between their timestamps are kept. 1 for as fast "
        "as they were made, 10 for ten times faster, 0.1 for ten times slower. Default: without "
        "gaps.",
        metavar="FACTOR",
    )
    repeat: bool = option(
        HOW,
        False,
        "Also send records that an earlier run sent to the same topic: they will be duplicated.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.into_source and "target_topic" not in self.model_fields_set:
            object.__setattr__(self, "target_topic", None)
        selection, wanted = self.selection, self.wanted
        wanted.check()
        if self.hash_key_file and not self.hash_fields:
            raise ConfigError("hash_key_file requires fields to hash: nothing else uses the key")
        if self.keep_ids and not self.schema_map:
            raise ConfigError("keep_ids requires a schema_map: without one, all ids are kept")
        if self.pace and self.engine == "spark":
            raise ConfigError(
                "engine = 'spark' can't keep a pace, as its tasks don't share a clock; expected "
                "engine worker or auto, or leave out pace"
            )
        if self.delivery != AT_LEAST_ONCE:
            return self
        if wanted:
            raise ConfigError(
                "delivery = 'at_least_once' can't leave out or change records, as Spark's own sink "
                "sends them as they are; use exactly_once, or leave out filter, mask, hash, "
                "drop_headers and change"
            )
        if self.schema_map:
            raise ConfigError(
                "delivery = 'at_least_once' can't replace schema ids, as Spark's own sink sends "
                "records as they are; use exactly_once, or leave out schema_map"
            )
        if self.engine == "worker":
            raise ConfigError(
                "engine = 'worker' and delivery = 'at_least_once' contradict each other; expected "
                "engine spark or auto, as only Spark's own sink sends at least once"
            )
        if self.placement != ORIGINAL or self.provenance:
            raise ConfigError(
                "delivery = 'at_least_once' supports only placement original without provenance "
                "headers, as it uses Spark's own sink; use exactly_once"
            )
        if selection.offsets or selection.from_ms is not None or selection.to_ms is not None:
            raise ConfigError(
                "delivery = 'at_least_once' supports only whole partitions; use exactly_once for "
                "offsets or times"
            )
        if any(self.limits):
            raise ConfigError(
                "delivery = 'at_least_once' supports no limits, as Spark's own sink has none; use "
                "exactly_once, or leave out records_per_second, bytes_per_second and pace"
            )
        return self

    @cached_property
    def selection(self) -> Selection:
        """The selected records.

        Raises:
            ConfigError: When the times are in the wrong order.
        """
        return Selection.of(
            topics=self.topics,
            partitions=self.partitions,
            offsets=self.offsets,
            from_time=self.from_time,
            to_time=self.to_time,
        )

    @property
    def limits(self) -> tuple[float, float, float]:
        """Records and bytes per second, and the pace; 0 for no limit."""
        return self.records_per_second, self.bytes_per_second, self.pace or 0

    @cached_property
    def wanted(self) -> ChangeRequest:
        """The drops and changes on the way; false if there are none."""
        return ChangeRequest(
            filters=self.filters,
            mask=self.mask,
            hashed=self.hash_fields,
            drop_headers=self.drop_headers,
            function=self.change or "",
            mark=self.mark_changed,
        )

    def target_of(self, topic: str) -> str | None:
        """Return the target of a topic's records; None if it depends on a name they don't have."""
        if topic in self.rename:
            return self.rename[topic]
        if self.target_topic is None:
            return topic or None
        if OWN_TOPIC in self.target_topic and not topic:
            return None
        return self.target_topic.replace(OWN_TOPIC, topic)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON types: what must be the same in all attempts of a run."""
        return {
            "target_topic": self.target_topic,
            "rename": dict(sorted(self.rename.items())),
            "selection": self.selection.to_dict(),
            "delivery": self.delivery,
            # As older releases wrote it: a run's default name is made from this.
            "transactions": STRICT,
            "engine": self.engine,
            "placement": self.placement,
            "provenance": self.provenance,
            # Absent by default: the requests of older releases don't have it.
            **(
                {"schema_map": self.schema_map, "keep_ids": sorted(self.keep_ids)}
                if self.schema_map
                else {}
            ),
            **({"change": self.wanted.to_dict()} if self.wanted else {}),
        }

    def matches_request(self, asked: Mapping[str, Any]) -> bool:
        """Return whether this equals the request of a run, of this release or an older one.

        In an older release, no target meant each record's own topic, which is `{topic}` today, and
        a run could keep its producers (`fast`); this one finishes it with new producers.
        """

        def today(document: Mapping[str, Any]) -> dict[str, Any]:
            topic = document.get("target_topic") or OWN_TOPIC
            return {**document, "target_topic": topic, "transactions": STRICT}

        return today(asked) == today(self.to_dict())

    def name(self, pipeline: str) -> str:
        """Return the run's name; by default, one that is the same for the same request."""
        if self.run_name:
            return self.run_name
        to = (self.target_topic or "the same topics").replace(OWN_TOPIC, "each topic")
        return f"{pipeline} to {to} {json.dumps(self.to_dict(), sort_keys=True)}"
