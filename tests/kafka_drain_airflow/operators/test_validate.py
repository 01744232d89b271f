"""What a failing validation has reported before it fails, and to whom."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.status import read_overview, write_overview
from kafka_drain.errors import (
    ArchiveError,
    AuthenticationError,
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    ManifestInvalidError,
)
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import validation
from kafka_drain.proof.report import Report, note_overview
from kafka_drain.schemas.subjects import Subjects
from kafka_drain_airflow import Pipeline, ValidateManifestOperator, command_reach
from kafka_drain_airflow.observability.archive_events import archive_asset
from tests.core_calls import MANUAL, CoreCalls, Planned
from tests.fake_registry import fake_registry
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.golden import golden_copy, golden_pipeline, seal, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense


class OneOutlet:
    """A fake of Airflow's outlet events. Not a dict: Airflow 3.0 can't hash assets."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __getitem__(self, outlet: Any) -> Any:
        return self.event


def test_validate_operator_tells_what_was_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run couldn't store as its XCom, so that it failed, is told by the next one."""
    archive = golden_copy(tmp_path / "archive")
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    pipeline = Pipeline(name="p", topics=["t"], archive=str(archive.root))
    asset = archive_asset(pipeline)
    operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline, outlets=[asset])

    def validate(*_: Any, **__: Any) -> Report:
        seal(archive)
        return Report(str(archive.root), "p", findings=[])

    def attempt(run: str, away: str) -> int:
        def push(key: str, value: Any) -> None:
            if key == away:
                raise RuntimeError("Airflow's API server doesn't answer")

        event, task = SimpleNamespace(extra=None), SimpleNamespace(xcom_push=push)
        context: Any = {"run_id": run, "outlet_events": OneOutlet(event), "ti": task}
        operator.execute(context)
        return len(event.extra["segments"])

    monkeypatch.setattr(validation, "validate_archive", validate)
    with pytest.raises(RuntimeError, match="doesn't answer"):
        attempt("first", "sealed")

    assert attempt("second", "") == 3
    assert attempt("third", "") == 0


def test_validate_operator_tells_what_failed_attempt_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments sealed by a failed attempt are told by the next successful one, once.

    They are in its event for other DAGs, and in its XCom for the tasks after it.
    """
    archive = golden_copy(tmp_path / "archive")
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    pipeline = Pipeline(name="p", topics=["t"], archive=str(archive.root))
    asset = archive_asset(pipeline)
    operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline, outlets=[asset])

    def attempt(run: str, sealed: list[Any], found: list[Finding]) -> Any:
        def validate(*_: Any, **__: Any) -> Report:
            sealed.extend(seal(archive).sealed)
            return Report(str(archive.root), "p", findings=found)

        monkeypatch.setattr(validation, "validate_archive", validate)
        event = SimpleNamespace(extra=None)
        pushed: dict[str, Any] = {}
        task = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
        context: Any = {"run_id": run, "outlet_events": OneOutlet(event), "ti": task}
        returned = operator.execute(context)
        assert "sealed" not in returned
        told = event.extra["segments"]
        assert pushed["sealed"]["segments"] == len(told)
        assert pushed["sealed"]["records"] == sum(segment["records"] for segment in told)
        return [segment["sha256"] for segment in told]

    sealed: list[Any] = []
    with pytest.raises(Exception, match="file_missing"):
        attempt("first", sealed, [Finding(Reason.FILE_MISSING, "a", "b")])

    assert len(sealed) == 3
    hashes = [receipt.sha256 for receipt in sealed]
    assert attempt("first", sealed, []) == hashes
    assert attempt("first", sealed, []) == hashes
    assert attempt("second", sealed, []) == []


def test_validate_operator_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in a report get each connection of the pipeline, also the registry of its values."""
    ids = {"archive_conn_id": "aws", "kafka_conn_id": "brokers", "spark_conn_id": "yarn"}
    values = {"encoding": "avro", "registry_conn_id": "of_values"}
    pipeline = Pipeline(name="p", topics=["t"], archive="s3://b/a", values=values, **ids)
    monkeypatch.setattr(command_reach, "reach_of", lambda archive, **reached: (archive, reached))

    found: Any = ValidateManifestOperator(task_id="validate", pipeline=pipeline)._reach()

    reached = {"store": "aws", "kafka": "brokers", "spark": "yarn", "registry": "of_values"}
    assert found == ("s3://b/a", reached)


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Exception, Any, Any]:
    """The error of a validation with a finding, its XComs, and the alert callbacks' contexts."""
    archive = tmp_path / "archive"
    Archive.at(str(archive)).create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    found = [Finding(Reason.FILE_MISSING, "a", "b")]
    report = Report(str(archive), "p", findings=found)
    monkeypatch.setattr(validation, "validate_archive", lambda *_, **__: report)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    pushed: dict[str, str] = {}
    told: list[Any] = []

    def fail(context: Any) -> None:
        raise ConnectionError("nobody there")

    def leave(context: Any) -> None:
        # Airflow would take it for the task's success.
        raise SystemExit(0)

    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=Pipeline(name="p", topics=["t"], archive=str(archive)),
        on_alert_callback=[fail, leave, told.append],
    )
    task: Any = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context: Any = {"ti": task, "run_id": "failed run"}
    with pytest.raises(Exception, match="file_missing") as raised:
        operator.execute(context)
    return raised.value, pushed, told


