"""Tests of reading a target back: is it silence or slowness?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.republishing.target_reader import (
    FETCH_BYTES,
    LEAST_FETCH_BYTES,
    SHRINK,
    Wait,
    what_to_do,
)

TIMEOUT = 120.0


@pytest.mark.parametrize("quiet", [0.0, 30.0, 30.1, 120.0, 120.1])
@pytest.mark.parametrize("asked", [0.0, 30.0, 30.1, 500.0])
@pytest.mark.parametrize("fetch_bytes", [FETCH_BYTES, LEAST_FETCH_BYTES + 1, LEAST_FETCH_BYTES])
def test_what_to_do(quiet: float, asked: float, fetch_bytes: int) -> None:
    """Silence is what lasts for the whole time; before, less is asked for, as long as that goes."""
    found = what_to_do(quiet, asked, fetch_bytes, TIMEOUT)

    if quiet > 120:
        assert found is Wait.NO_MORE
    elif quiet > 30 and asked > 30 and fetch_bytes > LEAST_FETCH_BYTES:
        assert found is Wait.FOR_LESS
    else:
        assert found is Wait.ON


def test_what_to_do_least_in_time() -> None:
    """The least is asked for before the time is up."""
    sizes = [FETCH_BYTES]
    while sizes[-1] > LEAST_FETCH_BYTES:
        sizes.append(max(LEAST_FETCH_BYTES, sizes[-1] // SHRINK))

    assert (len(sizes) - 1) * TIMEOUT / 4 < TIMEOUT * 3 / 4


@given(times=st.lists(st.floats(0, 200), min_size=2, max_size=20).map(sorted))
def test_what_to_do_property(times: list[float]) -> None:
    """Once it counts as silence it does so for as long as nothing comes."""
    found = [what_to_do(quiet, quiet, FETCH_BYTES, TIMEOUT) for quiet in times]

    assert all(b is Wait.NO_MORE for a, b in pairwise(found) if a is Wait.NO_MORE)
