"""How much work something is, counted: seconds would depend on the machine."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of calls of Python functions and built-in ones that something takes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]
