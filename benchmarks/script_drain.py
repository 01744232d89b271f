"""A typical handwritten drain without Spark: confluent-kafka and pyarrow, one process per core.

It has no progress, no manifest and no proof; if killed, it starts from the beginning.
`script_drain.py SERVERS TOPIC FOLDER`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.kafka_records import PARTITIONS
from benchmarks.outcome import SCHEMA, read_topic


def drain_partition(servers: str, topic: str, folder: str, partition: int) -> None:
    """Write one partition to one file."""
    path = Path(folder) / f"{topic}-{partition}.parquet"
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", use_dictionary=False) as writer:
        for table in read_topic(servers, topic, partition):
            writer.write_table(table)


def main() -> None:
    """Drain all partitions."""
    servers, topic, folder = sys.argv[1:]
    Path(folder).mkdir(parents=True)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        work = [(servers, topic, folder, partition) for partition in range(PARTITIONS)]
        pool.starmap(drain_partition, work, chunksize=1)


if __name__ == "__main__":
    main()
