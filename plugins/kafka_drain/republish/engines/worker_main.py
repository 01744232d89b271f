"""The main program of a worker process: send a shard, or verify target partitions.

`python -m kafka_drain.republish.engines.worker_main` reads numbered jobs from standard input, one
per line and secrets included, and answers each with one line that has the same number. It ends when
its input ends, which is also the case when the parent process is killed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TextIO, TypeAlias

from kafka_drain.errors import KafkaDrainError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.sending.shard_sender import SendJob, send_shard
from kafka_drain.republish.verifying.verify import verify_partitions
from kafka_drain.storage.paths import locate


@dataclass(frozen=True)
class VerifyJob:
    """A job that verifies target partitions of a run, one after another.

    Attributes:
        root: The archive's folder, a path or a URL.
        state: The folder that has the run; mostly the archive's.
        key: The key of the run whose plan is read.
        tps: The target partitions, of one topic.
        settings: librdkafka settings for the target cluster, secrets included.
        change: The plan's change, secrets included; None if it has none.
    """

    root: str
    state: str
    key: str
    tps: tuple[TopicPartition, ...]
    settings: Mapping[str, Any] = field(repr=False)
    change: Change | None = None

    def __str__(self) -> str:
        more = len(self.tps) - 1
        return f"verifying {self.tps[0]}" + (f" and {more:,} more" if more else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON types."""
        return {
            "root": self.root,
            "state": self.state,
            "key": self.key,
            "verify": [[tp.topic, tp.partition] for tp in self.tps],
            "settings": dict(self.settings),
            "change": None if self.change is None else self.change.to_dict(),
        }


Job: TypeAlias = "SendJob | VerifyJob"


def run_job(job: Job, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Run a job in this process.

    Returns:
        The number of `records` sent, or the `matches`: what was found in each target partition, as
        `PartitionMatch.to_dict`, in their order.

    Raises:
        KafkaDrainError: See `send_shard` and `verify_partitions`.
    """
    if isinstance(job, SendJob):
        return {"records": send_shard(job, stopped)}
    plan = _plan(job.state, job.key)
    found = dict(verify_partitions(job.root, plan, job.settings, job.tps, change=job.change))
    return {"matches": [found[tp].to_dict() for tp in job.tps]}


@lru_cache(maxsize=1)
def _plan(state: str, key: str) -> RepublishPlan:
    """Read a run's plan once for all its target partitions; a plan never changes."""
    return RepublishRun(locate(state), key).require_plan()


def _read_job(document: dict[str, Any]) -> Job:
    if "verify" not in document:
        return SendJob.from_dict(document)
    tps = tuple(TopicPartition(topic, number) for topic, number in document["verify"])
    changed = document["change"]
    change = None if changed is None else Change.from_dict(changed)
    return VerifyJob(
        document["root"], document["state"], document["key"], tps, document["settings"], change
    )


def own_streams() -> tuple[TextIO, TextIO]:
    """Return standard input and output, and keep them from a user's function and libraries.

    What those print would be no answer, and goes to standard error; they read an empty input.
    """
    own = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return own


def main(asking: TextIO | None = None, answering: TextIO | None = None) -> int:
    """Run the jobs that are asked for, each in a thread; end with the input.

    Args:
        asking: Has the jobs; None for standard input.
        answering: Gets the answers; None for standard output.
    """
    asking, answering = asking or sys.stdin, answering or sys.stdout
    # Looking for garbage among the modules takes a tenth of a second when a process ends.
    atexit.register(gc.freeze)
    ended = threading.Event()
    printing = threading.Lock()

    def do(number: int, job: dict[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            answer = run_job(_read_job(job), ended.is_set)
        except KafkaDrainError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except BaseException as error:  # without an answer, the parent would wait for ever
            answer = {"error": "DeliveryError", "message": f"{type(error).__name__}: {error}"}
        with printing:
            answering.write(json.dumps({"number": number, "answer": answer}) + "\n")
            answering.flush()

    for line in asking:
        asked = json.loads(line)
        threading.Thread(target=do, args=(asked["number"], asked["job"])).start()
    # Python exits after these threads end, which they do soon after this.
    ended.set()
    return 0


if __name__ == "__main__":
    sys.exit(main(*own_streams()))
