"""How an archive stands, in one document and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import FileSet, KafkaBounds, Receipt, SealedPartition
from kafka_drain.archive.status import make_overview, read_overview, write_overview
from kafka_drain.archive.watermarks import Observations, observe
from kafka_drain.errors import ArchiveError
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pages.overview import ArchiveRow, Run, overview_page
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.pages.looks import look_of
from tests.tables import each_of

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
HOUR = 3_600_000
P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
REPORT: dict[str, Any] = {
    "pipeline": "orders",
    "verdict": "complete",
    "validated_at": "2026-11-22T11:55:00+00:00",
    "files": 3,
    "bytes": 4_000_000,
    "records": 95,
    "offsets": 100,
    "reasons": {},
    "gaps": [],
    "partitions": [
        {"topic": "a", "partition": 0, "start": 0, "end": 60, "records": 58,
         "gaps": {"control": 2}},
        {"topic": "a", "partition": 1, "start": 0, "end": 40, "records": 37,
         "gaps": {"control": 3}},
    ],
    "generations": [{"generation": 1}],
    "windows": [],
    "receipts": {"total": 3, "written": 1, "unsealed": 2},
}  # fmt: skip


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def receipt(newest: Mapping[TopicPartition, int | None]) -> Receipt:
    parts = tuple(
        SealedPartition.of(
            tp=tp,
            range=OffsetRange(0, 10),
            records=10,
            first=0,
            last=9,
            first_timestamp=0,
            last_timestamp=last,
            gaps={},
            kafka=KafkaBounds(0, 10, 10),
            start_so_far=0,
            records_so_far=10,
            gaps_so_far={},
        )
        for tp, last in newest.items()
    )
    return Receipt(
        pipeline="orders",
        cluster_id="c",
        topics={"a": "id"},
        generation=1,
        first_batch=0,
        last_batch=0,
        sealed_at="2026-11-22T11:55:00.000+00:00",
        previous=None,
        partitions=parts,
        files=(),
        files_so_far=FileSet(),
    )


def observed(**high: int) -> Observations:
    tps = {"p0": P0, "p1": P1}
    bounds = {tps[name]: KafkaBounds(0, mark, mark) for name, mark in high.items()}
    return observe({}, bounds, "r", 0.0)


def test_make_overview_behind() -> None:
    """What Kafka holds beyond the archive is counted, and when some of it may go."""
    hour_ago = milliseconds(NOW - timedelta(hours=1))
    newest = {P0: hour_ago, P1: hour_ago - HOUR}
    settings = {"a": TopicSettings(2, 1, config={"retention.ms": str(3 * HOUR)})}

    found = make_overview(REPORT, receipt(newest), observed(p0=70, p1=45), settings, "r.json")

    assert found["lag"] == 10 + 5
    assert found["newest_record"] == "2026-11-22T11:00:00.000+00:00"
    # Partition 1 has the older end: its next record may go three hours after that.
    assert found["expires_at"] == "2026-11-22T13:00:00.000+00:00"
    assert found["sealed_at"] == "2026-11-22T11:55:00.000+00:00"
    assert found["gaps"] == {"control": 5}
    assert found["report"] == "reports/r.json"
    assert (found["partitions"], found["generations"], found["windows"]) == (2, 1, 0)
    assert found["unsealed_segments"] == 2


@pytest.mark.parametrize(
    ("high", "config"),
    [
        ({"p0": 60, "p1": 40}, {"retention.ms": "3600000"}),  # nothing waits
        ({"p0": 61, "p1": 41}, {}),  # the topic says no retention
        ({"p0": 61, "p1": 41}, {"retention.ms": "-1"}),  # for ever
    ],
)
def test_make_overview_nothing_expires(high: dict[str, int], config: dict[str, str]) -> None:
    """Where nothing waits, or nothing is known to be deleted, no time is made up."""
    settings = {"a": TopicSettings(2, 1, config=config)}

    found = make_overview(REPORT, receipt({P0: 1, P1: 1}), observed(**high), settings, "r.json")

    assert found["expires_at"] is None


@pytest.mark.parametrize(
    ("high", "lag"),
    [({"p0": 60, "p1": 40}, 0), ({"p0": 61, "p1": 40}, 1), ({"p0": 61, "p1": 30}, 1)],
)
def test_make_overview_lag(high: dict[str, int], lag: int) -> None:
    """A log that lost its end makes no other partition's lag smaller."""
    assert make_overview(REPORT, None, observed(**high), {}, "r.json")["lag"] == lag


