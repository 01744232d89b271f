"""The verbs that send, replace or delete: a person can approve their plans. Opens nothing."""

from __future__ import annotations

from typing import Literal, get_args

Approvable = Literal["republish", "reprocess", "maintain", "erase"]
APPROVABLE: tuple[Approvable, ...] = get_args(Approvable)

#: Hours within which a plan may be started, at most.
MOST_HOURS = 720
