"""The report of a Spark job about a record that an archive can't keep as it was sent.

The Spark jobs import this module, so it uses only the standard library.
"""

from __future__ import annotations

#: Prefix of the part of a job's error that names the record.
UNKEPT = "not kept as it was sent: "

#: Advice about a record that stops its pipeline.
WAY_OUT = (
    "Nothing of its batch was committed, including the records before it: don't delete those. "
    "Archive them first: run `kafka-drain validate` and `kafka-drain roll` (a batch that was "
    "started keeps its end), and drain with the source option maxOffsetsPerTrigger=1000; this "
    "commits the batches before the record's batch. Repeat with 100, 10 and 1 until `validate` "
    "shows that the partition was drained up to the record. Then delete only the record "
    "(kafka-delete-records.sh, with the offset after it) and drain without the option, "
    "acknowledging the record with --acknowledge-expired"
)


def unkept_record(message: str) -> str | None:
    """Return the part of a job's error that names an unkept record; None when there is none."""
    _, found, rest = message.partition(UNKEPT)
    if not found:
        return None
    # Spark 4 appends the SQLSTATE.
    return rest.partition("\n")[0].partition(" SQLSTATE")[0].removesuffix(")").strip()
