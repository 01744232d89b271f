"""Run the jobs that an application is started with.

A job of kind `x` is the function `run_x` in this package's module `x`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from kafka_drain.spark.job_spec import PARENT_VARIABLE, RUN_OPTION, SPECS
from kafka_drain_spark.job import open_for_jobs, run_jobs
from kafka_drain_spark.session import is_on_connect


def main(kind: str, *paths: str) -> int:
    """Run jobs of one kind, each with its own spec; return the process's exit code.

    Args:
        paths: The paths of the specs; after `RUN_OPTION`, those of run folders.
    """
    work = getattr(import_module(f"kafka_drain_spark.{kind}"), f"run_{kind}")
    if paths[0] == RUN_OPTION:
        # Only now, because it needs packages that no other driver does.
        from kafka_drain_spark.driver import drive

        return drive(kind, paths[1:], work)
    if is_on_connect():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        told = threading.Event()
        threading.Thread(target=_end_with_parent, args=(told,), daemon=True).start()
        opened = open_for_jobs(*("kafka",) if kind == "drain" else ())
        # Until then, what was started early has no effect.
        told.wait()
    else:
        if parent := os.environ.get(PARENT_VARIABLE):
            ended = threading.Thread(target=_end_after, args=(int(parent),), daemon=True)
            ended.start()
        opened = open_for_jobs()
    specs: list[Any] = [SPECS[kind].read(Path(path)) for path in paths]
    return run_jobs(specs, work, opened=opened)


def _end_after(process_id: int) -> None:
    """End this driver, and Spark with it, when the process that renews its lease has ended."""
    try:
        opened = os.pidfd_open(process_id)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):
        # Not on Linux, or on one older than 5.3.
        while _is_alive(process_id):
            time.sleep(1)
    else:
        select.select([opened], [], [])
    os._exit(1)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _end_with_parent(told: threading.Event) -> None:
    """End this process when the one that started it has ended, however it did.

    The server runs a query to its end all the same, and the next drain follows it.

    Args:
        told: Set when that process says that the jobs may begin.
    """
    while os.read(sys.stdin.fileno(), 1):
        told.set()
    os._exit(1)
