"""Names of the numbered files of a lease."""

from __future__ import annotations

import pytest

from kafka_drain.storage.lease_store import name_of, newest, superseded

UNFINISHED = ".{}." + "0" * 32 + ".tmp"


def unfinished(number: int) -> str:
    return UNFINISHED.format(name_of(number))


def test_name_of() -> None:
    """Names sort as their numbers do."""
    assert name_of(12) == "000000000012.json"


@pytest.mark.parametrize(
    ("names", "number"),
    [
        ([], 0),
        (["x", "1.json", "a000000000001.json", "000000000001.json.bak"], 0),
        ([name_of(1)], 1),
        ([name_of(10), name_of(9), unfinished(11)], 10),
    ],
)
def test_newest(names: list[str], number: int) -> None:
    """What has another name, or isn't finished, is no lease."""
    assert newest(names) == number


def test_superseded() -> None:
    """Older ones and their unfinished writes; not the lease itself, nor who still tries for it."""
    older = [unfinished(1), unfinished(2), name_of(1), name_of(2)]
    kept = [name_of(3), unfinished(3), name_of(4), unfinished(4), "x"]

    assert superseded([*kept, *reversed(older)], 3) == sorted(older)
    assert superseded([], 3) == []