def test_make_overview_unknown() -> None:
    """Without receipt and without Kafka, what isn't known is None, not 0."""
    found = make_overview(REPORT, None, {}, {}, "r.json")

    assert [found[key] for key in ("lag", "sealed_at", "newest_record", "expires_at")] == [None] * 4


def test_make_overview_rolled() -> None:
    """Before a generation's first seal, what waits isn't older than what the last one drained."""
    hour_ago = milliseconds(NOW - timedelta(hours=1))
    settings = {"a": TopicSettings(2, 1, config={"retention.ms": str(HOUR)}, retention_ms=2 * HOUR)}
    last = receipt({P0: hour_ago})

    found = make_overview(REPORT, None, observed(p0=70), settings, "r.json", last=last)

    assert (found["sealed_at"], found["newest_record"]) == (None, None)
    assert found["expires_at"] == "2026-11-22T13:00:00.000+00:00"


def test_make_overview_new_partition() -> None:
    """Of a partition that no batch has drained yet, all waits."""
    seen = observe({}, {TopicPartition("a", 2): KafkaBounds(0, 7, 7)}, "r", 0.0)

    assert make_overview(REPORT, None, seen, {}, "r.json")["lag"] == 7


@pytest.mark.parametrize(
    ("waiting_since", "expires_at"), [(None, "13:55"), (NOW.timestamp() - 3600, "13:00")]
)
def test_make_overview_no_newest_record(waiting_since: float | None, expires_at: str) -> None:
    """Without a drained record, what waits isn't older than the seal, or an open transaction."""
    settings = {"a": TopicSettings(2, 1, config={"retention.ms": str(2 * HOUR)})}
    stable = 70 if waiting_since is None else 60
    seen = observe({}, {P0: KafkaBounds(0, stable, 70)}, "r", waiting_since or 0.0)
    newest = {P0: None, P1: milliseconds(NOW)}

    found = make_overview(REPORT, receipt(newest), seen, settings, "r.json")

    assert found["newest_record"] == "2026-11-22T12:00:00.000+00:00"
    assert found["expires_at"] == f"2026-11-22T{expires_at}:00.000+00:00"


@each_of(
    ("high", "newest", "until"),
    [
        # Nothing waits: up to the validation.
        ({"p0": 60, "p1": 40}, {P0: 1, P1: 1}, "11:55"),
        ({"p0": 60, "p1": 40}, {}, "11:55"),
        # What waits in a partition came after the newest record of its own that was drained.
        ({"p0": 61, "p1": 40}, {P0: 3, P1: 9}, "09:00"),
        ({"p0": 61, "p1": 41}, {P0: 3, P1: 9}, "03:00"),
        # A record may be dated ahead; the seal isn't.
        ({"p0": 61, "p1": 40}, {P0: -5, P1: 1}, "11:55"),
        # Without a record of it, since the seal.
        ({"p0": 61, "p1": 40}, {P0: None, P1: 1}, "11:55"),
        # Nothing was drained of what waits, or nobody asked.
        ({"p0": 61, "p1": 40}, None, None),
        ({}, {P0: 1}, None),
    ],
)
def test_make_overview_drained_until(
    high: dict[str, int], newest: dict[TopicPartition, int | None] | None, until: str | None
) -> None:
    """The archive has what Kafka got up to a time, by the partition that is the furthest behind."""
    ago = {
        tp: None if hours is None else milliseconds(NOW - timedelta(hours=hours))
        for tp, hours in (newest or {}).items()
    }
    sealed = None if newest is None else receipt(ago)

    found = make_overview(REPORT, sealed, observed(**high), {}, "r.json")["drained_until"]

    assert found == (until and f"2026-11-22T{until}:00.000+00:00")


def test_make_overview_missing() -> None:
    """What findings of offsets are about is counted in offsets, also what was accepted."""
    place = {"topic": "a", "partition": 0}
    gaps = [
        place | {"start": 0, "end": 3, "reason": "lost", "acknowledged": False},
        place | {"start": 3, "end": 5, "reason": "expired", "acknowledged": False},
        place | {"start": 5, "end": 12, "reason": "expired", "acknowledged": True},
        place | {"start": 12, "end": 13, "reason": "unexplained", "acknowledged": True},
        place | {"start": 13, "end": 24, "reason": "unexplained", "acknowledged": False},
        place | {"start": 24, "end": 99, "reason": "control", "acknowledged": False},
    ]

    found = make_overview(REPORT | {"gaps": gaps}, None, {}, {}, "r.json")["missing"]

    assert found == {"offset_missing": 5, "offset_expired": 8, "offset_unexplained": 11}


