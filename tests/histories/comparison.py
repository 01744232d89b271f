"""Histories in memory and on real parts: `python -m tests.histories.comparison --seeds 30`.

The fakes are held to a real broker and a real Spark: the same steps must give the same exit codes,
and the same archive up to names and times. Nobody dies here: who is killed when differs with what
each world writes. Prints the first difference of a history, which is a bug of a fake, or shows what
only a real part does.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from demo.broker import KafkaCluster
from tests.brokers import SHORT_LIVED
from tests.histories.history import Ended, History, Step, draw
from tests.histories.log import Transaction
from tests.histories.topic import FakeTopic
from tests.histories.truth import PARTITIONS
from tests.histories.world import MemoryWorld
from tests.sequences.topic import Topic
from tests.sequences.world import BrokerWorld
from tests.spark_session import spark_session

__all__ = ["shape_of"]

#: Steps that need a broker of their own, or a log cleaner, whose choice is its own.
_LEFT_OUT = {"cut", "lose_segment", "compact", "open_transaction", "pass_time"}
#: What differs from run to run, in any document.
_OWN = {
    *("sealed_at", "sha256", "previous", "path", "bytes", "index_sha256", "digest", "hash"),
    *("journal", "cluster_id", "fingerprint", "leader_epoch", "provenance", "replaces", "window"),
}


class _OneByOne(FakeTopic):
    """Sends as the real producer of `Topic` does: each record to a partition of its own choice."""

    def _make(self) -> None:
        kept = self.chance
        # The broker chooses the id.
        self.chance = random.Random(len(self.lives))
        super()._make()
        self.chance = kept

    def _send(self, number: int, transaction: Transaction | None = None) -> None:
        for _ in range(number):
            record = self.next_record()
            log = self.partitions[self.chance.randrange(PARTITIONS)]
            log.append([record], transaction)


class _Settled(random.Random):
    """Lets a fake Spark do what the real one does on one machine: a task for each partition."""

    def random(self) -> float:
        return 0.9


class _Calm:
    """Lets nobody die, nor be suspended."""

    def run(self, chance: random.Random, *arguments: str, **_: Any) -> tuple[Ended, str]:
        ended: tuple[Ended, str] = super().run(  # type: ignore[misc]
            chance, *arguments, may_die=False, meanwhile=None
        )
        return ended


class _InMemory(_Calm, MemoryWorld):
    def __init__(self, folder: Path, name: str, seed: int) -> None:
        super().__init__(folder, is_compacted=False, seed=seed)
        self.topic = _OneByOne(name, False, random.Random(seed), log=self.log)
        self.machine.chance = _Settled(seed)
        self.machine.now = datetime.now(timezone.utc)


class _OnBroker(_Calm, BrokerWorld):
    """A world of real parts, in which nobody dies."""


@dataclass
class _Seen:
    """What a history came to, step by step."""

    steps: list[tuple[str, Any]]
    failure: str = ""


def shape_of(root: Path, lives: Sequence[str]) -> Any:
    """Return what an archive says, without names and times of its own.

    Args:
        root: The archive.
        lives: The ids that the topic had, oldest first: each counts as its place among them.
    """
    numbers = {life: number for number, life in enumerate(lives)}
    found: dict[str, Any] = {}
    for path in sorted(root.glob("generations/*/generation.json")):
        found[path.parent.name] = _plain(json.loads(path.read_text()), numbers)
        for receipt in sorted(path.parent.glob("receipts/*.json")):
            said = _plain(json.loads(receipt.read_text()), numbers)
            found[f"{path.parent.name}/{receipt.name}"] = said
    windows = []
    for path in root.glob("windows/*/receipt.json"):
        plan = json.loads((path.parent / "plan.json").read_text())
        replaced = len(plan.get("replaces", ()))
        said = _plain(json.loads(path.read_text()), numbers)
        windows.append((plan.get("kind"), replaced, json.dumps(said, sort_keys=True)))
    found["windows"] = sorted(windows)
    return found


def _plain(document: Any, lives: dict[str, int]) -> Any:
    if isinstance(document, dict):
        found = {key: _plain(each, lives) for key, each in document.items() if key not in _OWN}
        found.pop("opened_at", None)
        if "topics" in found:
            found["topics"] = [_life(each, lives) for each in document["topics"].values()]
        return found
    if isinstance(document, list):
        rows = [_plain(each, lives) for each in document]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    return document


def _life(topic_id: str, lives: dict[str, int]) -> str:
    life, _, log = topic_id.partition("~")
    return f"{lives[life]}~{log}"


def _play(world: Any, steps: Sequence[Step], end: int) -> _Seen:
    history = History(world, random.Random())
    seen = _Seen([])
    try:
        for step in steps:
            history.run_one(step)
            seen.steps.append(_state(history, str(step)))
        history.finish(end)
        seen.steps.append(_state(history, "recovery"))
    except AssertionError as error:
        seen.failure = str(error).splitlines()[0]
    seen.steps.append(("history", list(history.history)))
    return seen


def _state(history: History, step: str) -> tuple[str, Any]:
    codes = [line for line in history.history if not line.startswith("    ")]
    shape = shape_of(history.folder, history.topic.lives) if history.archive.exists else {}
    ends = [line.rpartition(" -> ")[2] for line in codes if " -> " in line]
    return step, {"exit codes": ends, "archive": shape}


def first_difference(left: _Seen, right: _Seen) -> str:
    """Describe where two worlds part; empty if they don't."""
    for (step, one), (_, other) in zip(left.steps, right.steps, strict=False):
        if step == "history":
            continue
        if one != other:
            return f"after {step}:\n{_apart(one, other)}"
    if left.failure != right.failure:
        return f"in memory: {left.failure or 'no failure'}; real: {right.failure or 'no failure'}"
    return ""


