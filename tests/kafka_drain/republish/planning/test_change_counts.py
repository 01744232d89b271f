"""Plans of what is left out and changed: numbers, digests, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ConfigError, DataFileError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.spec import ChangeSpec
from kafka_drain.republish.planning.change_counts import (
    Outcome,
    count_outcomes,
    note_of,
    refuse_no_hits,
)
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_planner import cluster_with

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def value_of(tp: TopicPartition, offset: int) -> bytes:
    return b'{"n": %d, "p": %d, "s": "x"}' % (offset, tp.partition)


def plan_of(folder: Path, **asked: Any) -> RepublishPlan:
    """Plan a republish of three files of each partition, with ten records each."""
    made = MadeArchive(folder / "archive", {"orders": "id"})
    for start in (0, 10, 20):
        made.seal(dict.fromkeys((P0, P1), dense(start, start + 10)), value=value_of)
    # A closed generation needs no checkpoint of Spark's.
    made.open_generation()
    request = RepublishRequest(target_topic="copy", **asked)
    change = Change(ChangeSpec(request.wanted)) if request.wanted else None
    cluster: Any = cluster_with(copy=2)
    return make_plan(made.archive.snapshot(), cluster, request, run="r", now=NOW, change=change)


def test_plan_changed(tmp_path: Path) -> None:
    """Files and partitions of which nothing is left aren't in the plan; the rest is counted."""
    plan = plan_of(
        tmp_path, filters=["$.p=1", "not $.n=3"], mask=["$.s"], offsets=["orders:1:0-15"]
    )

    change = plan.change
    assert change is not None
    [shard] = plan.shards
    assert (shard.source, plan.records) == (P1, 14)
    assert [(file.first, file.last, file.records) for file in shard.files] == [
        (0, 9, 9),
        (10, 14, 5),
    ]
    assert (change["selected"], change["dropped"], change["changed"]) == (15, 1, 14)
    [of_shard] = change["shards"]
    assert (of_shard["dropped"], of_shard["changed"]) == (1, 14)
    assert "of 15 selected records 1 are left out, and 14 are changed" in plan.notes
    assert "field $['s']: replaced 14 times" in plan.notes
    again = RepublishPlan.parse(plan.to_bytes())
    assert (again.change, again.to_bytes()) == (change, plan.to_bytes())
    assert plan.summary()["change"].keys() >= {"dropped", "changed", "mask"}
    assert not plan.summary()["change"].keys() & {"schemas", "shards"}


def test_plan_nothing_left(tmp_path: Path) -> None:
    """If everything is left out, nothing is planned, and a field that no record has is no error."""
    plan = plan_of(tmp_path, filters=["$.p=5"], mask=["$.none"])

    assert (plan.shards, plan.records) == ((), 0)
    assert plan.change is not None
    assert plan.change["dropped"] == 60


def test_plan_unchanged(tmp_path: Path) -> None:
    """Without any such option, a plan is as it was: nothing of it in the document."""
    plan = plan_of(tmp_path)

    assert plan.change is None
    assert b'"change"' not in plan.to_bytes()
    assert b'"format_version": 4' not in plan.to_bytes()


def test_plan_other_content_other_digest(tmp_path: Path) -> None:
    """Another mask text changes the plan's digests."""
    plans = [plan_of(tmp_path / text, mask=[f"$.s={text}"]) for text in ("a", "b")]
    digests = [[s["digest"] for s in plan.change["shards"]] for plan in plans if plan.change]
    assert len({*digests[0], *digests[1]}) == 4


