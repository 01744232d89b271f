"""Keep a task's result small enough for Airflow's database, however many partitions there are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

#: Number of entries of a list or an object that a result keeps.
ENTRIES = 100
#: Number of characters of a text that a result keeps whole.
CHARACTERS = 5_000
#: After a key's name: how many entries, or characters, were left out.
LEFT_OUT = "_left_out"


def bounded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result whose long values are shortened.

    Of a list or an object, the first hundred entries are kept; a text that is too long, such as the
    offsets of thousands of partitions, is null. `<key>_left_out` is the number of what is missing;
    plan, receipts and report in the archive have it all.
    """
    small: dict[str, Any] = {}
    for key, value in result.items():
        small[key] = value
        if isinstance(value, str) and len(value) > CHARACTERS:
            small |= {key: None, f"{key}{LEFT_OUT}": len(value)}
        elif isinstance(value, Mapping) and len(value) > ENTRIES:
            kept: Any = dict(islice(value.items(), ENTRIES))
            small |= {key: kept, f"{key}{LEFT_OUT}": len(value) - ENTRIES}
        elif isinstance(value, list | tuple) and len(value) > ENTRIES:
            small |= {key: list(value[:ENTRIES]), f"{key}{LEFT_OUT}": len(value) - ENTRIES}
    return small
