"""Pipelines: which topics are drained to which archive, and how. Users define them in DAG files."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from kafka_drain.config.checks import refuse, template_in
from kafka_drain.config.cut_over import CutOver
from kafka_drain.config.drill import Drill
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.model import ConfigModel
from kafka_drain.config.options import shown
from kafka_drain.config.places import OWN, calling_line, named
from kafka_drain.config.schedules import check_schedule
from kafka_drain.config.sink_options import (
    COMPRESSIONS,
    PARTITION_COLUMNS,
    check_sink_options,
    writer_defaults,
)
from kafka_drain.config.source_options import check_source_options
from kafka_drain.config.spark_conf import check_log_levels, check_spark_conf
from kafka_drain.config.values import Values
from kafka_drain.config.watch import Watch
from kafka_drain.errors import ConfigError
from kafka_drain.storage.immutability import Immutability, Mode
from kafka_drain.storage.s3 import S3_SCHEMES, scheme_of
from kafka_drain.storage.schemes import HDFS, normalised, refuse_ambiguous

# Valid topic names in Kafka (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_PAIR, _DAYS = "NAME=VALUE", shown(metavar="DAYS")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]


class Pipeline(ConfigModel):
    """Declares the topics that are archived, and how.

    Exactly one of `topics`, `topic_pattern` and `assign` selects what is drained.

    Attributes:
        name: Used in the DAG ids, such as `drain_<name>` and `republish_<name>`.
        topics: Topics to drain (Spark's `subscribe`).
        topic_pattern: Java regular expression for topics to drain (`subscribePattern`).
        assign: Partitions to drain, `{"topic": [0, 1]}`.
        archive: Folder of the archive: an absolute path or a URL.
        schedule: Schedule of the drains, in Airflow's notation; None to run only on demand.
        archive_conn_id: Airflow connection of type Amazon Web Services, for an archive on S3; None
            to use the worker's environment or role.
        kafka_conn_id: Airflow connection of type Kafka.
        spark_conn_id: Airflow connection of type Spark; its host is the master.
        format: Format of the data files.
        compression: Compression of the data files; defaults to zstd, or gzip for JSON.
        partition_by: Columns to partition folders by: any of topic, date and hour (UTC).
        partitions_per_task: Number of Kafka partitions with few new records that one task reads,
            into the same files; 1 for files of their own, None for the default.
        values: Decoding of values into typed columns, in addition to raw bytes; None to disable.
        registry_conn_id: Airflow connection whose extra locates the Schema Registry; each
            validation then keeps the schemas that new records use. None for that of `values`.
        target_registry_conn_id: Airflow connection of the Schema Registry that schemas are restored
            to; with it, there is the DAG `restore_schemas_<name>`. None for none.
        source_options: Options of Spark's Kafka source, by Spark's names.
        sink_options: Options of Spark's file sink, by Spark's names.
        spark_conf: Spark configuration of the job.
        log_levels: Level by logger: `kafka`, `sink`, `kafka-clients` or a full name.
        jars: Jars of the Kafka connector; None for those fetched by `kafka-drain jars`.
        driver_memory: Heap size of the driver, for example `2g`.
        max_manifest_lines: Number of manifest lines after which maintenance rolls over to a new
            generation.
        max_generation_days: Age in days after which maintenance rolls over to a new generation, so
            that the files of the old one can be compacted.
        target_file_bytes: Target size of compacted files, in bytes.
        describe_cluster: Parts of the cluster that each validation describes in the archive, any of
            groups, topics, acls, users and brokers; an empty list for none.
        retention_days: Age in days of the newest record after which maintenance deletes a file; by
            default, none is deleted.
        max_future_days: Days after its drain that a record may be dated; for `retention_days`, a
            later date counts as the drain's. By default, every date is believed.
        scrub_days: Days within which maintenance reads each sealed file again and compares it with
            its receipt; 0 or None for never.
        immutable_days: Days for which the object store refuses to delete each file and receipt that
            is sealed; by default, none is locked.
        immutable_mode: Who can end such a lock early: `governance` (default), somebody with a
            permission of its own; `compliance`, nobody.
        hash_key_conn_id: Airflow connection whose password is the key of pseudonyms, for
            republishes that hash fields.
        evidence_conn_id: Airflow connection with the key that signs reports, republishes, drills
            and steps of a cut-over; None to sign nothing.
        witness: File outside the archive, as an absolute path, or topic, as `kafka:<topic>`, with
            which each validation compares the archive; None for none.
        witness_conn_id: Airflow connection of type Kafka for a witness that is a topic; None for
            `kafka_conn_id`.
        erase_conn_id: Airflow connection with the keys or headers of records to be erased, with
            `{request}` for the request's id if each has its own; None for no `erase_<name>`.
        drill: Restores that are tried on a schedule, as `drill_<name>`; None for none.
        cut_over: A move of all clients to another cluster, as `cut_over_<name>`; None for none.
        encryption: Encryption of keys, values and headers in Parquet files; None for none.
        watch: Limits at which `create_watch_dag` starts a drain beside the schedule; None for none.

    Raises:
        ConfigError: When a key is unknown or a value isn't acceptable; names the key, the value and
            what is accepted.
    """

    declares: ClassVar[str] = "pipeline"
    accepts: ClassVar[dict[str, str]] = {
        "name": "letters, digits, '_', '-' and '.', beginning with a letter or a digit",
        "driver_memory": "a number and m or g, such as '2g'",
    }

    name: Name
    topics: Annotated[list[str] | None, shown(flags=["--topic"], metavar="TOPIC")] = None
    topic_pattern: Annotated[str | None, shown(metavar="REGEX")] = None
    assign: dict[str, list[int]] | None = None
    archive: Annotated[str, Field(min_length=1)]
    schedule: str | None = "@hourly"
    archive_conn_id: str | None = None
    kafka_conn_id: str = "kafka_default"
    spark_conn_id: str = "spark_default"
    format: Literal["parquet", "avro", "json", "orc"] = "parquet"
    compression: str = ""
    partition_by: Annotated[list[str], shown(nargs="*", metavar="COLUMN")] = ["topic", "date"]
    partitions_per_task: Annotated[int, Field(ge=1)] | None = None
    values: Values | None = None
    registry_conn_id: str | None = None
    target_registry_conn_id: str | None = None
    source_options: Annotated[dict[str, Any], shown(flags=["--source-option"], metavar=_PAIR)] = {}
    sink_options: Annotated[dict[str, Any], shown(flags=["--sink-option"], metavar=_PAIR)] = {}
    spark_conf: dict[str, Any] = {}
    log_levels: Annotated[dict[str, str], Field(validate_default=True)] = {}
    jars: list[str] | None = None
    max_manifest_lines: Annotated[int, Field(ge=1), shown(metavar="FILES")] = 50_000
    max_generation_days: Annotated[int, Field(ge=1), _DAYS] = 7
    target_file_bytes: Annotated[int, Field(ge=1 << 16), shown(metavar="BYTES")] = 256 << 20
    describe_cluster: list[Literal["groups", "topics", "acls", "users", "brokers"]] = [
        *("groups", "topics", "acls", "users", "brokers")
    ]
    retention_days: Annotated[int, Field(ge=1, le=365_000), _DAYS] | None = None
    max_future_days: Annotated[int, Field(ge=0), _DAYS] | None = None
    scrub_days: Annotated[int, Field(ge=0, le=36_500), _DAYS] | None = 30
    immutable_days: Annotated[int, Field(ge=1, le=36_500), _DAYS] | None = None
    immutable_mode: Mode | None = None
    hash_key_conn_id: str | None = None
    evidence_conn_id: str | None = None
    witness: str | None = None
    witness_conn_id: str | None = None
    erase_conn_id: str | None = None
    drill: Drill | None = None
    cut_over: CutOver | None = None
    encryption: Encryption | None = None
    watch: Watch | None = None
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mgMG]$")] = "1g"

    @classmethod
    def check_given(cls, data: dict[str, Any]) -> None:
        """Refuse Jinja templates, which nothing would render."""
        for key, value in data.items():
            # Spark itself fills in {{APP_ID}}, and YARN {{PWD}}.
            if key != "spark_conf" and (text := template_in(value)):
                raise ConfigError(
                    f"{key} has the template {text!r}, which isn't rendered here: a pipeline is "
                    "read when Airflow parses the file; give the value itself, for example from "
                    "os.environ"
                )

    @classmethod
    def placed(cls, data: Any, problem: str) -> str:
        """Return a problem with the pipeline's name, and the line of the user's file."""
        name = data.get("name") if isinstance(data, dict) else None
        return f"{named(name, calling_line(OWN))}: {problem}"

    @field_validator("topics")
    @classmethod
    def _check_topics(cls, topics: list[str] | None) -> list[str] | None:
        accepted = "a list of topic names, each of letters, digits, '.', '_' and '-'"
        if topics is None:
            return topics
        if not topics or len(set(topics)) != len(topics):
            raise refuse("topics", topics, f"{accepted}, no duplicates")
        for topic in topics:
            if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
                raise refuse("topics", topic, accepted)
        return topics

    @field_validator("topic_pattern")
    @classmethod
    def _check_topic_pattern(cls, pattern: str | None) -> str | None:
        try:
            with warnings.catch_warnings():
                # Python warns of what Java reads as sets of sets: they would match other topics.
                warnings.simplefilter("error", FutureWarning)
                re.compile(pattern or "")
        except (re.error, FutureWarning) as error:
            accepted = "a regular expression that both Java and Python understand"
            raise refuse("topic_pattern", pattern, f"{accepted} ({error})") from error
        return pattern

    @field_validator("assign")
    @classmethod
    def _check_assign(cls, assign: dict[str, list[int]] | None) -> dict[str, list[int]] | None:
        for topic, partitions in (assign or {}).items():
            if not _TOPIC.fullmatch(topic):
                raise refuse(f"assign[{topic}]", partitions, "a topic name and its partitions")
            if not partitions or min(partitions) < 0 or len(set(partitions)) != len(partitions):
                raise refuse(f"assign[{topic}]", partitions, "partition numbers, no duplicates")
        if assign == {}:
            raise refuse("assign", assign, '{"topic": [0, 1]}')
        return assign

    @field_validator("archive")
    @classmethod
    def _check_archive(cls, archive: str) -> str:
        if not archive.startswith(("/", "file:")) and "://" not in archive:
            raise refuse(
                "archive", archive, "an absolute path, or a URL such as s3://bucket/folder"
            )
        try:
            written = normalised(archive)
            refuse_ambiguous(written)
            return written
        except ConfigError as error:
            raise ConfigError(f"archive: {error}") from error

    @field_validator("schedule", mode="before")
    @classmethod
    def _check_schedule(cls, schedule: Any) -> Any:
        return check_schedule(schedule)

    @field_validator("drill")
    @classmethod
    def _check_drill(cls, drill: Drill | None) -> Drill | None:
        try:
            check_schedule(drill.schedule if drill is not None else None)
        except ConfigError as error:
            raise ConfigError(f"drill: {error}") from error
        return drill

    @field_validator("witness")
    @classmethod
    def _check_witness(cls, witness: str | None) -> str | None:
        if witness is not None and not re.fullmatch(r"/.+|kafka:.+", witness):
            accepted = "the absolute path of a file outside the archive, or kafka:<topic>"
            raise refuse("witness", witness, accepted)
        return witness

    @field_validator(
        *("partitions_per_task", "max_manifest_lines", "max_generation_days", "target_file_bytes"),
        *("retention_days", "max_future_days", "scrub_days", "immutable_days"),
        mode="before",
    )
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            # It would count as 1: a day, after which everything is deleted.
            raise refuse(str(info.field_name), value, "a whole number")
        return value

    @field_validator("partition_by")
    @classmethod
    def _check_partition_by(cls, columns: list[str]) -> list[str]:
        if len(set(columns)) != len(columns) or not set(columns) <= set(PARTITION_COLUMNS):
            raise refuse(
                "partition_by", columns, f"any of {', '.join(PARTITION_COLUMNS)}, no duplicates"
            )
        return columns

    @field_validator("source_options")
    @classmethod
    def _check_source_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        return dict(check_source_options(options))

    @field_validator("spark_conf")
    @classmethod
    def _check_spark_conf(cls, conf: dict[str, Any]) -> dict[str, Any]:
        return dict(check_spark_conf(conf))

    @field_validator("log_levels")
    @classmethod
    def _check_log_levels(cls, levels: dict[str, str]) -> dict[str, str]:
        return check_log_levels(levels)

    def check_together(self) -> None:
        """Check the source, and the keys that depend on the archive or the format."""
        given = [key for key in ("topics", "topic_pattern", "assign") if getattr(self, key)]
        if len(given) != 1:
            seen = f"{' and '.join(given)} contradict each other" if given else "none is given"
            raise ConfigError(f"{seen}: give exactly one of topics, topic_pattern and assign")
        if self.archive_conn_id and scheme_of(self.archive) not in S3_SCHEMES:
            raise ConfigError(
                f"archive_conn_id = {self.archive_conn_id!r} is only for archives on S3, but the "
                f"archive is {self.archive}; leave it out"
            )
        if self.values and self.values.registry_conn_id and not self.subjects:
            raise ConfigError(
                "values.subjects is missing: a pipeline with several topics has to name the "
                "subjects of the Schema Registry that have their schemas"
            )
        if "driver_memory" in self.model_fields_set and "spark.driver.memory" in self.spark_conf:
            raise ConfigError(
                "driver_memory and spark.driver.memory are two names of one setting; leave one out"
            )
        self._check_evidence()
        self._check_immutable()
        if self.max_future_days is not None and self.retention_days is None:
            raise ConfigError("max_future_days is only with retention_days; leave it out")
        if self.encryption is not None and self.format != "parquet":
            raise ConfigError(
                f"encryption is part of Parquet, but format is {self.format!r}; leave one of them "
                "out"
            )
        compressions = COMPRESSIONS[self.format]
        if not self.compression:
            object.__setattr__(self, "compression", compressions[0])
        if self.compression not in compressions:
            accepted = f"{', '.join(compressions)} with format {self.format!r}"
            raise refuse("compression", self.compression, accepted)
        checked = check_sink_options(self.format, self.sink_options)
        object.__setattr__(self, "sink_options", checked)

    def _check_evidence(self) -> None:
        if self.witness is not None and self.evidence_conn_id is None:
            raise ConfigError(
                "witness needs evidence_conn_id: each of its lines is signed; name the connection "
                "that has the key"
            )
        if self.witness is not None and self.witness.startswith(f"{self.archive.rstrip('/')}/"):
            raise refuse("witness", self.witness, "a file outside the archive, or kafka:<topic>")
        if self.witness_conn_id is not None and not (self.witness or "").startswith("kafka:"):
            raise ConfigError("witness_conn_id is only for a witness that is a topic; leave it out")

    def _check_immutable(self) -> None:
        if self.immutable_mode is not None and self.immutable_days is None:
            raise ConfigError("immutable_mode is only with immutable_days; leave it out")
        scheme = scheme_of(self.archive)
        if self.immutable_days is not None and scheme in ("", HDFS):
            where = "HDFS, which locks no files" if scheme == HDFS else "a file system"
            raise ConfigError(
                f"immutable_days = {self.immutable_days} needs an object store, which refuses to "
                f"delete what is locked, but the archive is on {where}: {self.archive}; "
                "leave it out, or choose a bucket"
            )

    def __str__(self) -> str:
        """Return its topics and its archive, in one line."""
        [(_, source)] = self.source.items()
        return f"{self.name}: {source} to {self.archive}"

    def with_log_level(self, level: str) -> Pipeline:
        """Return this pipeline with another level for Spark's Kafka and sink classes.

        Raises:
            ConfigError: When the level doesn't exist.
        """
        levels = check_log_levels({"kafka": level, "sink": level})
        return self.model_copy(update={"log_levels": self.log_levels | levels})

    @property
    def source(self) -> dict[str, Any]:
        """Selects the topics: whichever of topics, topic_pattern and assign is given."""
        return self.model_dump(include={"topics", "topic_pattern", "assign"}, exclude_none=True)

    @property
    def immutable(self) -> Immutability | None:
        """The store's lock of sealed files; None for none."""
        if self.immutable_days is None:
            return None
        return Immutability(self.immutable_mode or "governance", self.immutable_days)

    @property
    def subjects(self) -> list[str]:
        """The Schema Registry's subjects; by default the value subject of the only topic."""
        topics = self.topics or list(self.assign or ())
        if self.values is None or self.values.subjects:
            return list(self.values.subjects) if self.values else []
        return [f"{topics[0]}-value"] if len(topics) == 1 else []

    @property
    def schemas_conn_id(self) -> str | None:
        """Connection of the registry whose schemas the archive keeps; None for none."""
        return self.registry_conn_id or (self.values.registry_conn_id if self.values else None)

    @property
    def writer_options(self) -> dict[str, str]:
        """Options of the file sink, including the compression and defaults."""
        defaults = writer_defaults(self.format, self.compression)
        return defaults | {name: str(value) for name, value in self.sink_options.items()}

    @property
    def isolation_level(self) -> str:
        """`read_committed` (default) or `read_uncommitted`."""
        return str(self.source_options.get("kafka.isolation.level", "read_committed"))
