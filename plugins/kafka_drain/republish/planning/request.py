"""What somebody may ask a republish for: the one list of its options. Opens nothing.

The form of `republish_<name>`, the flags of `kafka-drain republish`, the operator's template fields
and the reference are made of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import Self

from kafka_drain.config.checks import refuse
from kafka_drain.config.model import ConfigModel, collected
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.errors import ConfigError
from kafka_drain.intervals import in_utc, parse_time
from kafka_drain.republish.planning.placement import ORIGINAL, parse_placement
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, EXACTLY_ONCE
from kafka_drain.republish.planning.selection import Selection

__all__ = ["OWN_TOPIC", "RESTORED", "RepublishRequest"]

#: Stands for the topic that a record came from.
OWN_TOPIC = "{topic}"

#: The target where none is named: the source may hold the records still.
RESTORED = "{topic}.restored"

#: Parts of the form, and groups of flags.
WHERE, WHICH, HOW = "Where to", "Which records", "How they are sent"


def _topic_name(name: str, target: str | None) -> str | None:
    if target is not None and not target.strip():
        raise refuse(
            name,
            target,
            f"a topic's name, in which {OWN_TOPIC} is the topic that a record came from; "
            f"{RESTORED} without one",
        )
    return target


def _renames(name: str, renames: dict[str, str]) -> dict[str, str]:
    for topic, target in renames.items():
        _topic_name(f"{name} of {topic}", target)
    return renames


def _ranges(name: str, ranges: tuple[str, ...]) -> tuple[str, ...]:
    parse_ranges(name, ranges, "such as flights:0:100-200")
    return ranges


def _moment(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return in_utc(value)
    return parse_time(name, value) if isinstance(value, str) else value


def _placement(_: str, value: Any) -> str | int:
    return parse_placement(value)


Target = Annotated[str | None, AfterValidator(collected(_topic_name))]
Placement = Annotated[
    str | int, BeforeValidator(collected(_placement)), WithJsonSchema({"type": "string"})
]
Renames = Annotated[dict[str, str], AfterValidator(collected(_renames))]
Moment = Annotated[datetime | None, BeforeValidator(collected(_moment))]
# As text in the form, whose lists have a line for each.
Partition = Annotated[int, Field(ge=0), WithJsonSchema({"type": "string"})]
Ranges = Annotated[tuple[str, ...], AfterValidator(collected(_ranges))]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _option(section: str, default: Any, description: str, **shown: Any) -> Any:
    """Make a field.

    Args:
        section: Part of the form, and group of flags.
        default: What it is unless somebody says otherwise.
        description: What users read of it, in the form as at a terminal.
        shown: `examples` for the form; `flags`, where they aren't the field's name, and `metavar`,
            which stands for the value in a flag's help.
    """
    return Field(default, description=description, json_schema_extra={"section": section, **shown})


class RepublishRequest(ConfigModel):
    """Which records of an archive go where, and how.

    Raises:
        ConfigError: When a key is unknown, a value isn't acceptable, or two contradict each other.
    """

    # A template that is rendered to native objects makes a number of a topic named 2024.
    model_config = ConfigDict(coerce_numbers_to_str=True)
    declares: ClassVar[str] = "republish"

    target_topic: Target = _option(
        WHERE,
        RESTORED,
        "Topic that gets all records. {topic} in it stands for the topic that a record came from, "
        "as in {topic}_restored. Without one: {topic}.restored.",
    )
    into_source: bool = _option(
        WHERE,
        False,
        "Send also into a source topic that holds records: they will be there twice, and be "
        "drained again. Without a target topic, each record goes to the topic it came from. A "
        "source that is gone or empty doesn't need this.",
    )
    create_target: bool = _option(
        WHERE,
        False,
        "Make missing target topics like their source: partitions and configuration as the last "
        "drain saw them.",
    )
    placement: Placement = _option(
        WHERE,
        ORIGINAL,
        "Partition in the target. original (default): the one that a record came from. key: as "
        "Java producers place keys, for another number of partitions. A number: that partition, "
        "for all records.",
        examples=["original", "key", "0"],
        metavar="original|key|NUMBER",
    )
    rename: Renames = _option(
        WHERE,
        {},
        "Targets of single source topics; the others go to the target topic.",
        metavar="TOPIC=TARGET",
    )
    from_time: Moment = _option(
        WHICH,
        None,
        "Only records with this timestamp or a later one, to the millisecond, such as "
        "2026-11-21T13:00:00.250Z. Without it: from the beginning.",
        metavar="TIME",
    )
    to_time: Moment = _option(
        WHICH,
        None,
        "Only records with a timestamp before this one, to the millisecond, such as "
        "2026-11-21T13:00:00.250Z: the moment to restore to. Without it: to the end.",
        metavar="TIME",
    )
    topics: tuple[str, ...] = _option(
        WHICH,
        (),
        "Only of these source topics. Without any: of all.",
        flags=["--topic"],
        metavar="TOPIC",
    )
    partitions: tuple[Partition, ...] = _option(
        WHICH,
        (),
        "Only of these source partitions. Without any: of all.",
        flags=["--partition"],
        metavar="NUMBER",
    )
    offsets: Ranges = _option(
        WHICH,
        (),
        "Only these offsets, such as flights:0:100-200 (the end is not part of it). Without any: "
        "all.",
        metavar="TOPIC:PARTITION:START-END",
    )
    sealed_only: bool = _option(
        WHICH,
        False,
        "Leave out files that no validation has sealed yet. Without this, they stop the run.",
    )
    run_name: str | None = _option(
        WHICH,
        None,
        "Name of the run: the same name goes on with it, or is done. Without one, the same "
        "request is the same run; in Airflow, the same task of the same DAG run.",
        flags=["--run-name", "--run"],
        metavar="NAME",
    )
    follow: bool = _option(
        WHICH,
        False,
        "Only what was sealed since the last run that followed: a mirror, run by run. Which "
        "records it takes stays as it was then.",
    )
    delivery: Literal["exactly_once", "at_least_once"] = _option(
        HOW,
        EXACTLY_ONCE,
        "exactly_once (default), or at_least_once by Spark's own Kafka sink: no timestamps, and a "
        "retry sends again.",
    )
    transactions: Literal["strict", "fast"] = _option(
        HOW,
        "strict",
        "strict (default): one transaction for each producer epoch, safe from delayed commits. "
        "fast: the producer is kept.",
    )
    engine: Literal["auto", "worker", "spark"] = _option(
        HOW,
        "auto",
        "worker: processes on this machine, in Airflow its worker. spark: Spark's executors. auto "
        "(default): the worker up to 20 GB.",
    )
    provenance: bool = _option(
        HOW,
        False,
        "Add three headers that say which topic, partition and offset a record came from.",
    )
    records_per_second: Limit = _option(
        HOW, 0, "Limit for all partitions together; 0 for none.", metavar="N"
    )
    bytes_per_second: Limit = _option(
        HOW,
        0,
        "Limit for all partitions together, of keys and values before compression; 0 for none.",
        metavar="N",
    )
    repeat: bool = _option(
        HOW,
        False,
        "Send also what an earlier run sent to the same topic: it will be there twice.",
    )

    @classmethod
    def options(cls) -> dict[str, dict[str, Any]]:
        """Return the JSON Schema of each field by its name, with what `_option` says of it."""
        found: dict[str, dict[str, Any]] = {}
        for name, schema in cls.model_json_schema()["properties"].items():
            # A field that may be None is its type, or null.
            for kind in schema.pop("anyOf", ()):
                schema = kind | schema if kind["type"] != "null" else schema
            found[name] = schema | {"title": name.replace("_", " ").capitalize()}
        return found

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.into_source and "target_topic" not in self.model_fields_set:
            object.__setattr__(self, "target_topic", None)
        selection = self.selection
        if self.delivery != AT_LEAST_ONCE:
            return self
        if self.engine == "worker":
            raise ConfigError(
                "engine = 'worker' and delivery = 'at_least_once' contradict each other; expected "
                "engine spark or auto, as Spark's own sink sends at least once"
            )
        if self.placement != ORIGINAL or self.provenance:
            raise ConfigError(
                "delivery = 'at_least_once' takes placement original and no provenance headers, as "
                "Spark's own sink knows neither; use exactly_once"
            )
        if selection.offsets or selection.from_ms is not None or selection.to_ms is not None:
            raise ConfigError(
                "delivery = 'at_least_once' takes whole partitions only; use exactly_once for "
                "offsets or times"
            )
        if self.records_per_second or self.bytes_per_second:
            raise ConfigError(
                "delivery = 'at_least_once' keeps to no limit, as Spark's own sink knows none; use "
                "exactly_once, or leave out records_per_second and bytes_per_second"
            )
        return self

    @cached_property
    def selection(self) -> Selection:
        """Which records.

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

    def target_of(self, topic: str) -> str | None:
        """Return where a topic's records go; None when that can't be told without its name."""
        if topic in self.rename:
            return self.rename[topic]
        if self.target_topic is None:
            return topic or None
        if OWN_TOPIC in self.target_topic and not topic:
            return None
        return self.target_topic.replace(OWN_TOPIC, topic)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON types: what has to be the same in each attempt of a run."""
        return {
            "target_topic": self.target_topic,
            "rename": dict(sorted(self.rename.items())),
            "selection": self.selection.to_dict(),
            "delivery": self.delivery,
            "transactions": self.transactions,
            "engine": self.engine,
            "placement": self.placement,
            "provenance": self.provenance,
        }

    def is_asked_by(self, asked: Mapping[str, Any]) -> bool:
        """Whether it asks for what a run was asked for, by this release or an older one.

        To the older one no target meant each record's own topic, which today `{topic}` may say.
        """

        def target(document: Mapping[str, Any]) -> dict[str, Any]:
            return {**document, "target_topic": document.get("target_topic") or OWN_TOPIC}

        return target(asked) == target(self.to_dict())

    def name(self, pipeline: str) -> str:
        """Return the run's name; where none was given, the same whenever the same is asked for."""
        if self.run_name:
            return self.run_name
        to = (self.target_topic or "the same topics").replace(OWN_TOPIC, "each topic")
        return f"{pipeline} to {to} {json.dumps(self.to_dict(), sort_keys=True)}"
