"""`kafka-drain unlock`: shows leases, and removes them only with --remove."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from kafka_drain.cli.commands import unlock
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.main import main
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError, KafkaDrainError, LockedError
from kafka_drain.maintenance.unlock import HeldLease, remove_lease
from kafka_drain.storage.lease import Lease
from tests.kafka_drain.made_archive import MadeArchive


def an_hour_ago() -> datetime:
    return utc_now() - timedelta(hours=1)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive in which a drain and a maintenance were killed."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for folder in (made.root, made.root / "maintenance"):
        folder.mkdir(exist_ok=True)
        Lease(folder, run="killed", clock=an_hour_ago).acquire()
    return made


def leases(made: MadeArchive) -> list[str]:
    """Where a lease is."""
    root = Path(str(made.root))
    return [f"{path.relative_to(root)}" for path in sorted(root.rglob("lock.json"))]


def test_unlock_shows(made: MadeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --remove, all leases are shown, and stay."""
    assert main(["unlock", str(made.root), "--json"]) == OK

    shown = capsys.readouterr()
    found = json.loads(shown.out)["leases"]
    assert [lease["state"].partition(";")[0] for lease in found] == ["expired", "expired"]
    assert "dry run: nothing was changed; pass --remove" in shown.err
    assert leases(made) == ["lock.json", "maintenance/lock.json"]


@pytest.mark.parametrize(
    "error", [LockedError("it is renewed"), ArchiveError("it isn't one"), None]
)
def test_unlock_removes(
    error: KafkaDrainError | None,
    made: MadeArchive,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that can't be removed is told and fails the command; the others are removed."""
    remove = partial(remove_lease, wait=lambda _: None)

    def refusing(held: HeldLease) -> None:
        if error is not None and held.folder == made.root:
            raise error
        remove(held)

    monkeypatch.setattr(unlock, "remove_lease", refusing)
    code = main(["unlock", str(made.root), "--remove", "--json"])

    shown = capsys.readouterr()
    first, second = (lease["state"] for lease in json.loads(shown.out)["leases"])
    assert second == "removed"
    assert "dry run" not in shown.err
    if error is None:
        assert (code, first, leases(made)) == (OK, "removed", [])
    else:
        kept = "kept: its holder may still be running"
        assert (code, first, leases(made)) == (FAILED, kept, ["lock.json"])
        assert f"kafka-drain unlock: {error}" in shown.err


def test_unlock_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An archive without a lease says so; a folder that is no archive is an error."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})

    assert main(["unlock", str(made.root)]) == OK
    assert "no lease is held" in capsys.readouterr().err
    assert main(["unlock", str(tmp_path)]) != OK
