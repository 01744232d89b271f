"""What a cut-over's steps saw, written and read back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.cut_overs import read_cut_over, write_step
from kafka_drain.archive.documents import CutOverDocument
from kafka_drain.errors import ArchiveError

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def step(name: str, **changes: Any) -> CutOverDocument:
    """What a step saw."""
    return CutOverDocument.model_validate(
        {
            "format_version": 1,
            "run_name": "cut-over",
            "step": name,
            "verdict": "passed",
            "run": "terminal",
            "started_at": NOW.isoformat(),
            "finished_at": NOW.isoformat(),
            "source_cluster_id": "a",
            "target_cluster_id": "b",
            "ends": [{"topic": "t", "partition": 0, "offset": 5}],
            "lag": 0,
            "records": 5,
            "runs": 1,
            "last_run": "follow-cut-over-0123456789ab.000001",
            "groups": None,
            "problems": [],
            "notes": [],
            "back": ["turn the producers on again"],
            **changes,
        }
    )


def test_read_cut_over(tmp_path: Path) -> None:
    """Steps are read in the order in which they ended, those of each cut-over apart."""
    root = UPath(tmp_path)
    written = [step("mirror", verdict="refused", problems=["late"]), step("mirror"), step("back")]
    places = [
        write_step(root, "one", document, NOW + timedelta(microseconds=at))
        for at, document in enumerate(written)
    ]
    write_step(root, "two", step("mirror"), NOW)
    (tmp_path / "cut-over" / "one" / ".unfinished.tmp").write_text("{")

    assert places[1] == "cut-over/one/20260101T000000000001Z-mirror.json"
    assert read_cut_over(root, "one") == written
    assert read_cut_over(root, "none") == []


def test_read_cut_over_changed(tmp_path: Path) -> None:
    """A document that was changed decides nothing: it is refused."""
    root = UPath(tmp_path)
    where = write_step(root, "one", step("mirror"), NOW)
    path = tmp_path / where
    path.write_text(path.read_text().replace('"passed"', '"maybe"'))
    with pytest.raises(ArchiveError, match="verdict"):
        read_cut_over(root, "one")


def test_read_cut_over_misplaced(tmp_path: Path) -> None:
    """A step's document that is a copy of another step's is refused."""
    root = UPath(tmp_path)
    one, other = (
        tmp_path / write_step(root, "one", step(name), NOW) for name in ("mirror", "back")
    )
    other.write_bytes(one.read_bytes())

    with pytest.raises(ArchiveError, match="of step 'mirror'"):
        read_cut_over(root, "one")
