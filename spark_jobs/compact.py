"""Spark application: write small files as few large ones. `spark-submit compact.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain_spark.compact import run_compact
from kafka_drain_spark.job import run_jobs

if __name__ == "__main__":
    spec = CompactSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], run_compact))
