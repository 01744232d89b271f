"""Spark application: drain Kafka to files as the job spec says. `spark-submit drain.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.job_spec import DrainSpec
from kafka_drain_spark.drain import run_drain
from kafka_drain_spark.job import run_job

if __name__ == "__main__":
    spec = DrainSpec.read(Path(sys.argv[1]))
    sys.exit(run_job(spec, run_drain))
