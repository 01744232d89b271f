"""Which erasures can be withdrawn, and what else can be done with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.archive.erasure_withdrawal import unfinished_windows, ways_out
from kafka_drain.archive.erasures import Erasure
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.archive.test_erasures import DOCUMENT, done_of
from tests.kafka_drain.made_archive import MadeArchive, dense

TP = TopicPartition("t", 0)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with windows that erasures 1 and 2 have sealed, and one for another reason."""
    made = MadeArchive(tmp_path / "the archive", {"t": "id"})
    rows = [{"erasure": number, "request": "r", "by": "b", "records": 1} for number in (1, 2)]
    files = [made.seal({TP: dense(at, at + 5)})[0].path for at in (0, 5, 10)]
    for number, erasures in enumerate((rows, rows[1:]), start=1):
        made.seal_window(
            f"erase_{number:04d}",
            {TP: dense(5 * number - 5, 5 * number)},
            files[number - 1 : number],
            kind="erase",
            erasures=erasures,
        )
    made.seal_window("compact_0001", {TP: dense(10, 15)}, files[2:], kind="compact")
    return made


def test_unfinished_windows(made: MadeArchive) -> None:
    """An erasure was begun if a window is sealed for it that its result doesn't name yet."""
    snapshot, first = made.archive.snapshot(), Erasure(made.root, 1, DOCUMENT)
    second = replace(first, number=2)

    assert unfinished_windows(snapshot, first) == ["erase_0001"]
    assert unfinished_windows(snapshot, second) == ["erase_0001", "erase_0002"]
    assert unfinished_windows(snapshot, replace(first, done=done_of())) == []
    assert unfinished_windows(snapshot, replace(second, done=done_of())) == ["erase_0002"]
    assert unfinished_windows(snapshot, replace(first, number=3)) == []


def test_ways_out(made: MadeArchive) -> None:
    """An erasure that has erased something can only be carried out, another one withdrawn too."""
    snapshot, command = made.archive.snapshot(), f"kafka-drain erase '{made.root}'"

    begun = ways_out(snapshot, Erasure(made.root, 1, DOCUMENT))
    new = ways_out(snapshot, Erasure(made.root, 3, DOCUMENT))

    assert f"`{command} --apply`" in begun
    assert "--lift" not in begun
    assert f"`{command} --apply`" in new
    assert f"`{command} --lift 3 --by WHO --apply`" in new
