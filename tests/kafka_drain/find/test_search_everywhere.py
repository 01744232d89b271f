"""Searches in an archive that has been through everything: each criterion, against brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.errors import ConfigError
from kafka_drain.find import plan
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.intervals import Interval, time_text
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance.compact import plan_compactions, run_compaction
from kafka_drain.maintenance.erasure_request import ErasureRequest
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.maintenance import test_erase
from tests.kafka_drain.maintenance.test_erase import TP, erase, pipeline_of, rewrite

FIRST_MS, END, BATCH = 1_767_000_000_000, 60, 5
#: Erased: of a backfilled window, and of a closed generation's file.
GONE = (3, 52)


@dataclass(frozen=True)
class Row:
    """What was written at an offset; the key is the offset in decimal."""

    offset: int

    @property
    def batch(self) -> int:
        """The number of its batch."""
        return self.offset // BATCH

    @property
    def columns(self) -> dict[str, Any]:
        """What its batch has in common."""
        content = b"red" if self.batch % 3 else b"\xff"
        value = b'{"batch": %d, "in": {"colour": "c%d"}}' % (self.batch, self.batch % 2)
        return {"value": value, "headers": [{"key": "paint", "value": content}]}


ROWS = [Row(offset) for offset in range(END) if offset not in GONE]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Backfilled windows, a compacted file, files without erased records, closed generations."""
    made = MadeArchive(tmp_path_factory.mktemp("everywhere") / "a", {"flights": "id-1"})

    def seal(start: int, end: int) -> None:
        for first in range(start, end, BATCH):
            made.seal({TP: dense(first, first + BATCH)}, **Row(first).columns)

    seal(20, 40)
    made.open_generation()
    seal(40, END)
    made.open_generation()
    for first in range(0, 20, BATCH):
        start = NOW + timedelta(days=first // BATCH)
        interval = Interval(start, start + timedelta(days=1))
        more: dict[str, Any] = {
            "kind": "backfill",
            "interval": [start.isoformat(), interval.end.isoformat()],
            "topics": {"flights": "id-1"},
        }
        rows = {TP: dense(first, first + BATCH)}
        made.seal_window(interval.key, rows, columns=Row(first).columns, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compacting, "prepare_application", test_erase.application)
        snapshot = made.archive.snapshot()
        planned = plan_compactions(snapshot, snapshot.generations[:1], 1 << 20)
        [compaction] = [one for one in planned if one.files[0].path.startswith("generations")]
        pipeline = pipeline_of(made.root)
        run_compaction(made.archive, compaction, pipeline, rewrite, run="t")
        keys = frozenset(b"%d" % offset for offset in GONE)
        erased = erase(made.root, ErasureRequest("r", "b", keys=keys), END)
    assert erased["erased"] == len(GONE)
    return made.archive


def found(archive: Archive, **given: Any) -> list[int]:
    """Return the offsets of what is found."""
    matches = Search(archive, Criteria.of(**given), limit=1000).matches()
    return [match.position.offset for match in matches]


def at(offset: int) -> str:
    """Return the time of an offset as users write it."""
    return time_text(FIRST_MS + offset)


WANTED: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
    ({}, lambda row: True),
    ({"keys": ["7", "33", "58", "3"]}, lambda row: row.offset in (7, 33, 58)),
    ({"keys": ["hex:3337"]}, lambda row: row.offset == 37),
    ({"headers": ["paint=red"]}, lambda row: row.batch % 3 != 0),
    ({"headers": ["paint=hex:ff"]}, lambda row: row.batch % 3 == 0),
    ({"headers": ["paint=red", "paint=hex:ff"]}, lambda row: False),
    ({"value_contains": '"batch": 1'}, lambda row: row.batch in (1, 10, 11)),
    ({"value_contains": "hex:6331"}, lambda row: row.batch % 2 == 1),
    ({"jsonpath": "$.in.colour=c0"}, lambda row: row.batch % 2 == 0),
    ({"jsonpath": "$.batch=6"}, lambda row: row.batch == 6),
    ({"from_time": at(18)}, lambda row: row.offset >= 18),
    ({"to_time": at(43)}, lambda row: row.offset < 43),
    ({"from_time": at(2), "to_time": at(22)}, lambda row: 2 <= row.offset < 22),
    ({"offset": "3"}, lambda row: False),
    ({"offset": "17-23"}, lambda row: 17 <= row.offset < 23),
    (
        {"offset": "2-50", "from_time": at(8), "headers": ["paint=red"], "jsonpath": "$.in"},
        lambda row: 8 <= row.offset < 50 and row.batch % 3 != 0,
    ),
    ({"partitions": ["1"]}, lambda row: False),
]


def test_search_everywhere(archive: Archive) -> None:
    """Each criterion finds what brute force finds, in every kind of file, and nothing erased."""
    owners = {file.path.partition("/data/")[0] for file in archive_files(archive.snapshot())}
    assert owners >= {"windows/compact_0001", "generations/0002"}
    assert len([owner for owner in owners if owner.startswith("windows/2026")]) == 3
    assert any(owner.startswith("windows/erase") for owner in owners)

    for given, is_wanted in WANTED:
        where = {"topics": ["flights"], "partitions": ["0"]} if "offset" in given else {}
        expected = [row.offset for row in ROWS if is_wanted(row)]
        assert found(archive, **where, **given) == expected, given


def test_search_everywhere_pages(archive: Archive) -> None:
    """Page by page, each record is there once, across windows, generations and what was erased."""
    for limit in (1, 7, 16):
        one, seen = Search(archive, Criteria.of(), limit=limit), []
        while True:
            seen += [match.position.offset for match in one.matches()]
            if one.is_complete:
                break
            one = Search(archive, Criteria.of(), limit=limit, after=one.through)
        assert seen == [row.offset for row in ROWS]


def test_search_everywhere_scan(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """A scan has to be asked for, ends at its limit, and says how far it got, of how much."""
    criteria = Criteria.of(value_contains="batch")
    monkeypatch.setattr(plan, "SCAN_BYTES", 1000)

    with pytest.raises(ConfigError, match=r"MB in .* files would have to be read"):
        list(Search(archive, criteria).matches())
    one = Search(archive, criteria, limit=20, scan=True)
    assert len(list(one.matches())) == 20
    assert (one.is_complete, said) == (False, [])
    one = Search(archive, criteria, after=one.through, scan=True)
    assert len(list(one.matches())) == len(ROWS) - 20
    assert "39 of 39 records" in said[-1]
