"""The form of a `republish_<name>` DAG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import Param

from kafka_drain.config.pipeline import Pipeline

__all__ = ["republish_params", "time_param"]

WHERE = "Where to"
WHICH = "Which records"
HOW = "How"


def republish_params(pipeline: Pipeline) -> dict[str, Param]:
    """Return the fields by the operator's parameter, in their order."""
    return {
        "dry_run": Param(
            default=True,
            type="boolean",
            title="Dry run",
            description="On: log what would be sent, send nothing. What is sent to Kafka can't be "
            "taken back.",
        ),
        "target_topic": Param(
            default=f"{pipeline.name}_republished",
            type=["null", "string"],
            examples=[f"{pipeline.name}_republished", "{topic}_restored", "{topic}"],
            title="Target topic",
            section=WHERE,
            description="Gets all records. {topic} in it stands for the topic that a record came "
            "from, as in {topic}_restored. Empty: {topic}.restored.",
        ),
        "into_source": Param(
            default=False,
            type="boolean",
            title="Into source",
            section=WHERE,
            description="On: send also into a source topic that holds records. They will be there "
            "twice, and be drained again. A source that is gone or empty needs no switch.",
        ),
        "create_target": Param(
            default=False,
            type="boolean",
            title="Create target",
            section=WHERE,
            description="Make a missing target topic like its source: partitions and "
            "configuration as the last drain saw them.",
        ),
        "placement": Param(
            default="original",
            type="string",
            examples=["original", "key", "0"],
            title="Placement",
            section=WHERE,
            description="original: the partition that it came from. key: as Java producers place "
            "keys, for another number of partitions. A number: all into that partition.",
        ),
        **_selection(pipeline),
        **_delivery(),
    }


def _selection(pipeline: Pipeline) -> dict[str, Param]:
    return {
        "from_time": time_param(
            "From",
            "Only records with this timestamp or a later one. Empty: from the beginning.",
            WHICH,
        ),
        "to_time": time_param(
            "To",
            "Only records with a timestamp before this one: the moment to restore to. Empty: to "
            "the end.",
            WHICH,
        ),
        "topics": _list(
            "Source topics",
            "Only of these topics. Empty: all.",
            # A form lets choose from examples; topics of a pattern are typed, one a line.
            **({"examples": list(known_topics(pipeline))} if known_topics(pipeline) else {}),
        ),
        "partitions": _list("Source partitions", "Only of these partitions. Empty: all."),
        "offsets": _list(
            "Offsets",
            "Only these offsets, one range a line, such as flights:0:100-200 (the end is not part "
            "of it). Empty: all.",
        ),
        "sealed_only": Param(
            default=False,
            type="boolean",
            title="Sealed only",
            section=WHICH,
            description="On: leave out what no validation has sealed yet. Off: such files stop "
            "the run.",
        ),
        "run_name": Param(
            default=None,
            type=["null", "string"],
            title="Run",
            section=WHICH,
            description="Name of the run, to go on with one that was begun elsewhere, or to begin "
            "another mirror. Empty: of this DAG run.",
        ),
        "follow": Param(
            default=False,
            type="boolean",
            title="Follow",
            section=WHICH,
            description="On: only what was sealed since the last run with this on, a mirror run "
            "by run. Fields of this section stay as they were then.",
        ),
    }


def _delivery() -> dict[str, Param]:
    return {
        "delivery": Param(
            default="exactly_once",
            enum=["exactly_once", "at_least_once"],
            title="Delivery",
            section=HOW,
            description="at_least_once: Spark's own Kafka sink; no timestamps, and a retry sends "
            "again.",
        ),
        "transactions": Param(
            default="strict",
            enum=["strict", "fast"],
            title="Transactions",
            section=HOW,
            description="strict: one transaction for each producer epoch, safe from delayed "
            "commits. fast: the producer is kept.",
        ),
        "engine": Param(
            default="auto",
            enum=["auto", "worker", "spark"],
            title="Engine",
            section=HOW,
            description="worker: processes on the Airflow worker. spark: Spark's executors. auto: "
            "the worker up to 20 GB.",
        ),
        "provenance": Param(
            default=False,
            type="boolean",
            title="Provenance headers",
            section=HOW,
            description="On: three headers say which topic, partition and offset a record came "
            "from.",
        ),
        "records_per_second": _limit("Records a second"),
        "bytes_per_second": _limit("Bytes a second"),
        "repeat": Param(
            default=False,
            type="boolean",
            title="Repeat",
            section=HOW,
            description="On: send also what an earlier run sent to the same topic. It will be "
            "there twice.",
        ),
    }


def known_topics(pipeline: Pipeline) -> Sequence[str]:
    """Return the topics that a pipeline names; none where it has a pattern."""
    return pipeline.topics or list(pipeline.assign or {})


def time_param(title: str, description: str, section: str) -> Param:
    """Return a field for a moment, which the form lets pick from a calendar."""
    return Param(
        default=None,
        type=["null", "string"],
        format="date-time",
        title=title,
        section=section,
        description=f"{description} As text: 2026-11-21T13:00:00.250Z, to the millisecond.",
    )


def _list(title: str, description: str, **more: Any) -> Param:
    options: dict[str, Any] = {"type": ["null", "array"], "items": {"type": "string"}, **more}
    return Param(default=None, title=title, section=WHICH, description=description, **options)


def _limit(title: str) -> Param:
    return Param(
        default=0,
        type="number",
        minimum=0,
        title=title,
        section=HOW,
        description="Limit for all partitions together. 0: none.",
    )
