"""Run `python -m kafka_drain.cli` as `kafka-drain`."""

import sys

from kafka_drain.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
