"""Records that an archive can't keep as they were sent: how a Spark job says which.

The jobs' side imports this: the standard library alone.
"""

from __future__ import annotations

__all__ = ["UNKEPT", "WAY_OUT", "unkept_record"]

#: Begins what a job's error says of a record.
UNKEPT = "not kept as it was sent: "

#: What somebody can do about a record that stops its pipeline.
WAY_OUT = (
    "Nothing of its batch was committed, nor of the records before it there: don't delete those. "
    "First archive them: `kafka-drain validate`, `kafka-drain roll` (a batch that was begun keeps "
    "its end), and drain with the source option maxOffsetsPerTrigger=1000; the batches before the "
    "record's are committed. Again so with 100, 10 and 1, until `validate` says that the partition "
    "was drained up to the record. Then delete the record alone (kafka-delete-records.sh, with the "
    "offset after it), drain without the option, and accept that with --acknowledge-expired"
)


def unkept_record(message: str) -> str | None:
    """Return what a job's error says of a record that can't be kept; None when it says nothing."""
    _, found, rest = message.partition(UNKEPT)
    if not found:
        return None
    # Spark 4 adds the state that SQL has for it.
    return rest.partition("\n")[0].partition(" SQLSTATE")[0].removesuffix(")").strip()
