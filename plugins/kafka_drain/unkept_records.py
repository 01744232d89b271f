"""Records that an archive can't keep as they were sent: how a Spark job says which.

The jobs' side imports this: the standard library alone.
"""

from __future__ import annotations

__all__ = ["UNKEPT", "WAY_OUT", "unkept_record"]

#: Begins what a job's error says of a record.
UNKEPT = "not kept as it was sent: "

#: What somebody can do about a record that stops its pipeline.
WAY_OUT = (
    "Nothing of its batch was committed. The pipeline gets past the record when Kafka no longer "
    "has it: delete it with those before it (kafka-delete-records.sh), and accept that with "
    "--acknowledge-expired"
)


def unkept_record(message: str) -> str | None:
    """Return what a job's error says of a record that can't be kept; None when it says nothing."""
    _, found, rest = message.partition(UNKEPT)
    if not found:
        return None
    # Spark 4 adds the state that SQL has for it.
    return rest.partition("\n")[0].partition(" SQLSTATE")[0].removesuffix(")").strip()
