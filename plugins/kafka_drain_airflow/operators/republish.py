"""Republish files of an archive to Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.errors import ConfigError, TransientError
from kafka_drain_airflow.connections import (
    archive_access,
    is_true,
    kafka_cluster,
    listed,
    terminal_errors_fail,
)
from kafka_drain_airflow.data_intervals import window_interval
from kafka_drain_airflow.observability.lineage import republish_lineage
from kafka_drain_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.republish.engines.select import Engines
    from kafka_drain.republish.planning.request import RepublishRequest
    from kafka_drain.republish.planning.shards import Shard
    from kafka_drain.republish.run import Republish

__all__ = ["RepublishToKafkaOperator"]


@contextmanager
def no_second_try(republish: Republish) -> Iterator[None]:
    """Let a republish that sends at least once fail for good: a retry would send again."""
    try:
        yield
    except TransientError as error:
        if republish.plan.delivery != "at_least_once":
            raise
        raise AirflowFailException(
            f"{type(error).__name__}: {error}. Some records may be in the target: as delivery is "
            "at_least_once, a retry would send them again. Look there first, then clear this task"
        ) from error


def _records_of_targets(shards: Iterable[Shard]) -> dict[str, int]:
    """Return how many records each target topic gets."""
    records: Counter[str] = Counter()
    for shard in shards:
        records[shard.target] += shard.records
    return dict(records)


class RepublishToKafkaOperator(SparkJobOperator):
    """Send sealed records of an archive to Kafka, exactly once, and prove it by reading them back.

    A retry, or a task that is cleared, goes on with its run: what was sent isn't sent again, and a
    run that has its receipt sends nothing.

    In a backfill's run it sends the records whose timestamps lie in the run's data interval, unless
    it is told otherwise.

    Returns the plan; with the receipt's fields and records_sent when it was not a dry run.

    :param pipeline: the pipeline whose archive is republished
    :param target_topic: target of all records; ``{topic}`` in it is the topic that a record came
        from; ``{topic}.restored`` when None or empty (templated)
    :param into_source: whether records may go into a source that holds records, where they are
        twice then; without a ``target_topic`` each goes to the topic it came from (templated)
    :param rename: target topic by source topic, before ``target_topic`` (templated)
    :param topics: only these source topics; none for all (templated)
    :param partitions: only these source partitions; none for all (templated)
    :param offsets: only these offsets, as ``topic:partition:start-end`` (templated)
    :param from_time: lowest timestamp, in ISO 8601 (templated)
    :param to_time: where timestamps end, this one not included (templated)
    :param delivery: ``exactly_once``, or ``at_least_once`` by Spark's own Kafka sink (templated)
    :param transactions: ``strict`` or ``fast`` (templated)
    :param engine: ``auto``, ``worker`` or ``spark`` (templated)
    :param placement: ``original``, ``key`` or a partition's number (templated)
    :param provenance: whether headers say where each record came from (templated)
    :param create_target: whether missing topics are made like their source (templated)
    :param sealed_only: whether files that aren't sealed yet are left out; else refused (templated)
    :param follow: whether only what was sealed since the last run is sent; runs of one task of one
        DAG follow each other (templated)
    :param run_name: name of the run: the same name goes on with it, also at a terminal; None for
        one of this task's own in each DAG run, or for a follower of this task's own (templated)
    :param repeat: whether records may be sent that an earlier run sent to this topic (templated)
    :param records_per_second: limit; 0 for none (templated)
    :param bytes_per_second: limit, of keys and values; 0 for none (templated)
    :param is_dry_run: only log the plan; `dry_run` is a method of Airflow's operators (templated)
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields,
        *(
            "target_topic",
            "into_source",
            "rename",
            "topics",
            "partitions",
            "offsets",
            "from_time",
            "to_time",
        ),
        *("delivery", "transactions", "engine", "placement", "provenance", "create_target"),
        *("sealed_only", "follow", "run_name", "repeat"),
        *("records_per_second", "bytes_per_second", "is_dry_run"),
    )
    ui_color = "#fdebd0"

    def __init__(
        self,
        *,
        target_topic: str | None = None,
        into_source: bool | str = False,
        rename: Mapping[str, str] | None = None,
        topics: Sequence[str] | str = (),
        partitions: Sequence[Any] | str = (),
        offsets: Sequence[str] | str = (),
        from_time: Any = None,
        to_time: Any = None,
        delivery: str = "exactly_once",
        transactions: str = "strict",
        engine: str = "auto",
        placement: str | int = "original",
        provenance: bool | str = False,
        create_target: bool | str = False,
        sealed_only: bool | str = False,
        follow: bool | str = False,
        run_name: str | None = None,
        repeat: bool | str = False,
        records_per_second: float | str = 0,
        bytes_per_second: float | str = 0,
        is_dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target_topic = target_topic
        self.into_source = into_source
        self.rename = rename
        self.topics = topics
        self.partitions = partitions
        self.offsets = offsets
        self.from_time = from_time
        self.to_time = to_time
        self.delivery = delivery
        self.transactions = transactions
        self.engine = engine
        self.placement = placement
        self.provenance = provenance
        self.create_target = create_target
        self.sealed_only = sealed_only
        self.follow = follow
        self.run_name = run_name
        self.repeat = repeat
        self.records_per_second = records_per_second
        self.bytes_per_second = bytes_per_second
        self.is_dry_run = is_dry_run
        self._engines: Engines | None = None
        self._republish: Republish | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, and unless it is a dry run, send, verify and write the receipt.

        Raises:
            AirflowFailException: When something has to be changed first; says what, and how much
                was sent.
            DeliveryError: When Kafka failed again and again; a retry goes on where this one ended.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
            NotSealedError: When a drain wasn't validated yet; a retry may help.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.republish.engines.select import Engines
        from kafka_drain.republish.run import Limits, plan_republish
        from kafka_drain.spark.job import private_folder
        from kafka_drain.storage.lease import utc_now
        from kafka_drain_airflow.observability.metrics import tell_republish

        with terminal_errors_fail(), archive_access(self.pipeline), private_folder() as folder:
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            limits = Limits(self._number("records_per_second"), self._number("bytes_per_second"))
            plan_only = self._switch("is_dry_run")
            self._republish = republish = plan_republish(
                Archive.at(self.pipeline.archive),
                cluster,
                self._request(context),
                now=utc_now(),
                say=self.say,
                run=self._run_name(context),
                follows=self._switch("follow"),
                is_dry_run=plan_only,
            )
            self.say_plan(republish.plan.lines(limits.records_per_second, limits.bytes_per_second))
            if plan_only:
                self.say(f"republish {republish.plan.pipeline}: dry run, nothing was sent")
                return republish.plan.summary()
            self._engines = Engines(
                self.pipeline.archive,
                cluster,
                self.pipeline,
                folder,
                self.run_application,
            )
            with no_second_try(republish):
                receipt = republish.execute(self._engines, utc_now, limits)
            written = {k: v for k, v in receipt.items() if k not in ("sent", "through", "request")}
            tell_republish(self.pipeline.name, receipt)
            servers = cluster.config.bootstrap_servers
            sent = _records_of_targets(republish.plan.shards)
            self._lineage = republish_lineage(servers, self.pipeline.archive, sent)
            return republish.plan.summary() | written

    def on_kill(self) -> None:
        """End what sends, and abort its open transactions: consumers needn't wait behind them."""
        if self._engines is not None:
            self._engines.stop()
        super().on_kill()
        if self._republish is not None:
            self._republish.abort()

    def _run_name(self, context: Context) -> str:
        """Return the run's name: the same for each try of this task in this DAG run."""
        if self.run_name not in (None, ""):
            return str(self.run_name)
        if self._switch("follow"):
            return f"{self.dag_id} {self.task_id}"
        mapped = getattr(context["ti"], "map_index", -1)
        name = f"{self.dag_id} {context['run_id']} {self.task_id}"
        return name if mapped < 0 else f"{name} {mapped}"

    def _times(self, context: Context) -> tuple[str | None, str | None]:
        """Return where the timestamps begin and end."""
        told = self.from_time or self.to_time
        interval = None if told else window_interval(context)
        if interval is None:
            return self.from_time or None, self.to_time or None
        return interval.start.isoformat(), interval.end.isoformat()

    def _request(self, context: Context) -> RepublishRequest:
        from kafka_drain.republish.planning.request import RESTORED, RepublishRequest
        from kafka_drain.republish.planning.selection import Selection

        from_time, to_time = self._times(context)
        into_source = self._switch("into_source")
        unnamed = None if into_source else RESTORED
        return RepublishRequest(
            target_topic=unnamed if self.target_topic in (None, "") else str(self.target_topic),
            rename=dict(self.rename or {}),
            selection=Selection.of(
                topics=listed(self.topics),
                partitions=listed(self.partitions),
                offsets=listed(self.offsets),
                from_time=from_time,
                to_time=to_time,
            ),
            delivery=self.delivery,
            transactions=self.transactions,
            engine=self.engine,
            placement=self.placement,
            adds_provenance=self._switch("provenance"),
            creates_target=self._switch("create_target"),
            sealed_only=self._switch("sealed_only") or self._switch("follow"),
            repeats=self._switch("repeat"),
            into_source=into_source,
        )

    def _switch(self, name: str) -> bool:
        return is_true(name, getattr(self, name))

    def _number(self, name: str) -> float:
        try:
            return float(getattr(self, name) or 0)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} = {getattr(self, name)!r} is not acceptable; accepted: a number, 0 for "
                "no limit"
            ) from error