@pytest.mark.parametrize(
    ("asked", "is_refused"),
    [
        ({"filters": ["not $.n=3"]}, False),
        ({"drop_headers": ["a\0b"]}, False),
        ({"mask": ["$.s"]}, True),
    ],
)
def test_plan_header_name_with_nul(asked: dict[str, Any], is_refused: bool, tmp_path: Path) -> None:
    """A header that Kafka's client can't send refuses a plan only if it would be sent."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id"})

    def headers(tp: TopicPartition, offset: int) -> Any:
        return [{"key": "a\0b", "value": b"1"}] if offset == 3 else None

    made.seal({P0: dense(0, 10)}, value=value_of, headers=headers)
    made.open_generation()
    request = RepublishRequest(target_topic="copy", **asked)
    change = Change(ChangeSpec(request.wanted))
    cluster: Any = cluster_with(copy=2)

    def plan() -> RepublishPlan:
        return make_plan(
            made.archive.snapshot(), cluster, request, run="r", now=NOW, change=change, apply=True
        )

    if is_refused:
        with pytest.raises(
            SourceRecordError, match=r"offset 3 of orders-0 has .*nothing was sent"
        ) as refused:
            plan()
        assert "at_least_once" not in str(refused.value)
    else:
        assert plan().records >= 9


def test_refuse_no_hits() -> None:
    """A field that no record has is refused; a follower's next records may have none."""
    with pytest.raises(ConfigError, match="no record that is sent has b, c: is the name right"):
        refuse_no_hits(["a", "b", "c"], {"a": 1, "b": 0}, follows=False)
    assert refuse_no_hits(["a", "b"], {"a": 1000}, follows=True) == [
        "field a: replaced 1,000 times",
        "WARNING no record that is sent has b",
    ]
    assert refuse_no_hits([], {}, follows=False) == []
    with pytest.raises(ConfigError, match="no record that is sent has header:auht: is the name"):
        refuse_no_hits([], {}, ["auht"], {"auth": 1}, follows=False)
    assert refuse_no_hits([], {}, ["a", "b"], {"a": 1}, follows=True) == [
        "header a: left out 1 times",
        "WARNING no record that is sent has header:b",
    ]


@pytest.mark.parametrize("condition", ["$.dleted=1", "not $.dleted=1", "header:x=1", "key:$.id=1"])
def test_plan_filter_unseen(condition: str, tmp_path: Path) -> None:
    """A filter that names what no selected record has is warned of: all or none would be sent."""
    plan = plan_of(tmp_path, filters=["$.p=1", condition])

    [warning] = [note for note in plan.notes if note.startswith("WARNING")]
    assert warning.startswith("WARNING no selected record has ")
    assert "is the name right?" in warning


def test_plan_filter_seen(tmp_path: Path) -> None:
    """A filter that no record fulfils, though they have what it names, isn't warned of."""
    plan = plan_of(tmp_path, filters=["$.p=7", "not $.n=3"])

    assert not [note for note in plan.notes if note.startswith("WARNING")]


def test_plan_drop_header_unseen(tmp_path: Path) -> None:
    """A header to leave out that no record has is refused, as a misspelt one would be sent."""
    with pytest.raises(ConfigError, match="no record that is sent has header:auht: is the name"):
        plan_of(tmp_path, drop_headers=["auht"])


def test_note_of() -> None:
    """The note says who changes records."""
    spec: Any = {"function": {"name": "m:f", "sha256": "0123456789abcdef"}}
    total = Outcome(1000, 2000, 30) + Outcome(1, 1, 1, 1, 1)
    assert note_of(spec, total) == (
        "of 3,002 selected records 2,001 are left out, and 31 are changed by m:f (0123456789ab)"
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("bounds", "both"),
    [
        ([(3, 9), (2, 8)], (2, 9)),
        ([(0, 0), (5, 7)], (0, 7)),
        ([(3, 9), (None, None)], (3, 9)),
        ([(None, None), (None, None)], (None, None)),
    ],
)
def test_outcome_times(
    bounds: list[tuple[int | None, int | None]], both: tuple[int | None, int | None], turned: bool
) -> None:
    """The time of what is sent spans all files; one whose records have none doesn't count."""
    one, two = (Outcome(1, oldest_ms=oldest, newest_ms=newest) for oldest, newest in bounds)

    total = two + one if turned else one + two

    assert (total.sent, total.oldest_ms, total.newest_ms) == (2, *both)


def test_count_outcomes_unreadable(tmp_path: Path) -> None:
    """A file that can't be read is named as the archive names it."""
    (tmp_path / "a.parquet").write_bytes(b"damaged")
    file = ShardFile("a.parquet", "parquet", 7, "", 0, 9, 10, True)
    changer = Change(ChangeSpec(RepublishRequest(target_topic="copy", mask=["$.s"]).wanted)).open()

    with pytest.raises(DataFileError, match=r"^a\.parquet: "):
        count_outcomes(UPath(tmp_path), [(file, {P0: Rows()})], changer)
