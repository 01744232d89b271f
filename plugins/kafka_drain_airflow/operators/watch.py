"""Watch pipelines, and say which drains should start before their schedule says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from kafka_drain.config.checks import refuse
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, KafkaUnavailableError, TerminalError, TransientError
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.operators.pipeline import FormOperator
from kafka_drain_airflow.store_connection import archive_access
from kafka_drain_airflow.triggers import BacklogTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.drain.backlog import Watched

#: A drain that would be refused is started this rarely: its failure has to be seen, once.
_REFUSED = timedelta(days=1)
#: For how long one look is good: configuration, new partitions and cursors are read again then.
_LOOK = timedelta(hours=1)
#: No number of minutes or seconds is as large as this, which is ten years of minutes.
_LONGEST = 10 * 366 * 24 * 60
#: Time after which a trigger that should have ended counts as one that nobody runs.
_GRACE = timedelta(minutes=5)
#: Number of periods whose runs one question is about, and for how long such a run may be queued, in
#: at most so many questions.
_EARLIER, _QUEUED, _MOST = 50, timedelta(days=7), 20


@dataclass(frozen=True, slots=True)
class Period:
    """A period in which one pipeline's drain is started at most once.

    Periods are aligned to 1970, so that a retry and another watcher find the same one.
    """

    start: datetime
    end: datetime
    run_id: str

    @classmethod
    def of(cls, now: datetime, length: timedelta, kind: str = "watch") -> Period:
        """Return the period of that length that a time is in; `kind` begins its run's id."""
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        start = now - (now - epoch) % length
        return cls(start, start + length, f"{kind}__{start.isoformat(timespec='seconds')}")


