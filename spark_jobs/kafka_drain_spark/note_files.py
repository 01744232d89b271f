"""Write the notes of finished batches into the archive while the query runs.

So that a driver or worker that is killed leaves what Spark read of all batches but the last ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from kafka_drain_spark.session import SPARK_ERRORS


class NoteFiles:
    """The folder of a generation's notes.

    A note that can't be written ends no drain: the caller writes all of them when Spark has ended.

    Args:
        spark: The session, whose configuration reaches the archive's store.
        folder: The folder, in Hadoop's form; empty to write nothing.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._written: set[int] = set()

    def write(self, notes: Iterable[Mapping[str, Any]]) -> None:
        """Write the notes that aren't written yet."""
        for note in notes:
            if self._folder and note["batch"] not in self._written:
                text = json.dumps(note, indent=2) + "\n"
                with suppress(OSError, *SPARK_ERRORS):
                    self._write(f"{self._folder}/{note['batch']:012d}.json", text)
                    self._written.add(note["batch"])

    def _write(self, path: str, text: str) -> None:
        if "://" in path:
            self._write_object(path, text)
            return
        # In Python, because Hadoop would leave a checksum file beside it.
        os.makedirs(self._folder, exist_ok=True)
        beside = f"{path}.tmp"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    def _write_object(self, path: str, text: str) -> None:
        """Create an object, which a store shows only when it is complete; HDFS shows it at once."""
        context: Any = self._spark.sparkContext
        hadoop, conf = context._jvm.org.apache.hadoop.fs, context._jsc.hadoopConfiguration()
        is_shown = path.startswith("hdfs://")
        place = hadoop.Path(path)
        beside = hadoop.Path(f"{path}.tmp") if is_shown else place
        stream = place.getFileSystem(conf).create(beside, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if is_shown:
            rename = getattr(hadoop, "Options$Rename")
            options = context._gateway.new_array(rename, 1)
            options[0] = rename.OVERWRITE
            hadoop.FileContext.getFileContext(place.toUri(), conf).rename(beside, place, options)