@pytest.mark.parametrize("timestamp", [-1, 2**62])
def test_make_overview_odd_timestamp(timestamp: int) -> None:
    """A timestamp beyond the calendar is unknown, and stops nothing."""
    assert make_overview(REPORT, receipt({P0: timestamp}), {}, {}, "r")["newest_record"] is None


def test_overview_lag_before_first_batch(tmp_path: Path) -> None:
    """What lies before the start of a drain isn't behind, also while nothing was drained."""
    archive = Archive.at(str(tmp_path))
    archive.create(
        pipeline="p", cluster_id="cluster-1", topic_ids={"a": "id"}, source={"topics": ["a"]}
    )
    start = {P0: 70, P1: 5}
    archive.generation(1).write(
        starting_offsets=start,
        file_format="parquet",
        partition_by=["topic"],
        topic_ids={"a": "id"},
        reason="first",
    )
    logs = {P0: Log(first=70, end=70), P1: Log(end=8)}
    cluster = FakeCluster(logs, id="cluster-1", topic_ids={"a": "id"})

    report = validate_archive(archive, cluster)

    assert note_overview(archive, report, "reports/r.json")["lag"] == 3


@each_of(
    ("ids", "ends", "lag"),
    [
        ({"a": "1", "b": "2"}, {"a": 5, "b": 7}, 2),
        # Nothing of the new topic was drained.
        ({"a": "1", "b": "3"}, {"a": 5, "b": 1000}, None),
        ({"a": "1", "b": "3"}, {"a": 9, "b": 2}, None),
        ({"a": "4", "b": "3"}, {"a": 9, "b": 2}, None),
        # A topic that is gone has nothing that waits.
        ({"a": "1"}, {"a": 6}, 1),
    ],
)
def test_overview_lag_made_again(
    ids: dict[str, str], ends: dict[str, int], lag: int | None, tmp_path: Path
) -> None:
    """How much waits isn't known once a topic was made again, however many others are asked."""
    made = MadeArchive(tmp_path / f"{ids} {ends}", {"a": "1", "b": "2"})
    topics = {name: TopicPartition(name, 0) for name in "ab"}
    made.start_at(dict.fromkeys(topics.values(), 0))
    made.seal({tp: dense(0, 5) for tp in topics.values()})
    logs = {topics[name]: Log(end=end) for name, end in ends.items()}

    report = validate_archive(made.archive, FakeCluster(logs, id="cluster-1", topic_ids=ids))

    found = note_overview(made.archive, report, "reports/r.json")
    assert found["lag"] == lag
    assert (found["drained_until"] is None) is (lag is None)


@each_of(
    ("source", "lag"),
    [
        # Kafka doesn't have the offsets any more that a new partition lost.
        ({"topics": ["a"]}, 2 + 7),
        ({"topic_pattern": "a|b.*"}, 2 + 7 + 4),
        ({"topic_pattern": "a"}, 2 + 7),
        ({"assign": {"a": [0]}}, 2),
    ],
)
def test_overview_lag_added(source: dict[str, Any], lag: int, tmp_path: Path) -> None:
    """What waits in partitions and topics that a drain would read for the first time is counted."""
    made = MadeArchive(tmp_path / str(source), {"a": "1"})
    made.seal({P0: dense(0, 5)})
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"a": "1"},
        source=source,
        known=made.archive.snapshot().document,
    )
    new = {TopicPartition("b1", 0): Log(end=4), TopicPartition("c", 0): Log(end=1000)}
    logs = {P0: Log(end=7), P1: Log(first=3, end=10), **new}
    cluster = FakeCluster(logs, id="cluster-1", topic_ids={"a": "1"})

    report = validate_archive(made.archive, cluster)

    assert note_overview(made.archive, report, "reports/r.json")["lag"] == lag


def test_overview_lag_added_after_roll(tmp_path: Path) -> None:
    """A partition that a topic made again gets later waits whole, as its earlier log is another."""
    made = MadeArchive(tmp_path, {"a": "1"})
    made.seal({P0: dense(0, 50), P1: dense(0, 50)})
    made.open_generation(a="2")
    made.start_at({P0: 0})
    logs = {P0: Log(end=40), P1: Log(end=30)}
    cluster: Any = FakeCluster(logs, id="cluster-1", topic_ids={"a": "2"})

    report = validate_archive(made.archive, cluster)

    assert note_overview(made.archive, report, "reports/r.json")["lag"] == 40 + 30


