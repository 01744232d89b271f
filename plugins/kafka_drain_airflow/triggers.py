"""Wait in Airflow's triggerer until a drain may be due: no worker is occupied meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from kafka_drain_airflow.kafka_connection import kafka_cluster

if TYPE_CHECKING:
    from kafka_drain.drain.backlog import Watched
    from kafka_drain.kafka.cluster import KafkaCluster


class BacklogTrigger(BaseTrigger):
    """Ask Kafka every ``poll_seconds`` whether a pipeline reached one of its limits.

    Asks Kafka alone: an archive needn't be reachable from the triggerer. The cursors are those of
    the look that started the wait, so the event says that a drain *may* be due; whoever gets it
    looks at the archive again.

    Ends with the reason of each such pipeline, by name; with none when the time is over. Errors end
    nothing: a broker that is down is asked again.

    :param watched: the pipelines to look at, each as `Watched.to_dict` returns it
    :param until: when the wait ends, ISO 8601
    :param poll_seconds: seconds between two questions
    """

    def __init__(self, watched: Sequence[dict[str, Any]], until: str, poll_seconds: float) -> None:
        super().__init__()
        self.watched = list(watched)
        self.until = until
        self.poll_seconds = poll_seconds
        self._clusters: dict[str, KafkaCluster] = {}
        self._said: dict[str, str] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments from which the triggerer recreates the trigger."""
        arguments = {
            "watched": self.watched,
            "until": self.until,
            "poll_seconds": self.poll_seconds,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait."""
        # Not in the one thread that triggers share by default: a broker may take long to answer.
        ask = sync_to_async(self.reasons, thread_sensitive=False)
        until = datetime.fromisoformat(self.until)
        while (left := (until - datetime.now(timezone.utc)).total_seconds()) > 0:
            if reasons := await ask():
                yield TriggerEvent(reasons)
                return
            await asyncio.sleep(min(self.poll_seconds, left))
        yield TriggerEvent({})

    def reasons(self) -> dict[str, str]:
        """Ask Kafka once; return the reason of each pipeline for which a drain may be due."""
        from kafka_drain.drain.backlog import Watched
        from kafka_drain.errors import KafkaUnavailableError

        found: dict[str, str] = {}
        down: set[str] = set()
        for document in self.watched:
            watched = Watched.from_dict(document)
            if watched.kafka_conn_id in down:
                continue
            try:
                reason = self._reason(watched)
            except Exception as error:
                # One pipeline's trouble must not hide that another's drain is due.
                self._say(watched.pipeline, f"{type(error).__name__}: {error}")
                if isinstance(error, KafkaUnavailableError):
                    down.add(watched.kafka_conn_id)
                    self._clusters.pop(watched.kafka_conn_id, None)
            else:
                self._said.pop(watched.pipeline, None)
                if reason:
                    found[watched.pipeline] = reason
        return found

    def _reason(self, watched: Watched) -> str:
        from kafka_drain.drain.backlog import measure
        from kafka_drain.drain.urgency import decide

        if watched.kafka_conn_id not in self._clusters:
            self._clusters[watched.kafka_conn_id] = kafka_cluster(watched.kafka_conn_id)
        cluster = self._clusters[watched.kafka_conn_id]
        backlog = measure(cluster, watched, datetime.now(timezone.utc))
        decision = decide(backlog, watched.watch)
        return decision.reason if decision.is_due else ""

    def _say(self, pipeline: str, problem: str) -> None:
        """Log a problem once, however often it is met."""
        if self._said.get(pipeline) != problem:
            self._said[pipeline] = problem
            self.log.warning("%s: asked again in %g s: %s", pipeline, self.poll_seconds, problem)
