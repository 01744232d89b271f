"""Which folders are windows, by their names."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.window import is_key
from kafka_drain.intervals import Interval

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@given(st.integers(0, 250_000_000_000_000), st.integers(1, 10_000_000_000), st.integers(1, 99))
def test_is_key_of_interval(start: int, length: int, attempt: int) -> None:
    """Each interval names a window, also where its bounds have milliseconds."""
    interval = Interval(
        EPOCH + timedelta(milliseconds=start), EPOCH + timedelta(milliseconds=start + length)
    )

    assert is_key(interval.key)
    assert is_key(f"{interval.key}_{attempt}")


@pytest.mark.parametrize(
    "name",
    ["", "X (1)", "X.bak", "X~", "X.000", "20130101T120000.010", "X.1234Z", "X/Y", "Kopie von X"],
)
def test_is_key_of_copy(name: str) -> None:
    """A folder as file managers and editors name copies isn't a window."""
    assert not is_key(name)
