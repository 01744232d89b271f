"""A driver that runs in the cluster: it finds its jobs in run folders, and leaves results there.

Its Python needs what kafka-drain itself needs to read an archive's documents: `universal-pathlib`,
`pydantic`, and `s3fs` for S3.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from kafka_drain.errors import ArchiveError, KafkaDrainError, LockedError
from kafka_drain.output import heard_by
from kafka_drain.spark.job_spec import SPECS
from kafka_drain.spark.run_folder import RunDocument, RunFolder
from kafka_drain.storage.lease import Lease, find_lease
from kafka_drain.storage.paths import locate
from kafka_drain_spark.job import failed_result, run_jobs

PROGRESS_SECONDS = 1.0

#: Number of lines that a progress document holds.
LINES = 100


def drive(kind: str, folders: Sequence[str], work: Callable[[SparkSession, Any], Any]) -> int:
    """Run the jobs of some run folders; return the process's exit code.

    Renews the lease of each archive while it runs, together with the process that submitted the
    jobs if that lives. A driver that has lost a lease ends at once, and commits nothing more.
    """
    runs = [RunFolder(locate(folder)) for folder in folders]
    with ExitStack() as stack:
        stack.enter_context(Printed(runs, sys.stdout).shown())
        stack.enter_context(heard_by(partial(print, flush=True)))
        try:
            for run in runs:
                document = _document(run)
                if document.lease:
                    stack.enter_context(keep_lease(document, _end))
            specs = [SPECS[kind](**run.spec()) for run in runs]
        except KafkaDrainError as error:
            print(f"ERROR {error}", flush=True)
            for run in runs:
                run.write_result(failed_result(error))
            return 1
        by_spec = {id(spec): run for spec, run in zip(specs, runs, strict=True)}

        def write(spec: Any, result: dict[str, Any]) -> None:
            path = Path(getattr(spec, "answers_path", "") or os.devnull)
            answers = path.read_text(encoding="utf-8") if path.is_file() else None
            by_spec[id(spec)].write_result(result, answers)

        return run_jobs(specs, work, write)


def _document(run: RunFolder) -> RunDocument:
    found = run.run()
    if found is None:
        raise ArchiveError(f"{run.path} has no run.json; it was removed before its driver started")
    return found


@contextmanager
def keep_lease(run: RunDocument, lost: Callable[[], object]) -> Iterator[Lease]:
    """Hold the lease of a run while the body runs; leave it to expire or to who shares it.

    Args:
        lost: Called when the lease is lost.

    Raises:
        LockedError: When it belongs to another run by now, or nobody waits for this one.
    """
    root = locate(run.archive)
    found = find_lease(root)
    if found is None:
        raise LockedError(f"{root}: the lease of this run was released: nobody waits for it")
    lease = Lease(root, run=found.run or "driver", token=run.lease)
    lease.acquire()
    ended = threading.Event()

    def keep() -> None:
        lease.keep(ended)
        if lease.lost.is_set():
            lost()

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()


def _end() -> None:
    """End this driver: YARN ends its executors."""
    os._exit(1)


class Printed:
    """Standard output, whose last lines go to run folders as well.

    Args:
        output: Stream for the lines.
    """

    def __init__(self, runs: Sequence[RunFolder], output: IO[str]) -> None:
        self._runs = runs
        self._output = output
        self._lines: deque[str] = deque(maxlen=LINES)
        self._begun = ""
        self._printed = self._shown = 0

    def write(self, text: str) -> int:
        """Print text."""
        *lines, self._begun = (self._begun + text).split("\n")
        self._lines.extend(lines)
        self._printed += len(lines)
        return self._output.write(text)

    def flush(self) -> None:
        """Print all."""
        self._output.flush()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Take the place of standard output while the body runs."""
        ended = threading.Event()
        thread = threading.Thread(target=self._keep, args=(ended,), name="progress", daemon=True)
        before, sys.stdout = sys.stdout, self
        thread.start()
        try:
            yield
        finally:
            sys.stdout = before
            ended.set()
            thread.join()
            self.show()

    def _keep(self, ended: threading.Event) -> None:
        while not ended.wait(PROGRESS_SECONDS):
            self.show()

    def show(self) -> None:
        """Write the output since the last time; a failed write isn't missed."""
        printed, lines = self._printed, list(self._lines)
        if printed == self._shown:
            return
        for run in self._runs:
            try:
                run.write_progress(printed, lines)
            except Exception as error:
                # Each store has its own exceptions, and none may fail jobs that are done.
                print(f"WARNING {error}", file=sys.stderr, flush=True)
                return
        self._shown = printed
