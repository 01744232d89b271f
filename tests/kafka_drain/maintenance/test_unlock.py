"""Which leases of an archive are found, and what is taken for a removal that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import LockedError
from kafka_drain.maintenance import unlock
from kafka_drain.maintenance.unlock import list_leases, remove_lease
from kafka_drain.storage.lease import Lease, find_lease
from kafka_drain.windows.reprocess.state import sealing_groups
from tests.kafka_drain.made_archive import MadeArchive


def test_list_leases_each_folder(tmp_path: Path) -> None:
    """The lease of each kind of run is found."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    for folder in ("", "maintenance", "windows", "drills"):
        where = made.root / folder if folder else made.root
        where.mkdir(exist_ok=True)
        Lease(where, run=folder or "drain").acquire()

    with sealing_groups(made.archive, run="reprocess"):
        found = [(held.to_dict()["run"], held.folder) for held in list_leases(made.root)]

    assert found == [
        ("drain", made.root),
        ("maintenance", made.root / "maintenance"),
        ("reprocess", made.root / "maintenance" / "reprocess"),
        ("windows", made.root / "windows"),
        ("drills", made.root / "drills"),
    ]


def test_remove_lease_taken_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that another run takes over while it is removed stays, and that is an error."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    Lease(made.root, run="killed", seconds=-1).acquire()
    [held] = list_leases(made.root)

    class Suspended(Lease):
        def acquire(self) -> None:
            super().acquire()
            (made.root / "lock.json").unlink()
            Lease(made.root, run="another").acquire()

    monkeypatch.setattr(unlock, "Lease", Suspended)

    with pytest.raises(LockedError, match="was taken by another run while it was removed"):
        remove_lease(held, wait=lambda _: None)

    left: Any = find_lease(made.root)
    assert left.run == "another"
