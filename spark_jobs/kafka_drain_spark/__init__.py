"""kafka-drain's Spark side. Knows pyspark and the core's plain modules, never Airflow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["without_zipped_pyspark"]


def without_zipped_pyspark(path: Sequence[str]) -> list[str]:
    """Return a module search path without spark-submit's zip of an installed pyspark.

    A zip has no byte code: importing pyspark from it takes half a second longer than from the
    folder that it lies in. It stays where pyspark isn't installed in this Python.
    """
    return [
        entry
        for entry in path
        if not (
            entry.endswith("/pyspark/python/lib/pyspark.zip")
            and str(Path(entry).parents[3]) in path
        )
    ]


# Before the first import of pyspark, which comes after that of this package.
sys.path[:] = without_zipped_pyspark(sys.path)