def test_validate_operator_failed_names_report(failed: Any) -> None:
    """A validation that fails has published its report's path before."""
    error, pushed, _ = failed

    assert type(error).__name__ == "AirflowFailException"
    assert Path(pushed["report"]).is_file()
    assert Path(pushed["report"]).with_suffix(".html").is_file()
    # Two clusters may have topics of the same names.
    written = json.loads(Path(pushed["report"]).read_text())
    assert written["kafka"] == {"bootstrap_servers": "127.0.0.1:1"}


@pytest.mark.parametrize("scope", ["open", "all"])
@pytest.mark.parametrize("is_complete", [True, False])
def test_validate_operator_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, is_complete: bool
) -> None:
    """A validation has the form's fields, the run's name and the signer, whatever it finds."""
    archive = Archive.at(str(tmp_path / "archive"))
    archive.create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    found = [] if is_complete else [Finding(Reason.FILE_MISSING, "a", "b")]
    core, cluster = CoreCalls(monkeypatch), FakeCluster({})
    report = Report(str(archive.root), "p", findings=found)
    core.replace("kafka_drain_airflow.operators.validate.kafka_cluster", cluster)
    core.replace("kafka_drain_airflow.operators.validate.evidence_signer", "the signer")
    core.replace("kafka_drain.proof.validation.validate_archive", report)
    core.replace("kafka_drain.proof.report.sign_report", "evidence/report")
    core.replace("kafka_drain_airflow.observability.metrics.tell_overview")
    core.replace("kafka_drain.proof.cluster_capture.describe_with", "describes")
    core.replace("kafka_drain.proof.executor_reading.read_by_spark", "reads")
    described = ["groups"]
    pipeline = Pipeline(
        name="p", topics=["t"], archive=str(archive.root), describe_cluster=described
    )
    operator = ValidateManifestOperator(
        task_id="validate", pipeline=pipeline, scope=scope, acknowledge_expired=["t:0:1-2"]
    )

    before = read_overview(archive.root)
    if is_complete:
        assert operator.execute(MANUAL)["verdict"] == "complete"
    else:
        with pytest.raises(Exception, match="file_missing"):
            operator.execute(MANUAL)

    assert core.given["validate_archive"][0] == (archive, cluster)
    named = core.named("validate_archive")
    assert (named["scope"], named["run"], named["signer"]) == (scope, "manual 1", "the signer")
    assert named["acknowledged"] == {TopicPartition("t", 0): [OffsetRange(1, 2)]}
    assert (named["describe"], named["read_many"]) == ("describes", "reads")
    assert core.given["describe_with"] == ((cluster.config, pipeline.describe_cluster), {})
    (read_for, runner), _ = core.given["read_by_spark"]
    assert (read_for, runner.run) == (pipeline, operator.run_application)
    overview = read_overview(archive.root)
    assert core.given["tell_overview"] == (("p", overview, report.seconds), {"before": before})
    signed, of, path, signer, _ = core.given["sign_report"][0]
    assert (signed, of, signer) == (archive, report, "the signer")
    assert Path(path).is_file()


def test_validate_operator_failed_alerts(failed: Any) -> None:
    """A callback gets the alerts even if another callback failed, or left."""
    _, _, [context] = failed

    assert context["run_id"] == "failed run"
    [alert] = context["alerts"]
    assert alert["kind"] == "DAMAGED"
    assert "file_missing" in alert["message"]


