"""kafka-drain's Spark side. Imports pyspark and the core's plain modules, never Airflow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_drain.spark.installed import require_unmixed_pyspark

__all__ = ["without_zipped_pyspark"]


def without_zipped_pyspark(path: Sequence[str]) -> list[str]:
    """Return a module search path without spark-submit's zip of an installed pyspark.

    The zip has no byte code, so importing pyspark from it takes half a second longer than from the
    installed folder. The zip is kept if pyspark isn't installed in this Python.
    """
    return [
        entry
        for entry in path
        if not (
            entry.endswith("/pyspark/python/lib/pyspark.zip")
            and str(Path(entry).parents[3]) in path
        )
    ]


# These run before the first import of pyspark, because this package is imported first.
sys.path[:] = without_zipped_pyspark(sys.path)
require_unmixed_pyspark()
