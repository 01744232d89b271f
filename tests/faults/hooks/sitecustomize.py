"""Makes transactions small, so that a short run decides many; and several processes pay.

Python imports this in each process whose PYTHONPATH holds this folder: the command, the processes
that it starts, and those of Spark's executors. The code that runs is the product's.
"""

import importlib.util
import os
import sys

_RECORDS = os.environ.get("FAULTS_TRANSACTION_RECORDS")

if _RECORDS and importlib.util.find_spec("kafka_drain"):
    from kafka_drain.republishing import sending

    sending.TRANSACTION_RECORDS = int(_RECORDS)
    if "kafka_drain.cli" in sys.orig_argv:
        from kafka_drain.republishing import worker

        worker.RECORDS_PER_PROCESS = 1
