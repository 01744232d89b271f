"""With an index, a follower reads what is new, and sends what it would send without one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.archive import index as deciding
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import refuse_unsound, restricted
from kafka_drain.archive.window import Window
from kafka_drain.errors import KafkaDrainError
from kafka_drain.republish.planning.documents import ThroughJson
from kafka_drain.republish.planning.follow import (
    NOTHING,
    new_files,
    through_now,
    unsent_segments,
)
from tests.kafka_drain.windows.test_window_jobs_index import CLOSED, make, without_index


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Backfilled hours, closed generations, the first of them compacted, and an index."""
    return Archive.at(str(make(tmp_path_factory.mktemp("follow") / "archive", CLOSED)))


@pytest.fixture(scope="module")
def now(archive: Archive) -> ThroughJson:
    """All that is sealed."""
    with without_index():
        return through_now(archive.snapshot())


def found(snapshot: Snapshot, since: ThroughJson) -> Any:
    """Return how far a run gets, and which files it sends; or why it doesn't."""
    try:
        through = through_now(snapshot, since)
        return through, [file.path for file in new_files(snapshot, since, through)]
    except KafkaDrainError as error:
        return type(error), str(error)


@st.composite
def sent(draw: st.DrawFn, now: ThroughJson) -> ThroughJson:
    """Return what may have been sent: windows, and generations up to a receipt, or gone ones."""
    last = {}
    for number, name in now["generations"].items():
        names = [name] * 3 + [f"{max(int(name[:12]) - 1, 0):012d}.json", ""]
        if at := draw(st.sampled_from(names)):
            last[number] = at
    if draw(st.integers(0, 9)) == 0:
        last["99"] = "000000000000.json"
    digests = {number: now["files"][number] for number in last if number in now["files"]}
    if digests and draw(st.integers(0, 4)) == 0:
        digests[draw(st.sampled_from(sorted(digests)))] = "0" * 32
    keys = [*now["windows"], "20200101T000000Z-20200101T010000Z"]
    often = st.sampled_from([True, True, True, False])
    windows = [key for key in keys[:-1] if draw(often)] + keys[-1:] * draw(st.integers(0, 1))
    return {"generations": last, "files": digests, "windows": windows}


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_new_files_with_index(archive: Archive, now: ThroughJson, data: st.DataObject) -> None:
    """The index changes neither how far a run gets, nor what it sends, nor why it refuses to."""
    since = data.draw(sent(now))
    with without_index():
        plain = found(archive.snapshot(), since)
    snapshot = archive.snapshot()

    assert found(restricted(snapshot, unsent_segments(snapshot, since)), since) == plain


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners of the receipts that are read."""
    names: list[str] = []
    for kind in (Generation, Window):
        real = kind.read_receipt

        def noting(self: Any, *name: str, real: Any = real) -> Any:
            names.append(self.name)
            return real(self, *name)

        monkeypatch.setattr(kind, "read_receipt", noting)
    return names


def test_new_files_nothing_new(
    archive: Archive, now: ThroughJson, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing new, only the open generation is read, beside what is rechecked in rotation."""
    snapshot = archive.snapshot()
    looked_at = restricted(snapshot, unsent_segments(snapshot, now))
    through = through_now(looked_at, now)

    assert (through, new_files(looked_at, now, through)) == (now, [])
    assert read == []
    monkeypatch.setattr(deciding, "GENERATIONS_IN_TURN", 1)
    monkeypatch.setattr(deciding, "WINDOWS_IN_TURN", 1)
    checked = refuse_unsound(archive.snapshot(), query=unsent_segments(snapshot, now)).snapshot
    assert found(checked, now) == (now, [])
    # The open generation, the newest closed one, and one more of each in rotation.
    assert len({*read}) <= 4


def test_new_files_first_run(archive: Archive, now: ThroughJson) -> None:
    """A first run sends everything."""
    snapshot = archive.snapshot()
    looked_at = restricted(snapshot, unsent_segments(snapshot, NOTHING))

    assert through_now(looked_at, NOTHING) == now
    assert not looked_at.skipped or not looked_at.skipped.generations
