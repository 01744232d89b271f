"""The Spark application, which runs jobs of one kind: `spark-submit main.py KIND SPEC…`."""

from __future__ import annotations

import sys

from kafka_drain_spark.application import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
