"""Republish an archive's files to Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.errors import TransientError
from kafka_drain.output import say
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain_airflow.connections import hash_key, spark_engine, terminal_errors_fail
from kafka_drain_airflow.data_intervals import window_interval
from kafka_drain_airflow.evidence_connection import evidence_signer
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.lineage import republish_lineage
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.operators.bounded import bounded
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.archive.archive import Archive
    from kafka_drain.archive.frozen_plan import FrozenPlan
    from kafka_drain.kafka.cluster import KafkaCluster
    from kafka_drain.republish.engines.select import Engines
    from kafka_drain.republish.planning.shards import Shard
    from kafka_drain.republish.run import Republish


@contextmanager
def no_second_try(republish: Republish) -> Iterator[None]:
    """Fail without retries if delivery is at-least-once, because a retry would send again."""
    try:
        yield
    except TransientError as error:
        if republish.plan.delivery != "at_least_once":
            raise
        raise AirflowFailException(
            f"{type(error).__name__}: {error}. Some records may already be in the target, and with "
            "delivery at_least_once a retry would send them again; check the target before "
            "clearing this task"
        ) from error


def _records_of_targets(shards: Iterable[Shard]) -> dict[str, int]:
    """Return the number of records for each target topic."""
    records: Counter[str] = Counter()
    for shard in shards:
        records[shard.target] += shard.records
    return dict(records)


class RepublishToKafkaOperator(ApplyOperator):
    """Send an archive's sealed records to Kafka exactly once, and prove it by reading them back.

    A retry or a cleared task resumes its run: records that were sent aren't sent again, and a run
    that already has a receipt sends nothing.

    In a backfill run it sends the records whose timestamps lie in the run's data interval, unless
    from_time or to_time is set.

    Returns the plan, plus the receipt's fields and records_sent if it wasn't a dry run; if the plan
    was frozen, also plan_id, expires_at and approval.

    :param pipeline: the pipeline whose archive is republished, or its keys as a dict (templated)
    :param apply: whether to send; otherwise the plan is only logged (templated)

    The other arguments are the republish options. Each is templated; None and empty mean its
    default.
    """

    template_fields: Sequence[str] = (
        *ApplyOperator.template_fields,
        *RepublishRequest.model_fields,
    )
    removed_arguments = RepublishRequest.removed
    acts_untold = True
    is_restore = True
    ui_color = "#fdebd0"

    def __init__(
        self,
        *,
        target_topic: str | None = None,
        into_source: bool | str | None = None,
        create_target: bool | str | None = None,
        placement: str | int | None = None,
        rename: Mapping[str, str] | str | None = None,
        from_time: datetime | str | None = None,
        to_time: datetime | str | None = None,
        topics: Sequence[str] | str | None = None,
        partitions: Sequence[int | str] | str | None = None,
        offsets: Sequence[str] | str | None = None,
        sealed_only: bool | str | None = None,
        run_name: str | None = None,
        follow: bool | str | None = None,
        filters: Sequence[str] | str | None = None,
        mask: Sequence[str] | str | None = None,
        hash_fields: Sequence[str] | str | None = None,
        hash_key_file: str | None = None,
        drop_headers: Sequence[str] | str | None = None,
        change: str | None = None,
        mark_changed: bool | str | None = None,
        delivery: str | None = None,
        engine: str | None = None,
        provenance: bool | str | None = None,
        schema_map: str | None = None,
        keep_ids: Sequence[str] | str | None = None,
        records_per_second: float | str | None = None,
        bytes_per_second: float | str | None = None,
        pace: float | str | None = None,
        repeat: bool | str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.set_options(RepublishRequest, given)
        self._engines: Engines | None = None
        self._republish: Republish | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Make a plan; with apply, send the records, verify them and write the receipt.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what,
                and how much was sent.
            DeliveryError: If Kafka failed repeatedly; a retry resumes where this try ended.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
            NotSealedError: If a drain hasn't been validated yet; a retry may help.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.clock import utc_now
        from kafka_drain.republish.engines.select import Engines
        from kafka_drain.republish.run import sign_run
        from kafka_drain.spark.job import private_folder
        from kafka_drain_airflow.observability.metrics import tell_republish

        with (
            terminal_errors_fail(),
            archive_access(self.pipeline),
            spark_engine(self.pipeline),
            private_folder() as folder,
        ):
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            archive, signer = Archive.at(self.pipeline.archive), evidence_signer(self.pipeline)
            applies = self.applies()
            self._republish, frozen = self._planned(context, archive, cluster, applies)
            republish, request = self._republish, self._republish.request
            self.say_plan(republish.plan.lines(*request.limits))
            if not applies:
                self.say_dry_run(frozen)
                return bounded(republish.plan.summary() | cluster.named()) | (
                    frozen.summary() if frozen else {}
                )
            self._engines = Engines(
                self.pipeline.archive,
                cluster,
                self.pipeline,
                folder,
                self.runner,
            )
            with no_second_try(republish), self._engines:
                receipt = republish.execute(self._engines, utc_now)
            written = {k: v for k, v in receipt.items() if k not in ("sent", "through", "request")}
            tell_republish(self.pipeline.name, receipt)
            if signer is not None and republish.run.has_ended:
                say(f"evidence: {sign_run(archive, republish.run, signer, utc_now())}")
            servers = cluster.config.bootstrap_servers
            sent = _records_of_targets(republish.plan.shards)
            self._lineage = republish_lineage(servers, self.pipeline.archive, sent)
            return bounded(republish.plan.summary() | cluster.named() | written)

    def on_kill(self) -> None:
        """Stop the senders and abort open transactions, so that consumers don't have to wait."""
        if self._engines is not None:
            self._engines.stop()
        super().on_kill()
        if self._republish is not None:
            self._republish.abort()

    def _planned(
        self, context: Context, archive: Archive, cluster: KafkaCluster, applies: bool
    ) -> tuple[Republish, FrozenPlan | None]:
        """Return the run, and the frozen plan if it is made from one or becomes one."""
        from kafka_drain.clock import utc_now
        from kafka_drain.republish.approved import freeze_republish, plan_approved
        from kafka_drain.republish.run import plan_republish

        now, plan_id, within = utc_now(), self.approved_plan(), self.frozen_for()
        key = hash_key(self.pipeline)
        if plan_id is not None:
            return plan_approved(archive, cluster, plan_id, now=now, apply=applies, hash_key=key)
        request = self._request(context)
        if within is not None and not applies:
            return freeze_republish(
                archive, cluster, request, now=now, lifetime=within, hash_key=key
            )
        if not request.run_name:
            name = self._run_name(context, request.follow)
            request = request.model_copy(update={"run_name": name})
        republish = plan_republish(archive, cluster, request, now=now, apply=applies, hash_key=key)
        return republish, None

    def _request(self, context: Context) -> RepublishRequest:
        """Return the request; in a backfill run that sets no times, of the run's interval."""
        request = self.options(RepublishRequest)
        interval = None if request.from_time or request.to_time else window_interval(context)
        if interval is None:
            return request
        return self.options(RepublishRequest, from_time=interval.start, to_time=interval.end)

    def _run_name(self, context: Context, follow: bool) -> str:
        """Return the run's name, which is the same for every try of this task in this DAG run.

        A follower has the same name in every DAG run. Each of several mapped tasks has its own.
        """
        of_run = "" if follow else f" {context['run_id']}"
        mapped = getattr(context["ti"], "map_index", -1)
        name = f"{self.dag_id}{of_run} {self.task_id}"
        return name if mapped < 0 else f"{name} {mapped}"
