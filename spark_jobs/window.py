"""Spark application: drain a window as the job spec says. `spark-submit window.py SPEC`."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.job_spec import WindowSpec
from kafka_drain_spark.job import run_jobs
from kafka_drain_spark.window import run_window

if __name__ == "__main__":
    spec = WindowSpec.read(Path(sys.argv[1]))
    sys.exit(run_jobs([spec], run_window))
