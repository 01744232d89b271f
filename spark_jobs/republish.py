"""Spark application: republish files exactly once. `spark-submit republish.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import SendSpec
from kafka_drain_spark.job import run_jobs
from kafka_drain_spark.send import run_send

if __name__ == "__main__":
    spec = SendSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], run_send))