@pytest.mark.parametrize("unwritten", ["reports", "overview"])
def test_validate_operator_alerts_unwritten(
    unwritten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost is told of, also where the report or the overview can't be written."""

    def fail(*_: Any) -> None:
        raise ArchiveError("overview.json can't be written")

    archive = tmp_path / "archive"
    Archive.at(str(archive)).create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    report = Report(str(archive), "p", findings=[Finding(Reason.OFFSET_MISSING, "t-0", "5 lost")])
    monkeypatch.setattr(validation, "validate_archive", lambda *_, **__: report)
    if unwritten == "reports":
        (archive / "reports").write_text("a file")
    else:
        monkeypatch.setattr("kafka_drain.proof.report.note_overview", fail)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    told: list[Any] = []
    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=Pipeline(name="p", topics=["t"], archive=str(archive)),
        on_alert_callback=told.append,
    )

    with pytest.raises(Exception, match=unwritten):
        operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    assert [alert["kind"] for [context] in [told] for alert in context["alerts"]] == ["LOST"]


def test_validate_operator_alerts_beside_unreadable_drills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost is told of, and is why the task fails, even if no drill can be read."""
    archive = tmp_path / "archive"
    Archive.at(str(archive)).create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    (archive / "drills").symlink_to(archive / "drills")
    report = Report(str(archive), "p", findings=[Finding(Reason.OFFSET_MISSING, "t-0", "5 lost")])
    monkeypatch.setattr(validation, "validate_archive", lambda *_, **__: report)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    told: list[Any] = []
    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=Pipeline(name="p", topics=["t"], archive=str(archive), drill={}),
        on_alert_callback=told.append,
    )

    with pytest.raises(Exception, match="offset_missing"):
        operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    [context] = told
    kinds = [alert["kind"] for alert in context["alerts"]]
    assert kinds == ["LOST", "DRILL"]


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (KafkaUnavailableError, True),
        (KafkaUnavailableError, False),
        (AuthenticationError, True),
        (AuthorizationError, True),
    ],
)
def test_validate_operator_alerts_without_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[KafkaDrainError], is_kept: bool
) -> None:
    """Whether Kafka doesn't answer or refuses the login: what the files alone prove is told of.

    So it is where it can't be noted, and the task fails for the same reason.
    """
    if not is_kept:
        CoreCalls(monkeypatch).replace(
            "kafka_drain.proof.report.note_damage", ArchiveError("it is read-only")
        )
    archive = sealed_copy(tmp_path / "archive")
    lost = next(iter(list(archive.generation(1).receipts())[-1].files))
    report = validation.validate_archive(archive, None)
    overview = note_overview(archive, report, "reports/r.json")
    write_overview(archive.root, overview | {"expires_at": "2026-01-01T00:00:00+00:00", "lag": 7})
    (tmp_path / "archive" / lost.path).unlink()
    whole = validation.validate_archive

    def validate(archive: Archive, cluster: Any, **how: Any) -> Report:
        if cluster is not None:
            raise error("the cluster's own words")
        return whole(archive, None, **how)

    monkeypatch.setattr(validation, "validate_archive", validate)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    told: list[Any] = []
    gauges: list[str] = []
    monkeypatch.setattr(
        "kafka_drain_airflow.observability.metrics.tell_overview",
        lambda _name, seen, *_: gauges.append(seen["verdict"]),
    )
    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=golden_pipeline(archive, drill={}),
        on_alert_callback=told.append,
    )

    with pytest.raises(Exception, match="the cluster's own words"):
        operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    assert gauges == ["findings"]
    [context] = told
    [damaged] = [each["message"] for each in context["alerts"] if each["kind"] == "DAMAGED"]
    assert lost.path in damaged
    # Kafka goes on deleting what isn't drained, and no drill has passed meanwhile.
    of = {each["kind"]: each["message"] for each in context["alerts"]}
    assert of["EXPIRING"].startswith("7 offsets aren't drained yet, and Kafka may delete the first")
    assert of["DRILL"] == "no drill has passed yet"
    if not is_kept:
        return
    # Nor is it forgotten: status and pages read nothing else.
    noted = read_overview(archive.root)
    assert noted is not None
    assert (noted["verdict"], noted["findings"]) == ("findings", {"file_missing": 1})
    assert [row["where"] for row in noted["standing"]] == [lost.path]
    assert noted["validated_at"] == overview["validated_at"]


def test_validate_operator_scope_refused(tmp_path: Path) -> None:
    """A scope that doesn't exist isn't taken for another one."""
    pipeline = Pipeline(name="p", topics=["t"], archive=str(tmp_path))
    operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline, scope="opne")

    with pytest.raises(Exception, match="scope = 'opne' is not acceptable; accepted: open, all"):
        operator.execute({})  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", ["", "registry", "connection", "answer"])
def test_validate_operator_registry_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Schemas of new records are kept; whatever is wrong with the registry fails no validation."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.seal({TopicPartition("t", 0): dense(0, 3)}, value=b"\0\0\0\0\5x")
    report = Report(str(made.root), "p")

    def validate(*_: object, keep_schemas: Any, **__: object) -> Report:
        keep_schemas()
        return report

    monkeypatch.setattr(validation, "validate_archive", validate)
    if fails == "answer":
        monkeypatch.setattr(Subjects, "compatibility", lambda *_: {}["compatibilityLevel"])
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    with fake_registry() as registry:
        registry.register("t-value", 5, {"type": "string"})
        registry.fails = 401 if fails == "registry" else 0
        connection = {"conn_type": "generic", "extra": registry.settings}
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps(connection))
        pipeline = Pipeline(
            name="p",
            topics=["t"],
            archive=str(made.root),
            registry_conn_id="nobody" if fails == "connection" else "registry",
        )
        operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline)

        summary = operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    assert summary["verdict"] == "complete"
    path = Path(str(made.root)) / "registry.json"
    if fails in ("connection", "answer"):
        assert not path.exists()
        return
    kept = json.loads(path.read_text())
    assert [subject["name"] for subject in kept["subjects"]] == ([] if fails else ["t-value"])
    assert len(kept["notes"]) == bool(fails)


@pytest.fixture
def drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive whose validation seals three segments, and finds nothing."""
    archive = golden_copy(tmp_path / "archive")
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))

    def validate(*_: Any, **__: Any) -> Report:
        return Report(str(archive.root), "p", sealed=[*seal(archive).sealed])

    monkeypatch.setattr(validation, "validate_archive", validate)
    return archive


