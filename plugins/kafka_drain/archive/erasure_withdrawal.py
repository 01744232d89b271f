"""Whether an erasure can be withdrawn: only before it has erased anything, or once it is done."""

from __future__ import annotations

from kafka_drain.archive.erasures import Erasure
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.storage.paths import quoted


def unfinished_windows(snapshot: Snapshot, erasure: Erasure) -> list[str]:
    """Return the windows that are sealed for an erasure and that it wasn't noted as done with.

    If there are any, it was carried out in part: some of its records are gone, others may be there.
    """
    done = erasure.done.windows if erasure.done is not None else {}
    return [
        window.key
        for window in snapshot.fold.of_kind(WindowKind.ERASURE)
        if window.key not in done
        and any(row["erasure"] == erasure.number for row in window.plan.erasures or ())
    ]


def finishing(root: object) -> str:
    """Return the command that carries out the erasures in force, in backquotes."""
    return f"`kafka-drain erase {quoted(root)} --apply`"


def ways_out(snapshot: Snapshot, erasure: Erasure) -> str:
    """Return, as a sentence, the ways to deal with an erasure that isn't carried out yet."""
    finish = f"Carry it out with {finishing(snapshot.root)}"
    if unfinished_windows(snapshot, erasure):
        return f"{finish}; it was begun, and can't be withdrawn any more"
    return (
        f"{finish}, or withdraw it with `kafka-drain erase {quoted(snapshot.root)} --lift "
        f"{erasure.number} --by WHO --apply`"
    )
