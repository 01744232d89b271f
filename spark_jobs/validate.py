"""Spark application: read committed files for a validation. `spark-submit validate.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import ValidateSpec
from kafka_drain_spark.job import run_jobs
from kafka_drain_spark.validate import run_validate

if __name__ == "__main__":
    spec = ValidateSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], run_validate))
