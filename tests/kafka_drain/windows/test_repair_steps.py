"""What becomes of what is sealed and isn't in order: every combination."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.windows.repair_steps import Seen, Step, judge_sealed

BOTH = (False, True)


@pytest.mark.parametrize(
    ("seen", "is_named", "has_copy", "may_forget"), list(product(Seen, BOTH, BOTH, BOTH))
)
def test_judge_sealed(seen: Seen, is_named: bool, has_copy: bool, may_forget: bool) -> None:
    """Every combination: what is named comes back or stays to be restored, the rest is no proof."""
    step = judge_sealed(seen, is_named=is_named, has_copy=has_copy, may_forget=may_forget)

    if seen is Seen.SOUND:
        assert step is Step.LEAVE
    elif is_named and has_copy:
        assert step is Step.RESTORE
    elif is_named and not may_forget:
        assert step is Step.REFUSE
    elif seen is Seen.UNREADABLE:
        assert step is Step.SET_ASIDE
    else:
        assert step is Step.LEAVE
