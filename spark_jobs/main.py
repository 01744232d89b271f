"""The Spark application, which runs jobs of one kind: `spark-submit main.py KIND SPEC…`."""

from __future__ import annotations

import os
import sys

from kafka_drain_spark.application import main

if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would spend a fifth of a second of the processor on dismantling what it has imported.
    os._exit(code)
