"""Make transactions small, so that a short run commits many, and several processes are used.

Records which attempt and process resumes a chain that was partly committed before.

Python imports this in each process whose PYTHONPATH contains this folder: the command, the
processes that it starts, and those of Spark's executors. They run the product's own code.
"""

import importlib.util
import os
import sys
import threading

_FOUND = os.environ.get("FAULTS_FOUND")
_RECORDS = os.environ.get("FAULTS_TRANSACTION_RECORDS")

if _RECORDS and importlib.util.find_spec("kafka_drain"):
    from kafka_drain.republish.sending import shard_sender as sending

    sending.TRANSACTION_RECORDS = int(_RECORDS)
    if _FOUND:
        _send_shard, _read_progress = sending._send_shard, sending.read_progress
        _begun = threading.local()

        def send_shard(job, *arguments):
            _begun.now = True
            return _send_shard(job, *arguments)

        def read_progress(job, store):
            progress = _read_progress(job, store)
            if _begun.now and 0 < progress.records < job.records:
                with open(_FOUND, "a") as found:
                    found.write(f"{job.attempt} {os.getpid()}\n")
            _begun.now = False
            return progress

        sending._send_shard, sending.read_progress = send_shard, read_progress
    if "kafka_drain.cli" in sys.orig_argv:
        from kafka_drain.republish.engines import worker

        worker.RECORDS_PER_PROCESS = 1
