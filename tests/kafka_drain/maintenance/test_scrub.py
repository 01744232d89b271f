"""Sealed files are read again by maintenance: what is damaged is found, and found again."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.scrubs import WHERE, OldestRead, note_all_read, oldest_read
from kafka_drain.archive.status import read_overview
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError, ManifestInvalidError, StoreUnavailableError
from kafka_drain.maintenance import scrub as scrubbing
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.maintenance.scrub import Scrub, scrub
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

TP = TopicPartition("flights", 0)
DAY = timedelta(days=1)
FILES = 10


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of ten batches, of one file each, sealed now."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for number in range(FILES):
        made.seal({TP: dense(10 * number, 10 * number + 10)})
    return made


def scrubbed(made: MadeArchive, days: float, scrub_days: int | None = 30) -> Scrub:
    """Scrub an archive so many days after it was sealed."""
    return scrub(made.archive, scrub_days, NOW + days * DAY)


def maintained(made: MadeArchive, days: float, **keys: Any) -> dict[str, Any]:
    """Maintain an archive without anything else to do."""
    keys = {"max_generation_days": 10_000, **keys}
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root), **keys)
    cluster: Any = None
    clock = lambda: NOW + days * DAY  # noqa: E731
    return run_maintenance(pipeline, cluster, lambda _: None, run="t", wait_seconds=0, clock=clock)


def flip(made: MadeArchive, number: int) -> tuple[Path, bytes]:
    """Flip a bit of a sealed file, whose size stays; return the file and what it was."""
    path = Path(str(made.root / made.files()[number].path))
    was = path.read_bytes()
    path.write_bytes(was[:50] + bytes([was[50] ^ 1]) + was[51:])
    return path, was


def document(made: MadeArchive) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.root / WHERE).read_bytes())
    return found


def test_scrub_evenly(made: MadeArchive) -> None:
    """Each file is read once in 30 days, a third of them in ten."""
    read = [scrubbed(made, day).files for day in range(1, 61)]

    assert (sum(read[:10]), sum(read[:30]), sum(read)) == (3, 10, 20)
    assert max(read) == 1
    oldest = oldest_read(made.root, NOW + 60 * DAY)
    assert oldest is not None
    assert oldest.age is not None
    assert timedelta(days=25) < oldest.age <= timedelta(days=30)
    assert not oldest.doubt
    assert oldest.words.startswith("every sealed byte read within 2")


def test_run_maintenance_damage(made: MadeArchive) -> None:
    """A flipped bit is found in time, each night again, and no longer once it is mended."""
    note_overview(made.archive, validate_archive(made.archive, None), "reports/a.json")
    path, was = flip(made, 4)
    found, said = list[int](), ""
    for day in range(1, 31):
        try:
            maintained(made, day)
        except ManifestInvalidError as error:
            found.append(day)
            said = str(error)
            if len(found) == 3:
                break

    assert "is not complete: file_changed 1\n" in said
    assert f"{path.name}: its SHA-256 doesn't match its receipt" in said
    assert "kafka-drain repair" in said
    assert found == list(range(found[0], found[0] + 3))
    assert found[0] <= 30
    assert document(made)["damaged"] == [str(path.relative_to(str(made.root)))]
    overview = read_overview(made.root)
    assert overview is not None
    assert overview["verdict"] == "findings"
    # A validation that doesn't read all bytes, and the repair that it plans, see it as well.
    assert validate_archive(made.archive, None).damaged
    # Others are read all the same, and this one isn't counted as read.
    for day in range(found[-1] + 1, found[-1] + 31):
        with pytest.raises(ManifestInvalidError, match="file_changed 1"):
            maintained(made, day)
    noted = document(made)
    assert len(noted["read_at"]) == FILES - 1
    assert datetime.fromisoformat(noted["oldest_at"]) == NOW.replace(microsecond=0)

    path.write_bytes(was)
    maintained(made, found[-1] + 31)

    assert document(made)["damaged"] == []
    assert len(document(made)["read_at"]) == FILES


def test_run_maintenance_missing(made: MadeArchive) -> None:
    """A file that is gone is found too; the figures of a run say what it has read."""
    figures = maintained(made, 3)
    assert (figures["scrubbed_files"], figures["scrubbed_bytes"]) == (0, 0)
    figures = maintained(made, 6)
    assert figures["scrubbed_files"] == 1
    assert figures["scrubbed_bytes"] == made.files()[0].bytes
    assert figures["oldest_read_at"] == NOW.isoformat(timespec="seconds")
    Path(str(made.root / made.files()[1].path)).unlink()

    found = scrubbed(made, 9)

    assert [str(finding.reason) for finding in found.damaged.values()] == ["file_missing"]


def test_scrub_replaced(made: MadeArchive) -> None:
    """A damaged file that a window stands for is no longer looked at, and the window is."""
    flip(made, 0)
    assert scrubbed(made, 31).damaged
    made.seal_window(
        "repair_1", {TP: dense(0, 10)}, [made.files()[0].path], sealed_at=NOW.isoformat()
    )

    assert not scrubbed(made, 32).damaged
    assert "windows/repair_1/receipt.json" in scrub_groups(made, 63)


def scrub_groups(made: MadeArchive, days: float) -> dict[str, str]:
    """Return what was read after many days."""
    for day in range(4):
        scrubbed(made, days + day * 10)
    read: dict[str, str] = document(made)["read_at"]
    return read


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1", b'{"format_version": 99}'])
def test_scrub_document_lost(made: MadeArchive, content: bytes | None) -> None:
    """A document that is lost or damaged means never read, and stops nothing."""
    for day in range(1, 31):
        scrubbed(made, day)
    path = Path(str(made.root / WHERE))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        unknown = oldest_read(made.root, NOW + 31 * DAY)
        assert unknown is not None
        assert (unknown.age, unknown.words) == (None, "")
        assert "isn't known" in unknown.doubt

    found = scrubbed(made, 31)

    # All are due, and read within the budget.
    assert 0 < found.files < FILES
    oldest = oldest_read(made.root, NOW + 31 * DAY)
    assert oldest is not None
    assert oldest.age == 31 * DAY


def test_scrub_stopped(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before a store fell silent counts; the rest is read by the next run."""
    looked = list[str]()

    def silent(root: Any, file: Any, size: Any, *, deep: bool) -> Any:
        looked.append(file.path)
        if len(looked) == 3:
            raise StoreUnavailableError("silent")
        return damage_of(root, file, size, deep=deep)

    scrubbed(made, 1)
    monkeypatch.setattr(scrubbing, "damage_of", silent)

    with pytest.raises(StoreUnavailableError):
        scrubbed(made, 40)

    assert len(document(made)["read_at"]) == 2
    monkeypatch.undo()
    assert scrubbed(made, 80).files == FILES


