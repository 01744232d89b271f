"""Results of tasks stay small in Airflow's database, and say what they leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_drain_airflow.operators.bounded import CHARACTERS, ENTRIES, bounded


@pytest.mark.parametrize(
    ("value", "kept", "left_out"),
    [
        (7, 7, None),
        (None, None, None),
        ("x" * CHARACTERS, "x" * CHARACTERS, None),
        ("x" * (CHARACTERS + 1), None, CHARACTERS + 1),
        ([1] * ENTRIES, [1] * ENTRIES, None),
        ([*range(ENTRIES + 7)], [*range(ENTRIES)], 7),
        (tuple(range(ENTRIES + 7)), [*range(ENTRIES)], 7),
        (dict.fromkeys(range(ENTRIES), 1), dict.fromkeys(range(ENTRIES), 1), None),
        (dict.fromkeys(range(ENTRIES + 2), 1), dict.fromkeys(range(ENTRIES), 1), 2),
    ],
)
def test_bounded(value: Any, kept: Any, left_out: int | None) -> None:
    """What is short stays as it is; what is long is shortened, and counted."""
    expected = {"records": 1, "key": kept}
    if left_out is not None:
        expected["key_left_out"] = left_out

    assert bounded({"records": 1, "key": value}) == expected


def test_bounded_of_many_partitions() -> None:
    """The results of 10,000 partitions, which took 346 KB and 1.7 MB, take less than 20 KB."""
    offsets = json.dumps({"t": {str(number): number for number in range(10_000)}})
    shard = {"source": "t-0", "target": "u", "first_offset": 0, "last_offset": 9, "records": 9}

    drain = bounded({"start": offsets, "end": offsets, "offsets": 5})
    republish = bounded({"shards": [shard] * 10_000, "records": 90_000})

    assert drain == {"start": None, "start_left_out": len(offsets), "offsets": 5} | {
        "end": None,
        "end_left_out": len(offsets),
    }
    assert republish["shards_left_out"] == 9_900
    assert len(json.dumps([drain, republish])) < 20_000
