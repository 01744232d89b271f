"""A validation that is suspended while another process changes the generation that it looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import LockedError
from kafka_drain.findings import Reason
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof import validation
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import END, add_batch, golden_cluster, open_next, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense


@pytest.mark.parametrize("step", ["prove", "retain"])
@pytest.mark.parametrize("changed", ["opened again", "closed"])
def test_validate_generation_changed(
    changed: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it knows of the generation is of before: it seals nothing, and names nothing."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 10)
    journal = archive.snapshot().journal.newest
    go_on = getattr(validation, step)

    def meanwhile(*arguments: object, **named: object) -> object:
        if changed == "closed":
            opened = archive.generation(3)
            document = archive.generation(2).read_document()
            document.write(opened.folder / "generation.json")
        else:
            open_next(archive, "avro", ["topic"])
        return go_on(*arguments, **named)

    with monkeypatch.context() as suspended:
        suspended.setattr(validation, step, meanwhile)
        with pytest.raises(LockedError, match=f"0002 was {changed} while it was being validated"):
            validate_archive(archive, golden_cluster())  # type: ignore[arg-type]

    found = Archive(archive.root).snapshot()
    assert not list((archive.root / "generations/0002/receipts").glob("*"))
    assert found.journal.newest == journal


def test_validate_beside_maintenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compaction replaces and removes meanwhile isn't missing."""
    tp, made = TopicPartition("t", 0), MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({tp: dense(0, 10)})
    made.open_generation()
    look = validation.check_windows

    def meanwhile(*given: object, **named: object) -> object:
        seen = look(*given, **named)  # type: ignore[arg-type]
        made.seal_window("compact_0001", {tp: dense(0, 10)}, [file.path], kind="compact")
        (made.root / file.path).unlink()
        return seen

    monkeypatch.setattr(validation, "check_windows", meanwhile)

    report = validate_archive(made.archive, None, writes=False)

    reasons = {f.reason for f in report.findings}
    assert not reasons & {Reason.FILE_MISSING, Reason.OFFSET_MISSING}
