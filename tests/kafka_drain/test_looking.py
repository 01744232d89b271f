"""What can't be read now is no word on an archive; what is damaged is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_drain import looking
from kafka_drain.archive.readiness import Readiness
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.clock import utc_now
from kafka_drain.errors import ManifestInvalidError, StoreUnavailableError
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import golden_cluster, sealed_copy


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StoreUnavailableError("no answer"), Readiness.UNKNOWN),
        (PermissionError("may not read"), Readiness.UNKNOWN),
        (ManifestInvalidError("a file is missing"), Readiness.NOT_READY),
    ],
)
def test_look_at_files(
    error: Exception, state: Readiness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails while its files are listed doesn't make an archive damaged."""
    archive = sealed_copy(tmp_path / "archive")
    note_overview(archive, validate_archive(archive, golden_cluster()), "reports/r.json")

    def files(snapshot: Snapshot) -> None:
        raise error

    monkeypatch.setattr(looking, "archive_files", files)
    judged = looking.look_at(archive, "here").judge(utc_now())

    assert (judged.state, judged.why) == (state, [str(error)])


def test_look_at_newer_release(tmp_path: Path) -> None:
    """An archive of a newer release isn't damaged."""
    archive = sealed_copy(tmp_path / "archive")
    path = tmp_path / "archive" / "archive.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 999}))

    judged = looking.look_at(archive, "here").judge(utc_now())

    assert judged.state is Readiness.UNKNOWN
    assert "use the release that wrote it" in judged.sentence