class WatchOperator(FormOperator):
    """Wait until drains are due, and return the runs to trigger.

    Waits in the triggerer, and so occupies no worker. One task watches all pipelines. It returns
    with no runs every hour, so that the next one reads DAG file and archives again, and reports
    whether each could be restored (the gauge ``archive.ready``).

    Returns a list of ``trigger_dag_id``, ``trigger_run_id`` and ``conf`` for
    ``TriggerDagRunOperator.expand_kwargs``; ``conf["reason"]`` says why. A drain isn't returned
    while one drains, or one that was started here waits, and at most once in ``again_minutes``.

    :param pipelines: the pipelines, each with ``watch``
    :param again_minutes: minutes in which a pipeline's drain is started at most once
    :param poll_seconds: seconds between two questions to Kafka
    :param deferrable: False to wait on the worker, if no triggerer runs
    :param drain_dag_id: pattern of the ids of the DAGs that drain, if `create_dags` has another
        one; that one, with ``{kind}``, is accepted too
    """

    ui_color = "#fef5e7"

    def __init__(
        self,
        *,
        pipelines: Sequence[Pipeline],
        again_minutes: float = 15,
        poll_seconds: float = 60,
        deferrable: bool = True,
        drain_dag_id: str = "drain_{name}",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_watching(pipelines, again_minutes, poll_seconds, drain_dag_id)
        self.drain_dag_id = drain_dag_id
        self.pipelines = list(pipelines)
        self.again_minutes = again_minutes
        self.poll_seconds = poll_seconds
        self.deferrable = deferrable

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Look at all pipelines; wait if no drain is due.

        Raises:
            TaskDeferred: To wait in the triggerer.
        """
        now = datetime.now(timezone.utc)
        runs, trigger = self._look(context, now)
        self._tell_ready(now)
        if runs:
            return runs
        if self.deferrable:
            # The trigger ends by itself. If no triggerer runs it, the scheduler ends the wait, and
            # the next try looks: otherwise nothing would be watched, and nothing would fail.
            timeout = datetime.fromisoformat(trigger.until) - now + _GRACE
            self.defer(trigger=trigger, method_name="resume", timeout=timeout)
        return self.resume(context, asyncio.run(_event(trigger)))

    def resume(self, context: Context, event: dict[str, str]) -> list[dict[str, Any]]:
        """Look again at what the triggerer saw; it saw nothing if the hour is over."""
        for pipeline, reason in event.items():
            self.log.info("%s: a drain may be due: %s", pipeline, reason)
        return self._look(context, datetime.now(timezone.utc))[0] if event else []

    def _look(self, context: Context, now: datetime) -> tuple[list[dict[str, Any]], BacklogTrigger]:
        """Return the runs to trigger now, and what waits if there are none."""
        period = Period.of(now, timedelta(minutes=self.again_minutes))
        runs, watched, until = [], [], now + _LOOK
        down: dict[str, KafkaUnavailableError] = {}
        for pipeline in self.pipelines:
            run, asked = None, None
            try:
                if pipeline.kafka_conn_id in down:
                    raise down[pipeline.kafka_conn_id]
                run, asked = self._look_at(context, pipeline, period, now)
            except TerminalError as error:
                run = self._refused(context, pipeline, error, now)
            except TransientError as error:
                self.log.warning("%s: not known: %s", pipeline.name, error)
                if isinstance(error, KafkaUnavailableError):
                    down[pipeline.kafka_conn_id] = error
            except Exception:
                # One pipeline's trouble must not hide that another's drain is due.
                self.log.exception("%s: not known", pipeline.name)
            if run is not None:
                runs.append(run)
            if asked is not None:
                watched.append(asked.to_dict())
            else:
                # The triggerer can't tell, or would end at once: look again in the next period.
                until = min(until, period.end)
        return runs, BacklogTrigger(watched, until.isoformat(), self.poll_seconds)

    def _tell_ready(self, now: datetime) -> None:
        """Report whether each archive could be restored; no trouble with that stops the watch."""
        from kafka_drain.archive.archive import Archive
        from kafka_drain.archive.readiness import Readiness
        from kafka_drain.looking import look_at
        from kafka_drain_airflow.observability.metrics import tell_ready

        for pipeline in self.pipelines:
            is_ready = False
            try:
                with archive_access(pipeline):
                    judged = look_at(Archive.at(pipeline.archive), pipeline.archive).judge(now)
                # Of another pipeline's archive, this one has nothing to restore.
                is_ready = (judged.state, judged.pipeline) == (Readiness.READY, pipeline.name)
                self.log.info("%s", judged.sentence)
            except Exception:
                self.log.exception("%s: not known whether it could be restored", pipeline.name)
            tell_ready(pipeline.name, is_ready=is_ready)

    def _look_at(
        self, context: Context, pipeline: Pipeline, period: Period, now: datetime
    ) -> tuple[dict[str, Any] | None, Watched | None]:
        """Return the run to trigger, if any, and what the triggerer has to ask if none is due."""
        from kafka_drain.drain.backlog import look
        from kafka_drain.drain.urgency import decide

        dag_id = _dag_id(self.drain_dag_id, pipeline)
        with archive_access(pipeline):
            seen = look(pipeline, kafka_cluster(pipeline.kafka_conn_id), now)
        busy = seen.busy or _started(context, dag_id, period)
        decision = decide(seen.backlog, seen.watched.watch, busy)
        self.log.info("%s: %s", pipeline.name, decision.reason)
        if decision.is_due:
            return _run(dag_id, period, decision.reason) if decision.starts else None, None
        return None, seen.watched

    def _refused(
        self, context: Context, pipeline: Pipeline, error: TerminalError, now: datetime
    ) -> dict[str, Any] | None:
        """Return the run that fails with what somebody has to know; None if there was one."""
        dag_id = _dag_id(self.drain_dag_id, pipeline)
        period = Period.of(now, _REFUSED, "watch_refused")
        self.log.error("%s: a drain would be refused: %s", pipeline.name, error)
        if _started(context, dag_id, period):
            return None
        return _run(dag_id, period, f"it would be refused: {error}")


def check_watched(pipelines: Sequence[Pipeline]) -> None:
    """Require that each pipeline says when its drain is due.

    Raises:
        ConfigError: If there is none, or one has no `watch`.
    """
    if not pipelines:
        raise ConfigError("there are no pipelines to watch; expected one or more")
    for pipeline in pipelines:
        if pipeline.watch is None:
            raise ConfigError(
                f"pipeline {pipeline.name!r} has no watch; add one, such as "
                "watch={'hours_to_expiry': 12}"
            )


def check_watching(
    pipelines: Sequence[Pipeline], again_minutes: object, poll_seconds: object, drain_dag_id: str
) -> None:
    """Refuse times that no period can be made of, and a pattern that names no DAG of each pipeline.

    Raises:
        ConfigError: Names the argument, and what is accepted.
    """
    for name, value in (("again_minutes", again_minutes), ("poll_seconds", poll_seconds)):
        if not isinstance(value, (int, float)) or not 0 < value < _LONGEST:
            raise refuse(name, value, "a number above 0")
    try:
        dag_ids = {_dag_id(drain_dag_id, pipeline) for pipeline in pipelines}
    except (KeyError, IndexError, ValueError):
        dag_ids = set()
    if len(dag_ids) < len({pipeline.name for pipeline in pipelines}):
        accepted = "a text with {name}, such as 'team_a.drain.{name}'"
        raise refuse("drain_dag_id", drain_dag_id, accepted)


def _dag_id(pattern: str, pipeline: Pipeline) -> str:
    """Return the id of a pipeline's drain, also by the pattern that `create_dags` takes."""
    return pattern.format(kind="drain", name=pipeline.name)


def _run(dag_id: str, period: Period, reason: str) -> dict[str, Any]:
    return {
        "trigger_dag_id": dag_id,
        "trigger_run_id": period.run_id,
        "conf": {"reason": reason},
    }


async def _event(trigger: BacklogTrigger) -> dict[str, str]:
    """Wait on the worker for what the triggerer would say."""
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("a trigger ends with an event")


def _started(context: Context, dag_id: str, period: Period) -> str:
    """Return why no other run of a DAG may start in a period; empty if one may."""
    task_instance: Any = context["ti"]
    count = getattr(task_instance, "get_dr_count", _count_in_database)
    # Not any run: those of a backfill wait for hours, and leave the cursor where it is. What else
    # drains holds the lease.
    length, kind = period.end - period.start, period.run_id.partition("__")[0]
    for asked in range(min(_QUEUED // (length * _EARLIER) + 1, _MOST)):
        numbers = range(asked * _EARLIER, (asked + 1) * _EARLIER)
        own = [Period.of(period.start - n * length, length, kind).run_id for n in numbers]
        if count(dag_id=dag_id, states=["queued", "running"], run_ids=own):
            return f"a run of {dag_id} that was started here is queued or running"
    if count(dag_id=dag_id, run_ids=[period.run_id]):
        return (
            f"one was started after {period.start:%H:%M} UTC, the next may be at {period.end:%H:%M}"
        )
    return ""


def _count_in_database(dag_id: str, run_ids: Sequence[str], states: Sequence[str] = ()) -> int:
    """Count a DAG's runs of some ids, in some states or any, on Airflow 2."""
    from airflow.models.dagrun import DagRun

    found = DagRun.find(dag_id=dag_id, run_id=list(run_ids))
    return sum(not states or run.state in states for run in found)