def test_overview_lag_made_again_rolled(tmp_path: Path) -> None:
    """After the roll for a topic that was made again, all that its new log has waits."""
    made = MadeArchive(tmp_path, {"a": "1"})
    made.seal({P0: dense(0, 50)})
    made.open_generation(a="2")
    made.start_at({P0: 0})
    cluster: Any = FakeCluster({P0: Log(end=40)}, id="cluster-1", topic_ids={"a": "2"})

    report = validate_archive(made.archive, cluster)

    assert note_overview(made.archive, report, "reports/r.json")["lag"] == 40


def test_read_overview(tmp_path: Path) -> None:
    """What was written is read; without a validation there is none, and damage is named."""
    root = UPath(tmp_path)
    assert read_overview(root) is None
    assert read_overview(root / "no folder") is None

    overview = make_overview(REPORT, None, {}, {}, "r.json")
    write_overview(root, overview)
    assert read_overview(root) == overview

    (tmp_path / "overview.json").write_text("{}")
    with pytest.raises(ArchiveError, match="has no pipeline, verdict, validated_at"):
        read_overview(root)


@each_of("name", ["validated_at", "sealed_at", "newest_record", "expires_at"])
@each_of("time", ["yesterday", "2026-11-29T10:00:00", "9" * 40, ""])
def test_read_overview_time_damaged(
    tmp_path_factory: pytest.TempPathFactory, name: str, time: str
) -> None:
    """A text that is no time, or says no zone, is damage that is named."""
    root = UPath(tmp_path_factory.mktemp("archive"))
    overview = make_overview(REPORT, None, {}, {}, "r.json")
    (root / "overview.json").write_text(json.dumps(overview | {name: time}))

    with pytest.raises(ArchiveError, match=name):
        read_overview(root)


class Words(HTMLParser):
    """The text of each row of a page's table, and the page's tags and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.names: set[str] = set()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open) and "title" not in self.open:
            self.rows[-1][-1] += data


EVIL = """<script>alert(1)</script><img src=x> " onload="x" ' onload='x"""


def row(name: str, **keys: Any) -> ArchiveRow:
    keys = {"looked": look_of(keys.get("overview")), **keys}
    return ArchiveRow(name=name, archive=f"/archives/{name}", link=f"/dags/drain_{name}", **keys)


def overview(**keys: Any) -> dict[str, Any]:
    sealed = REPORT | {"receipts": {"unsealed": 0}}
    return make_overview(sealed, receipt({P0: milliseconds(NOW)}), {}, {}, "r.json") | keys


def test_overview_page_order() -> None:
    """What needs a look comes first; each archive has its row."""
    rows = [
        row("fine", overview=overview()),
        row("late", overview=overview(expires_at=(NOW + timedelta(hours=23)).isoformat())),
        row("new"),
        row("away", problem="this server may not read it"),
        row("broken", overview=overview(verdict="findings", findings={"file_missing": 2})),
    ]

    page = overview_page(rows, NOW)

    heads, *cells = Words(page).rows
    said = "the manifest lists a data file that doesn't exist"
    ready = "ready95 records, the newest of 2026-11-22 12:00:00 UTC, validated 5 min 0 s ago"
    assert [cell[:3] for cell in cells] == [
        [*("broken", f"not ready{said} (file_missing, 2)", f"findings{said} (2 findings)")],
        [*("away", "unknownthis server may not read it", "unreadablethis server may not read it")],
        [*("new", "unknownit was never validated", "not validated")],
        [*("late", ready, "complete")],
        [*("fine", ready, "complete")],
    ]
    assert all(len(cell) == len(heads) for cell in cells)
    assert "5 archives: 1 not ready, 2 unknown, 2 ready, 1 needing attention<" in page
    assert "285 records in 12.0 MB" in page


#: The validation was five minutes ago.
EARLY, BEFORE, SINCE = ((NOW - timedelta(minutes=ago)).isoformat() for ago in (40, 30, 1))


