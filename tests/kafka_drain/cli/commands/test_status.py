"""`kafka-drain status`: never greener than what readers get."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drills import write_result
from kafka_drain.archive.scrubs import WHERE, ScrubDocument
from kafka_drain.archive.status import read_overview
from kafka_drain.cli.main import main
from kafka_drain.clock import utc_now
from kafka_drain.errors import NotSealedError, StoreUnavailableError
from kafka_drain.maintenance.scrub import scrub
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from kafka_drain.sizing import STORED_LEAST, STORED_MOST, restore_seconds
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.golden import add_batch, golden_cluster, sealed_copy


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive that was found complete now."""
    archive: Archive = sealed_copy(tmp_path / "archive")
    report = validate_archive(archive, golden_cluster())
    assert report.complete
    note_overview(archive, report, "reports/validate.json")
    return Path(str(archive.root))


def status(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[Any]]:
    """Return exit code and rows."""
    capsys.readouterr()
    code = main(["status", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)["archives"]


def test_status_ready(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A complete archive is ready, and nothing is written."""
    before = sorted(archive.rglob("*"))

    code, [row] = status(capsys, archive)

    assert (code, row["state"], row["why"]) == (0, "ready", [])
    assert row["records"] == 84
    assert row["sentence"].startswith("golden: ready: 84 records, the newest of 2013-01-01 12:00")
    assert sorted(archive.rglob("*")) == before
    assert main(["status", str(archive)]) == 0
    assert capsys.readouterr().out.startswith("golden: ready: 84 records")


def test_status_figures(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures are those of the last validation and of the last drill that passed."""
    code, [row] = status(capsys, archive)
    assert (code, row["drilled_at"]) == (0, None)
    overview = read_overview(UPath(archive))
    assert overview is not None
    stored = overview["bytes"] / 84 * 2 / (STORED_LEAST + STORED_MOST)
    expected = restore_seconds(84, stored, max(1, overview["partitions"]))
    assert row["restore_seconds"] == asdict(expected)
    assert row["validated_at"] == overview["validated_at"]

    at = [f"2026-01-0{number}T00:00:00.000+00:00" for number in range(1, 6)]
    for number, (name, verdict) in enumerate(
        [("golden", "passed"), ("golden", "failed"), ("another", "passed")]
    ):
        times = {"started_at": at[number], "finished_at": at[number + 1]}
        drilled = f"2026010{number + 1}T000000Z-0123abcd"
        write_result(UPath(archive), drill(0, verdict, drill=drilled, pipeline=name, **times))
    code, [row] = status(capsys, archive)

    # Not that of another pipeline, whose archive this one was, nor the one that failed.
    assert row["drilled_at"] == at[0]
    assert (code, row["state"]) == (1, "not_ready")


def test_status_validated_without_kafka(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How far Kafka is ahead isn't known from what an earlier validation has seen of it."""
    here = Archive.at(str(archive))
    report = validate_archive(here, None)
    assert report.complete
    overview = note_overview(here, report, "reports/alone.json")

    code, [row] = status(capsys, archive)

    # Nor is it known what came since: no hour on its page is green by that.
    assert overview["lag"] is overview["drained_until"] is None
    assert (code, row["state"], row["lag"]) == (1, "unknown", None)
    assert row["why"] == ["the last validation couldn't tell how far it is behind Kafka"]
    assert "behind Kafka then" not in row["sentence"]


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("generations/*/data/**/part-*", None),
        ("generations/*/data/**/part-*", b"short"),
        ("generations/*/receipts/*.json", None),
        ("generations/*/receipts/*.json", b"{}"),
        ("archive.json", b"{}"),
        ("overview.json", b"{}"),
        ("journal.json", b"{}"),
    ],
)
def test_status_damaged(
    archive: Path, pattern: str, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was damaged since the last validation is seen without another one."""
    shutil.rmtree(archive / "copies")
    path = sorted(archive.glob(pattern))[0]
    path.unlink() if content is None else path.write_bytes(content)

    code, [row] = status(capsys, archive)

    assert (code, row["state"]) == (1, "not_ready")
    assert row["why"]


def test_status_never_validated(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a validation's result, an archive isn't called ready."""
    (archive / "overview.json").unlink()

    code, [row] = status(capsys, archive)

    assert (code, row["state"], row["why"]) == (1, "unknown", ["it was never validated"])


def test_status_of_another(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result of another archive's validation says nothing; one bad archive fails for all."""
    document = json.loads((archive / "overview.json").read_text())
    other = Path(shutil.copytree(archive, tmp_path / "other"))
    (other / "overview.json").write_text(json.dumps(document | {"pipeline": "other"}))

    code, rows = status(capsys, archive, other, tmp_path / "none")

    assert (code, [row["state"] for row in rows]) == (1, ["ready", "unknown", "not_ready"])


def test_status_drained_since(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches that were drained since the last validation aren't proven: a restore is refused."""
    here = Archive.at(str(archive))
    generation = here.snapshot().open_generation
    assert generation is not None
    add_batch(generation, 14, 42, 50)
    asked = RepublishRequest(target_topic="restored", run_name="restore")
    with pytest.raises(NotSealedError):
        plan_republish(here, golden_cluster(), asked, now=utc_now(), apply=False)

    code, [row] = status(capsys, archive)

    assert (code, row["state"]) == (1, "unknown")
    assert row["why"] == ["2 files, drained since, aren't sealed yet"]


@pytest.mark.parametrize("hours", ["nan", "0", "-1", "inf", "1e9", "soon", ""])
def test_status_bad_age(archive: Path, hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An age that is none is refused with what is expected."""
    with pytest.raises(SystemExit) as ended:
        main(["status", str(archive), "--max-age-hours", hours])

    assert ended.value.code == 2
    assert f"got {hours!r}, expected a number of hours" in capsys.readouterr().err


def test_status_after_a_narrower_validation(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a deep validation found stays known until one that looks as closely finds it mended."""
    path = sorted(archive.glob("generations/*/data/**/part-*"))[0]
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(8) + content[-32:])
    here = Archive.at(str(archive))
    found = validate_archive(here, None, deep=True)
    assert not found.complete
    note_overview(here, found, "reports/deep.json")
    assert status(capsys, archive)[1][0]["state"] == "not_ready"

    for scope in ("all", "open"):
        hourly = validate_archive(here, None, scope=scope)
        note_overview(here, hourly, "reports/hourly.json")
        code, [row] = status(capsys, archive)
        assert (code, row["state"]) == (1, "not_ready"), scope

    path.write_bytes(content)
    note_overview(here, validate_archive(here, golden_cluster(), deep=True), "reports/mended.json")
    assert status(capsys, archive)[0] == 0


def test_status_store_silent(
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of an archive whose store doesn't answer nothing is known; the others are shown."""
    silent = Path(shutil.copytree(archive, tmp_path / "silent"))

    def read(root: Any) -> Any:
        if str(root) == str(silent):
            raise StoreUnavailableError("its store doesn't answer")
        return read_overview(root)

    monkeypatch.setattr("kafka_drain.looking.read_overview", read)

    code, rows = status(capsys, silent, archive)

    assert (code, [row["state"] for row in rows]) == (1, ["unknown", "ready"])
    assert rows[0]["why"] == ["its store doesn't answer"]


@pytest.mark.parametrize("name", ["archive.json", "overview.json", "drills", "journal"])
def test_status_may_not_read(
    name: str,
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor does an archive that this user may not read hide the others."""
    other = Path(shutil.copytree(archive, tmp_path / "other"))
    if (other / name).exists():
        (other / name).rename(tmp_path / "moved")
    # As every user, root too, fails to open it.
    (other / name).symlink_to(other / name)

    code, rows = status(capsys, other, archive)

    assert (code, rows[1]["state"]) == (1, "ready")
    assert rows[0]["state"] in ("unknown", "not_ready")
    assert "symbolic links" in rows[0]["why"][0]


def test_status_read_again(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sealed bytes that weren't read again are a reason, until a deep validation has read them."""
    here, long_ago = Archive.at(str(archive)), (utc_now() - timedelta(days=40)).isoformat()
    scrub(here, 30, utc_now())
    noted = ScrubDocument.read(here.root / WHERE)
    noted.model_copy(update={"oldest_at": long_ago}).write(here.root / WHERE)

    code, [row] = status(capsys, archive)
    assert (code, row["state"]) == (1, "unknown")
    assert [why for why in row["why"] if why.startswith("sealed bytes weren't read for")]

    assert main(["validate", str(archive), "--deep"]) == 0
    # Kafka wasn't asked, which is a reason of its own.
    code, [row] = status(capsys, archive)
    assert len(row["why"]) == 1
    assert "every sealed byte read within" in row["sentence"]
