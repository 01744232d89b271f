"""The speed of a republish that changes records, compared with one that doesn't, on the same files.

plain        the worker engine, as in `republish.py`
mask         a text in each JSON value masked
mask-number  a number in it
hash         a pseudonym for each key
hash-field   a pseudonym for a text in each JSON value
drop-header  a header left out of the quarter of the records that have it
avro-plain, avro-mask
             the same orders as Avro: as they are, and with a text masked

Arms run in turns on the same broker and the same two cores. Seconds cover opening and sending, like
a receipt's; the whole process is planning, sending and verifying, which read all records and apply
the change as well. Each arm verifies itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arms import compared, figures_of, take_turns
from benchmarks.batch import drain, validate
from benchmarks.kafka_records import AVRO_ID, AVRO_SCHEMA, PARTITIONS, produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.republish import topic_of_an_arm
from benchmarks.worker_arms import worker
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_changed"]

RECORDS = 1_000_000
#: What is asked for in each arm, after the kind of its values.
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": ("$.customer",)},
    "mask-number": {"mask": ("$.amount",)},
    "hash": {"hash_fields": ("key",)},
    "hash-field": {"hash_fields": ("$.customer",)},
    "drop-header": {"drop_headers": ("trace",)},
}
ARMS = [*CHANGES, "avro-plain", "avro-mask"]
KINDS = ("orders", "avro")
#: Ratio of the records per second to those of the plain arm.
WANTED = 0.7


def measure_changed(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send the same archives with each arm of the worker engine in turns.

    Raises:
        RuntimeError: If an archive isn't complete.
        VerifyError: If an arm's target doesn't hold what was planned.
    """
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        archives = {kind: folder / kind for kind in KINDS}
        for kind, archive in archives.items():
            say(f"changed: sending and draining {RECORDS:,} records, {kind}")
            measured(produce, servers, kind, RECORDS, kind)
            drain(archive, servers, kind)
            if not validate(str(archive), servers)["complete"]:
                raise RuntimeError("the archive isn't complete")
            if kind == "avro":
                row = {"id": AVRO_ID, "schema": AVRO_SCHEMA}
                (archive / "schemas.json").write_text(json.dumps({"schemas": [row]}))
        arms = {arm: partial(_run, arm, archives, servers) for arm in ARMS}
        costs = take_turns(arms, rounds, say, "changed")
    figures = {"records": RECORDS, "partitions": PARTITIONS, "rounds": rounds}
    marks = []
    for arm in ARMS:
        head, change = _parts(arm)
        if change == "plain":
            continue
        base = f"{head}-plain" if head else "plain"
        marks.append(compared(f"republish, {arm} vs. {base}", costs, arm, base, WANTED))
        marks += [
            compared(f"the same, {what}", costs, arm, base, None, figure=figure)
            for what, figure in (
                ("processor time", "cpu_seconds"),
                ("with planning and verifying", "process_seconds"),
            )
        ]
    return figures | {"arms": figures_of(costs, RECORDS)}, marks


def _parts(arm: str) -> tuple[str, str]:
    """Return what is special about an arm's values, and its change."""
    head, _, change = arm.partition("-")
    return (head, change) if head == "avro" else ("", arm)


def _run(arm: str, archives: Mapping[str, Path], servers: str) -> Cost:
    head, name = _parts(arm)
    change = CHANGES[name]
    archive = str(archives["avro" if head == "avro" else "orders"])
    with topic_of_an_arm(servers) as target:
        cost: Cost = measured(worker, archive, servers, target, change).answer
    return cost
