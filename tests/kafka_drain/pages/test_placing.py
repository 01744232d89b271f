"""Which sealed offsets findings are about: told by real validations of damaged archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.placing import Placed, place_findings
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import P0, P1, sealed_copy


def placed(archive: Archive) -> Placed:
    """Return where lies what a validation finds; what a second one finds lies there too."""
    receipts = list(archive.generation(1).receipts())
    first, second = (
        place_findings(validate_archive(archive, None).to_dict(), receipts) for _ in range(2)
    )
    assert first == second
    return first


def newest(archive: Archive) -> Receipt:
    return list(archive.generation(1).receipts())[-1]


def test_place_findings_nothing_wrong(tmp_path: Path) -> None:
    """Where nothing was found, nothing is damaged."""
    assert placed(sealed_copy(tmp_path / "a")) == Placed()


def test_place_findings_file_lost(tmp_path: Path) -> None:
    """A file that is gone damages the partitions that it held, of the receipt that sealed it."""
    archive = sealed_copy(tmp_path / "a")
    receipt = newest(archive)
    [lost] = [f for f in receipt.files if {c.tp for c in f.contents} == {P1}]
    (tmp_path / "a" / lost.path).unlink()

    assert placed(archive) == Placed(frozenset({(1, receipt.name, P1)}), is_complete=True)


def test_place_findings_elsewhere(tmp_path: Path) -> None:
    """What is found of a manifest may be about any offset."""
    archive = sealed_copy(tmp_path / "a")
    (tmp_path / "a" / "generations/0001/data/_spark_metadata/12").write_bytes(b"")

    assert not placed(archive).is_complete


def finding(where: str, reason: str = "content_changed", severity: str = "error") -> dict[str, str]:
    return {"where": where, "reason": reason, "severity": severity, "detail": ""}


def gap(start: int, end: int, reason: str) -> dict[str, Any]:
    return {"topic": P0.topic, "partition": 0, "start": start, "end": end, "reason": reason}


@pytest.mark.parametrize(
    ("found", "gaps", "wanted", "is_complete"),
    [
        (finding("generations/0001/receipts/000000000013.json"), [], {P0, P1}, True),
        (finding("anything", severity="warning"), [], set(), True),
        (finding("windows/w/data/a.parquet", "file_missing"), [], set(), False),
        (finding(str(P0), "offset_missing"), [gap(40, 41, "lost")], {P0}, True),
        (finding(str(P0), "offset_missing"), [gap(90, 99, "unknown")], set(), True),  # not sealed
        (finding(str(P0), "offset_missing"), [gap(40, 41, "control")], set(), False),
        (finding(str(P0), "offset_missing"), [], set(), False),
        (finding(str(P1), "offset_missing"), [gap(40, 41, "lost")], set(), False),
        (finding(str(P0), "stalled"), [gap(40, 41, "lost")], set(), False),
    ],
)
def test_place_findings(
    tmp_path: Path,
    found: dict[str, str],
    gaps: list[dict[str, Any]],
    wanted: set[TopicPartition],
    is_complete: bool,
) -> None:
    """A finding is placed by its file, its receipt or its missing offsets; else it may be any."""
    receipt = newest(sealed_copy(tmp_path / "a"))

    seen = place_findings({"findings": [found], "gaps": gaps}, [receipt])

    assert seen == Placed(frozenset((1, receipt.name, tp) for tp in wanted), is_complete)
