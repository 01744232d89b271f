"""A validation describes the cluster before it seals, and checks what earlier ones described."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_moments import MOMENTS, note_moment
from kafka_drain.archive.receipts import Receipt
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.findings import Reason
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import ASKED, ClusterState, Part, PartOutcome, PartResult
from kafka_drain.kafka.describing import Cost
from kafka_drain.proof import cluster_capture
from kafka_drain.proof.cluster_capture import (
    capture,
    describe_with,
    missing_parts,
    parts_before,
    slow_description,
)
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.cluster_states import state
from tests.kafka_drain.golden import golden_cluster, golden_copy

_NOON = "2026-01-01T12:00:00.000+00:00"


def answering(seen: ClusterState) -> Callable[[Collection[str]], ClusterState]:
    return lambda topics: replace(seen, cluster_id=golden_cluster().id)


def validate(archive: Archive, seen: ClusterState | None = None, **options: object) -> Report:
    cluster = golden_cluster()
    describe = answering(seen) if seen is not None else None
    return validate_archive(archive, cluster, describe=describe, **options)  # type: ignore[arg-type]


def receipts(archive: Archive) -> list[Receipt]:
    return [*archive.generation(1).receipts()]


def test_validation_names_the_moment(tmp_path: Path) -> None:
    """Each receipt names the moment that was described before it was written."""
    archive = golden_copy(tmp_path / "archive")

    validate(archive, state(3))

    newest = MOMENTS.newest(archive.root)
    assert newest is not None
    assert {receipt.cluster for receipt in receipts(archive)} == {newest}
    moment = MOMENTS.read(archive.root, newest.number)
    assert moment.groups == state(3).groups


def test_validation_with_nothing_new(tmp_path: Path) -> None:
    """Groups read on while no record arrives: each moment is noted, receipts stay as they are."""
    archive = golden_copy(tmp_path / "archive")
    validate(archive, state(3))
    before = receipts(archive)

    report = validate(archive, state(4))

    newest = MOMENTS.newest(archive.root)
    assert newest is not None
    assert newest.number == 2
    assert receipts(archive) == before
    assert report.findings == []


@pytest.mark.parametrize("seen", [None, replace(state(), cluster_id="")])
def test_validation_description_is_older(seen: ClusterState | None, tmp_path: Path) -> None:
    """A receipt that names a moment says so if the cluster wasn't described since."""
    archive = golden_copy(tmp_path / "archive")
    note_moment(archive.root, state(3), asked_at=_NOON, answered_at=_NOON)
    describe = (lambda topics: seen) if seen is not None else None

    validate_archive(archive, golden_cluster(), describe=describe)  # type: ignore[arg-type]

    newest = MOMENTS.newest(archive.root)
    assert {(each.cluster, each.described) for each in receipts(archive)} == {(newest, False)}
    for name in archive.generation(1).receipt_names():
        content = (archive.generation(1).folder / "receipts" / name).read_text()
        assert '"described":false' in content.replace(" ", "")


@pytest.mark.parametrize("seen", [None, replace(state(), cluster_id="")])
def test_validation_without_description(seen: ClusterState | None, tmp_path: Path) -> None:
    """Without an answer, what is proven is sealed all the same, and names nothing."""
    archive = golden_copy(tmp_path / "archive")
    describe = (lambda topics: seen) if seen is not None else None

    report = validate_archive(archive, golden_cluster(), describe=describe)  # type: ignore[arg-type]

    assert report.receipts_written == len(receipts(archive)) > 0
    assert {receipt.cluster for receipt in receipts(archive)} == {None}
    assert MOMENTS.newest(archive.root) is None


def test_validation_that_writes_nothing(tmp_path: Path) -> None:
    """A dry run asks nothing of the cluster that it would have to write down."""
    archive = golden_copy(tmp_path / "archive")

    validate(archive, state(), writes=False)

    assert MOMENTS.newest(archive.root) is None


@pytest.mark.parametrize(
    ("number", "again", "expected"),
    [
        (1, None, {Reason.CLUSTER_STATE_DAMAGED}),
        (2, None, {Reason.CLUSTER_STATE_LOST}),
        (1, state(9), {Reason.CLUSTER_STATE_DAMAGED}),
        (2, state(9), {Reason.CLUSTER_STATE_DAMAGED}),
        (2, state(2), {Reason.CLUSTER_STATE_DAMAGED}),
    ],
)
def test_validation_finds_damage(
    number: int, again: ClusterState | None, expected: set[Reason], tmp_path: Path
) -> None:
    """An edited moment is found; describing the cluster anew makes it harmless."""
    archive = golden_copy(tmp_path / "archive")
    validate(archive, state(1))
    validate(archive, state(2))
    path = tmp_path / f"archive/cluster/{number:012d}.json"
    path.write_bytes(path.read_bytes().replace(b"billing", b"Billing"))

    report = validate(archive, again)

    assert {finding.reason for finding in report.findings} == expected