def told_by(operator: ValidateManifestOperator, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a validation; return its summary and what its event says."""
    event, pushed = SimpleNamespace(extra=None), dict[str, Any]()
    task = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context: Any = {"run_id": run, "outlet_events": OneOutlet(event), "ti": task}
    return operator.execute(context), event.extra


def test_validate_operator_event(drained: Archive) -> None:
    """The event of a validation has its summary, and each segment; the summary names the report."""
    pipeline = Pipeline(name="p", topics=["t"], archive=str(drained.root))
    asset = archive_asset(pipeline)
    operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline, outlets=[asset])

    summary, extra = told_by(operator, "run")

    assert Path(summary["report"]).is_file()
    assert summary.items() <= extra.items()
    assert len(extra["segments"]) == 3


def test_validate_operator_drills_unreadable(drained: Archive) -> None:
    """If drills can't be read, a validation says so and fails; the next one tells its segments."""
    path = Path(str(drained.root), "drills")
    path.symlink_to(path)
    told: list[Any] = []
    pipeline = Pipeline(name="p", topics=["t"], archive=str(drained.root), drill={})
    asset = archive_asset(pipeline)
    operator = ValidateManifestOperator(
        task_id="validate", pipeline=pipeline, outlets=[asset], on_alert_callback=[told.append]
    )

    with pytest.raises(Exception, match="drills"):
        told_by(operator, "first")

    assert [alert["kind"] for alert in told[0]["alerts"]] == ["DRILL"]
    path.unlink()
    # What it has sealed is told by the next one.
    assert len(told_by(operator, "second")[1]["segments"]) == 3


def test_validate_operator_drills(drained: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """That no drill has passed yet is told in an alert, and to the metrics."""
    core, told = CoreCalls(monkeypatch), list[Any]()
    core.replace("kafka_drain_airflow.observability.metrics.tell_drills")
    pipeline = Pipeline(name="p", topics=["t"], archive=str(drained.root), drill={})
    operator = ValidateManifestOperator(
        task_id="validate", pipeline=pipeline, on_alert_callback=told.append
    )

    operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    assert [alert["message"] for alert in told[0]["alerts"]] == ["no drill has passed yet"]
    name, status = core.given["tell_drills"][0]
    assert (name, status.words) == ("p", "no drill has passed yet")


@pytest.mark.parametrize("found", [[], [Finding(Reason.FILE_MISSING, "a", "b")]])
def test_validate_operator_witness_fails(
    found: list[Finding], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task fails for the archive's findings, or else for its witness; nothing is published."""
    archive = Archive.at(str(tmp_path / "archive"))
    archive.create(pipeline="p", cluster_id="c", topic_ids={}, source={})
    core = CoreCalls(monkeypatch)
    report = Report(str(archive.root), "p", findings=found)
    core.replace("kafka_drain_airflow.operators.validate.kafka_cluster", FakeCluster({}))
    core.replace("kafka_drain_airflow.operators.validate.evidence_signer", "the signer")
    core.replace("kafka_drain_airflow.operators.validate.tell_validated")
    core.replace("kafka_drain.proof.validation.validate_archive", report)
    core.replace("kafka_drain.proof.report.sign_report", ArchiveError("the witness is away"))
    pipeline = Pipeline(name="p", topics=["t"], archive=str(archive.root))
    operator = ValidateManifestOperator(task_id="validate", pipeline=pipeline)

    with pytest.raises(Exception, match="file_missing" if found else "the witness is away"):
        operator.execute({"run_id": "run"})  # type: ignore[arg-type]

    assert "tell_validated" not in core.given


def test_validate_operator_window_sealed(drained: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's validation tells what no other run has told, and notes it afterwards."""
    sealed = [*seal(drained).sealed]
    core, pushed = CoreCalls(monkeypatch), dict[str, Any]()
    core.replace("kafka_drain_airflow.operators.validate.tell_validated")
    planned = Planned(archive=drained, to_drain=0)
    core.replace("kafka_drain.windows.backfill_plan.plan_backfill", planned)
    core.replace("kafka_drain.windows.backfill.refuse_incomplete")
    core.replace("kafka_drain.windows.backfill.sealed_windows", "all of the windows")
    core.replace("kafka_drain.events.unpublished_windows", sealed[:2])
    core.replace("kafka_drain.events.note_windows")

    def push(key: str, value: Any) -> None:
        assert "note_windows" not in core.order
        pushed[key] = value

    pipeline = Pipeline(name="p", topics=["t"], archive=str(drained.root))
    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=pipeline,
        mode="window",
        window_start="2026-01-01T00:00Z",
        window_end="2026-01-01T01:00Z",
    )
    context: Any = {**MANUAL, "ti": SimpleNamespace(xcom_push=push)}

    assert "segments" not in operator.execute(context)

    asked, interval = core.given["plan_backfill"][0][0], core.given["plan_backfill"][0][2]
    assert (asked, interval.start.hour, interval.end.hour) == (pipeline, 0, 1)
    run = "manual 1"
    assert core.given["unpublished_windows"][0] == (drained, "all of the windows", run)
    assert core.given["note_windows"][0] == (drained, sealed[:2], run)
    assert core.order.index("tell_validated") < core.order.index("note_windows")
    assert len(core.given["tell_validated"][0][3]["segments"]) == 2
    assert pushed["sealed"]["segments"] == 2


@pytest.mark.parametrize("is_whole", [True, False])
def test_validate_operator_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """A window's validation fails unless the interval is whole; nobody is told of it then."""
    core = CoreCalls(monkeypatch)
    core.replace("kafka_drain_airflow.operators.validate.kafka_cluster", FakeCluster({}))
    core.replace("kafka_drain_airflow.operators.validate.tell_validated")
    planned = Planned(archive="the archive", to_drain=0)
    core.replace("kafka_drain.windows.backfill_plan.plan_backfill", planned)
    error = None if is_whole else ManifestInvalidError("5 offsets are in no segment")
    core.replace("kafka_drain.windows.backfill.refuse_incomplete", error)
    core.replace("kafka_drain.windows.backfill.sealed_windows", [])
    core.replace("kafka_drain.events.unpublished_windows", [])
    core.replace("kafka_drain.events.note_windows")
    operator = ValidateManifestOperator(
        task_id="validate",
        pipeline=Pipeline(name="p", topics=["t"], archive=str(tmp_path)),
        mode="window",
        window_start="2026-01-01T00:00Z",
        window_end="2026-01-01T01:00Z",
        acknowledge_expired=["t:0:1-2"],
    )

    if is_whole:
        assert operator.execute(MANUAL)["to_drain"] == 0
    else:
        with pytest.raises(Exception, match="5 offsets are in no segment"):
            operator.execute(MANUAL)

    accepted = {TopicPartition("t", 0): [OffsetRange(1, 2)]}
    assert core.named("plan_backfill") == {"acknowledged": accepted}
    assert core.given["refuse_incomplete"] == ((planned,), {})
    assert ("tell_validated" in core.given, "note_windows" in core.given) == (is_whole, is_whole)