def test_scrub_time_limit(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes too long leaves the rest to the next one."""
    scrubbed(made, 1)
    monkeypatch.setattr(scrubbing, "MOST_SECONDS", -1.0)

    assert scrubbed(made, 40).files == 0


def test_scrub_off(made: MadeArchive) -> None:
    """Switched off, nothing is read or said; an archive without a scrub gets no document."""
    assert scrubbed(made, 40, None) == scrubbed(made, 40, 0) == Scrub()
    assert not (made.root / WHERE).exists()
    assert oldest_read(made.root, NOW) is None
    scrubbed(made, 1)
    assert oldest_read(made.root, NOW + DAY) is not None

    scrubbed(made, 2, 0)

    assert oldest_read(made.root, NOW + 99 * DAY) is None
    assert maintained(made, 40, scrub_days=0)["oldest_read_at"] is None
    (made.root / WHERE).write_bytes(b"{")
    scrubbed(made, 41, 0)
    assert oldest_read(made.root, NOW + 99 * DAY) is None


def test_scrub_days_refused(made: MadeArchive) -> None:
    """A truth value isn't a number of days."""
    with pytest.raises(ConfigError, match="scrub_days"):
        maintained(made, 1, scrub_days=True)


def test_note_all_read(made: MadeArchive) -> None:
    """A deep validation counts as reading all; without a scrub, nothing is noted."""
    note_all_read(made.root, NOW)
    assert not (made.root / WHERE).exists()
    scrubbed(made, 1)

    note_all_read(made.root, NOW + 20 * DAY)

    oldest = oldest_read(made.root, NOW + 21 * DAY)
    assert oldest is not None
    assert oldest.age == DAY
    assert scrubbed(made, 45).oldest_at == (NOW + 20 * DAY).isoformat(timespec="seconds")


def test_oldest_read(made: MadeArchive) -> None:
    """It grows old while no maintenance runs, and a document ahead of now isn't believed."""
    scrubbed(made, 1)

    late = oldest_read(made.root, NOW + 38 * DAY)
    assert late is not None
    assert late.doubt == "sealed bytes weren't read for 38 days 0 h, more than 30 days 0 h"
    assert oldest_read(made.root, NOW) == OldestRead(None, 30)
    assert oldest_read(made.root, NOW + 37 * DAY) == OldestRead(37 * DAY, 30)
    assert not OldestRead(37 * DAY, 30).doubt