def test_open_scope_checks_the_newest(tmp_path: Path) -> None:
    """The validation after each drain reads the newest moment, not all of them."""
    archive = golden_copy(tmp_path / "archive")
    validate(archive, state(1))
    validate(archive, state(2))
    validate(archive, state(3))
    (tmp_path / "archive/cluster/000000000002.json").unlink()

    assert validate(archive, scope="open").findings == []
    assert [f.reason for f in validate(archive, scope="all").findings] == [
        Reason.CLUSTER_STATE_DAMAGED
    ]


def test_parts_before(tmp_path: Path) -> None:
    """Without a pipeline, parts that the last validation left out are left out again."""
    archive = golden_copy(tmp_path / "archive")
    assert parts_before(archive.root) == [*ASKED]

    validate(archive, state(1, users=PartOutcome.OFF, acls=PartOutcome.NOT_AUTHORISED))

    assert parts_before(archive.root) == [part for part in ASKED if part != Part.USERS]


@pytest.mark.parametrize("is_lost", [True, False])
def test_parts_before_damaged(tmp_path: Path, is_lost: bool) -> None:
    """If the last description can't be read, nothing is left out by it."""
    archive = golden_copy(tmp_path / "archive")
    validate(archive, state(1, users=PartOutcome.OFF))
    path = tmp_path / "archive/cluster/000000000001.json"
    changed = path.read_bytes().replace(b"billing", b"Billing")
    path.unlink()
    if not is_lost:
        path.write_bytes(changed)

    assert parts_before(archive.root) == [*ASKED]


def test_capture_times(tmp_path: Path) -> None:
    """A moment holds as of the answer, and what was asked is the archive's topics."""
    archive = golden_copy(tmp_path / "archive")
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    times = iter([noon, noon + timedelta(seconds=3)])
    asked: list[Collection[str]] = []

    def describe(topics: Collection[str]) -> ClusterState:
        asked.append(topics)
        return replace(state(1), cluster_id=golden_cluster().id)

    found = capture(archive.snapshot(), describe, lambda: next(times))

    assert asked == [["flights"]]
    assert found == (MOMENTS.newest(archive.root), True)
    assert found.moment is not None
    moment = MOMENTS.read(archive.root, found.moment.number)
    assert (moment.asked_at, moment.answered_at) == (
        *("2026-01-01T12:00:00.000+00:00", "2026-01-01T12:00:03.000+00:00"),
    )


def test_describe_with_parts(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a pipeline's parts are asked for, and what isn't whole or takes long is said."""
    asked: list[object] = []
    seen = state(1, acls=PartOutcome.NOT_AUTHORISED)

    class Describer:
        cost = Cost(requests=5, milliseconds=3_000)

        def __init__(self, config: KafkaConfig) -> None:
            asked.append(config.bootstrap_servers)

        def describe(self, topics: Collection[str], parts: Collection[Part]) -> ClusterState:
            asked.extend([topics, parts])
            return seen

    monkeypatch.setattr(cluster_capture, "ClusterDescriber", Describer)
    describe = describe_with(KafkaConfig({"bootstrap.servers": "b:1"}), ["acls", "topics"])
    assert describe is not None

    assert describe(["a", "b"]) is seen

    wanted = [part for part in ASKED if part in (Part.ACLS, Part.TOPICS)]
    assert asked == ["b:1", ["a", "b"], wanted]
    assert "took 3.0 s (5 requests)" in said[0]
    assert said[1:] == ["validate: acls: not_authorised"]


def test_describe_with_nothing() -> None:
    """A pipeline that switches all parts off asks nothing."""
    assert describe_with(KafkaConfig({"bootstrap.servers": "b:1"}), []) is None


def test_pipeline_parts() -> None:
    """A pipeline's parts are those that can be asked for, all of them by default."""
    assert Pipeline(name="a", topics=["a"], archive="/a").describe_cluster == [*map(str, ASKED)]


@pytest.mark.parametrize(("milliseconds", "lines"), [(1_999, 0), (2_000, 1)])
def test_slow_description(milliseconds: int, lines: int) -> None:
    """A description that takes two seconds is reported, with its requests; others aren't."""
    said = slow_description(Cost(requests=1_234, milliseconds=milliseconds))

    assert len(said) == lines
    assert all("2.0 s (1,234 requests)" in line for line in said)


def test_missing_parts() -> None:
    """What couldn't be captured is said, what is switched off isn't."""
    seen = state(1, users=PartOutcome.OFF, acls=PartOutcome.NOT_AUTHORISED)
    parts = {**seen.parts, Part.GROUPS: PartResult(PartOutcome.CAPTURED, "some are missing")}

    assert missing_parts(replace(seen, parts=parts)) == [
        "groups: captured: some are missing",
        "acls: not_authorised",
    ]
