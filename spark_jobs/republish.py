"""Spark application: republish files with Spark's Kafka sink. `spark-submit republish.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.job_spec import RepublishSpec
from kafka_drain_spark.job import run_job
from kafka_drain_spark.republish import run_republish

if __name__ == "__main__":
    spec = RepublishSpec.read(Path(sys.argv[1]))
    sys.exit(run_job(spec, run_republish))
