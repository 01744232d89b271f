"""Spark application: drain Kafka to files as job specs say. `spark-submit drain.py SPEC…`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain_spark.drain import run_drain
from kafka_drain_spark.job import run_jobs

if __name__ == "__main__":
    specs = [DrainSpec.read(Path(path)) for path in sys.argv[1:]]
    sys.exit(run_jobs(specs, run_drain))
