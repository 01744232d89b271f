"""Spark application: drain made-up records. `spark-submit warm_up.py SPEC JAR…`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain_spark.job import run_jobs
from kafka_drain_spark.warm_up import run_warm_up

if __name__ == "__main__":
    spec = DrainSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], partial(run_warm_up, jars=sys.argv[2:])))
