"""What a whole republish costs: its command, which plans, sends, reads back and compares.

bare     a confluent-kafka loop over pyarrow batches in one process, which checks nothing; without
         its start
command  `kafka-drain republish --apply`, with the start of all its processes

Arms run in turns, with values of 190 bytes and of 1 KiB. An arm whose records aren't all in the
target gets no figure.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, compared, figures_of, run_command, take_turns
from benchmarks.batch import drain, validate
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import measured
from benchmarks.republish import to_new_topics
from benchmarks.worker_arms import bare
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_verified"]

#: Number of records of each kind.
KINDS = {"orders": 2_000_000, "random": 500_000}


def measure_verified(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Send an archive of each kind with each arm in turns.

    Raises:
        RuntimeError: If a target doesn't hold what the archive holds.
    """
    figures: dict[str, Any] = {"rounds": rounds}
    marks = []
    with LocalKafka(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        for kind, records in KINDS.items():
            archive = folder / kind
            say(f"verified: sending and draining {records:,} records: {kind}")
            measured(produce, servers, kind, records, kind)
            drain(archive, servers, kind)
            if not validate(str(archive), servers)["complete"]:
                raise RuntimeError("the archive isn't complete")
            arms = {"bare": partial(_bare, str(archive), servers)}
            arms["command"] = partial(_command, str(archive), servers, records)
            costs = take_turns(to_new_topics(arms, servers), rounds, say, f"verified {kind}")
            figures[kind] = {"records": records, "arms": figures_of(costs, records)}
            what = f"republish of {kind}, command with verification vs. bare, processor time"
            marks.append(compared(what, costs, "command", "bare", None, figure="cpu_seconds"))
            shutil.rmtree(archive)
    return figures, marks


def _bare(archive: str, servers: str, target: str) -> Cost:
    cost: Cost = measured(bare, archive, servers, target).answer
    return cost


def _command(archive: str, servers: str, records: int, target: str) -> Cost:
    command = [*KAFKA_DRAIN, "republish", archive, "--bootstrap-servers", servers, "--json"]
    printed, cost = run_command([*command, "--target-topic", target, "--apply"])
    answer = json.loads(printed)
    if answer["verification"]["is_exact"] is not True or answer["records"] != records:
        raise RuntimeError(f"{target} isn't exact: {answer['verification']}")
    return cost