@pytest.mark.parametrize(
    ("rows", "headline", "kind"),
    [
        ([row("a", overview=overview())], "1 archive: 1 ready<", ""),
        (
            [row("a", overview=overview()), row("b")],
            "2 archives: 1 unknown, 1 ready<",
            " late",
        ),
        ([row("a", runs=[Run("failed", "", "")])], "1 archive: 1 unknown<", " findings"),
        ([row("a", runs=[Run("running", "", "")])], "1 archive: 1 unknown<", " late"),
        ([row("a", overview=overview(), looked=None)], "1 archive: 1 unknown<", " late"),
        (
            [row("a", overview=overview(), runs=[Run("failed", "", "", EARLY, BEFORE)])],
            "1 archive: 1 ready<",
            "",
        ),
        *(
            (
                [row("a", overview=overview(), runs=[run])],
                "1 archive: 1 ready, 1 needing attention<",
                " findings",
            )
            for run in (
                Run("failed", "", "", SINCE, SINCE),
                # Validated by hand while it ran.
                Run("failed", "", "", BEFORE, SINCE),
                Run("failed", "", "", BEFORE),
                Run("success", "", "", BEFORE, SINCE),
            )
        ),
        # Its own validation succeeded: another archive's didn't.
        *(
            (
                [row("a", overview=overview(), runs=[Run(state, "", "", BEFORE, SINCE, True)])],
                "1 archive: 1 ready<",
                "",
            )
            for state in ("failed", "success")
        ),
    ],
)
def test_overview_page_headline(rows: list[ArchiveRow], headline: str, kind: str) -> None:
    """The headline is green only when each archive is ready, and no run has failed since."""
    page = overview_page(rows, NOW)

    assert f'<p class="verdict{kind}">{headline}' in page


def test_overview_page_words() -> None:
    """The figures are said as people say them."""
    seen = overview(
        lag=1_234,
        newest_record=(NOW - timedelta(minutes=3)).isoformat(),
        expires_at=(NOW + timedelta(hours=5)).isoformat(),
        gaps={"control": 2, "lost": 1},
    )
    runs = [
        Run("success", "success: r1", "/dags/drain_a/runs/r1", EARLY, EARLY, True),
        Run("failed", "f", "/x", EARLY, BEFORE),
    ]

    _, cells = Words(page := overview_page([row("a", overview=seen, runs=runs)], NOW)).rows

    assert cells[0:1] + cells[2:] == [
        *("a", "complete", "", "1,234 offsets", "3 min ago", "5 min ago", "in 5 h"),
        *("95", "4.0 MB", "3", "2 control, 1 lost"),
    ]
    assert '<span class="warning" title="2026-11-22 17:00:00 UTC">in 5 h</span>' in page
    assert 'href="/dags/drain_a/runs/r1"' in page


def test_overview_page_escapes() -> None:
    """Names are others' choice: they are shown, never run."""
    seen = overview(verdict="findings", findings={EVIL: 1}, gaps={EVIL: 1})
    runs = [Run(EVIL, EVIL, EVIL)]
    look = look_of(seen, refused=EVIL, pipeline=EVIL)
    rows = [
        ArchiveRow(
            *(EVIL, EVIL, EVIL), page=EVIL, report=EVIL, overview=seen, runs=runs, looked=look
        ),
        ArchiveRow(EVIL, EVIL, EVIL, page=EVIL, problem=EVIL, runs=runs),
    ]

    page = overview_page(rows, NOW, links={"home": EVIL, "restores": EVIL, "json": EVIL})

    assert page.count("<script>") == 1
    assert not Words(page).names & {"img", "onload"}


def test_overview_page_empty() -> None:
    """Without a pipeline, the page says how to make one."""
    page = overview_page([], NOW)

    assert '<p class="verdict waiting">No archives</p>' in page
    assert "There is no pipeline that you have access to" in page


def test_overview_lag_topic_deleted(tmp_path: Path) -> None:
    """A topic that was deleted since it was listed doesn't end a validation."""

    class Listing(FakeCluster):
        def topic_names(self) -> list[str]:
            return [*super().topic_names(), "b9"]

    made = MadeArchive(tmp_path / "archive", {"a": "1"})
    made.seal({P0: dense(0, 5)})
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"a": "1"},
        source={"topic_pattern": "a|b.*"},
        known=made.archive.snapshot().document,
    )
    cluster: Any = Listing({P0: Log(end=7)}, id="cluster-1", topic_ids={"a": "1"})

    report = validate_archive(made.archive, cluster)

    assert note_overview(made.archive, report, "reports/r.json")["lag"] == 2


@pytest.mark.parametrize("factor", [2, 1000])
def test_make_overview_from_the_future(factor: int) -> None:
    """A record that is dated ahead doesn't make Kafka keep those behind it."""
    settings = {"a": TopicSettings(2, 1, config={"retention.ms": str(3 * HOUR)})}
    newest = receipt({P0: factor * milliseconds(NOW)})

    found = make_overview(REPORT, newest, observed(p0=70), settings, "r.json")

    assert found["expires_at"] == "2026-11-22T14:55:00.000+00:00"
