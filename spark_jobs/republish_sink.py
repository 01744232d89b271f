"""Spark application: republish files with Spark's Kafka sink. `spark-submit … SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import SinkSpec
from kafka_drain_spark.job import run_jobs
from kafka_drain_spark.sink import run_sink

if __name__ == "__main__":
    spec = SinkSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], run_sink))