def _apart(one: Any, other: Any, where: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return _apart(one.get(key), other.get(key), f"{where}/{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (mine, yours) in enumerate(zip(one, other, strict=True)):
            if mine != yours:
                return _apart(mine, yours, f"{where}[{at}]")
    return f"  {where}\n  in memory: {one}\n  real:      {other}"


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - a command prints


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.histories.comparison", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30, metavar="N")
    parser.add_argument("--steps", type=int, default=8, metavar="N")
    parser.add_argument("--first", type=int, default=random.randrange(1 << 30), metavar="N")
    parser.add_argument("--details", action="store_true", help="print both histories that part")
    options = parser.parse_args(arguments)
    parted: list[int] = []
    steps = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="histories-")))
        broker = stack.enter_context(KafkaCluster(folder / "kafka", java_options=SHORT_LIVED))
        spark = stack.enter_context(spark_session(folder / "warehouse"))
        for seed in range(options.first, options.first + options.seeds):
            name, servers = f"s-{seed}", broker.bootstrap_servers
            topic = Topic(name, False, random.Random(seed), bootstrap=servers)
            real = _OnBroker(spark, topic, folder / "real" / name)
            memory = _InMemory(folder / "memory" / name, name, seed)
            drawn = draw(memory, random.Random(seed), options.steps)
            drawn = [step for step in drawn if step.name not in _LEFT_OUT]
            steps += len(drawn)
            end = random.Random(seed).getrandbits(32)
            with memory.machine:
                left = _play(memory, drawn, end)
            right = _play(real, drawn, end)
            apart = first_difference(left, right)
            say(f"seed {seed}: {len(drawn)} steps{': ' + apart if apart else ', the same'}")
            if apart:
                parted.append(seed)
                if options.details:
                    for seen in (left, right):
                        say("\n".join(seen.steps[-1][1]))
            real.discard()
    say(f"{options.seeds} histories of {steps} steps: {len(parted)} differ {parted or ''}")
    return 1 if parted else 0


if __name__ == "__main__":
    sys.exit(main())
