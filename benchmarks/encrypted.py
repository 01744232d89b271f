"""What Parquet's encryption costs a drain and the validation that proves it.

Both arms drain the same topic, into new archives, by `kafka-drain drain`; `kafka-drain validate`,
which reads every record and compares it with what Spark read, has the key. The key is in a file, so
no KMS is asked: one would be asked once for each archive.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arms import KAFKA_DRAIN, compared, figures_of, run_command, take_turns
from benchmarks.kafka_records import produce
from benchmarks.marks import Mark, Say
from benchmarks.process_tree import Cost
from benchmarks.processes import load_average, measured
from demo.broker import KafkaCluster as LocalKafka

__all__ = ["measure_encrypted"]

TOPIC = "orders"
RECORDS = 2_000_000


def measure_encrypted(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Drain and validate with and without encryption in turns.

    Raises:
        RuntimeError: If a drain fails, or isn't complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = folder / "keys.json"
    keys.touch(0o600)
    keys.write_text(json.dumps({"orders": base64.b64encode(os.urandom(32)).decode()}))
    pipeline = folder / "pipeline.json"
    pipeline.write_text(json.dumps({"encryption": {"kms": "file", "key": "orders"}}))
    environment = {"KAFKA_DRAIN_KEY_FILE": str(keys)}
    sizes, validations = dict[str, int](), dict[str, list[Cost]]()
    with LocalKafka(folder / "broker") as broker:
        say(f"encrypted: sending {RECORDS:,} records")
        measured(produce, broker.bootstrap_servers, TOPIC, RECORDS)

        def drain(arm: str) -> Cost:
            archive = folder / "archive"
            kafka = [str(archive), "--bootstrap-servers", broker.bootstrap_servers, "--json"]
            options = ["--pipeline", str(pipeline)] if arm == "encrypted" else []
            command = [*KAFKA_DRAIN, "drain", *kafka, "--topic", TOPIC, "--master", "local[2]"]
            _, cost = run_command([*command, *options], environment)
            said, proof = run_command([*KAFKA_DRAIN, "validate", *kafka], environment)
            if json.loads(said)["verdict"] != "complete":
                raise RuntimeError(f"the drain isn't complete: {said}")
            sizes[arm] = sum(path.stat().st_size for path in archive.rglob("part-*.parquet"))
            validations.setdefault(arm, []).append(proof)
            shutil.rmtree(archive)
            return cost

        turns = {arm: partial(drain, arm) for arm in ("plain", "encrypted")}
        costs = take_turns(turns, rounds, say, "encrypted")
    # The first round of each warms caches up.
    proofs = {arm: taken[-rounds:] for arm, taken in validations.items()}
    larger = f"{sizes['encrypted'] / sizes['plain'] - 1:+.1%}, {sizes['plain'] / 1e6:,.1f} MB"
    what = "drain with encryption vs. without"
    marks = [
        compared(f"{what}, command", costs, "encrypted", "plain", None),
        compared(f"{what}, CPU seconds", costs, "encrypted", "plain", None, figure="cpu_seconds"),
        compared("validation of it", proofs, "encrypted", "plain", None),
        Mark(f"{what}, bytes of the files", larger, wanted="", met=None, load=load_average()),
    ]
    figures = {"records": RECORDS, "bytes": sizes, "arms": figures_of(costs, RECORDS)}
    return figures | {"validations": figures_of(proofs, RECORDS)}, marks
