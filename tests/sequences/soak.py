"""Random histories on real parts: `python -m tests.sequences.soak --sequences 200 --steps 10`.

Prints a line for each, and the whole history of one that fails; ends with exit code 1 when one did.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence as Arguments
from contextlib import ExitStack
from pathlib import Path

from demo.broker import KafkaCluster
from tests.brokers import SHORT_LIVED
from tests.histories.history import History, draw
from tests.sequences.topic import Topic, hurry_cleaner
from tests.sequences.world import BrokerWorld
from tests.spark_session import spark_session


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - a command prints


def main(arguments: Arguments[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.sequences.soak", description=__doc__)
    parser.add_argument("--sequences", type=int, default=200, metavar="N")
    parser.add_argument("--steps", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first one")
    parser.add_argument("--histories", action="store_true", help="print those that pass as well")
    options = parser.parse_args(arguments)
    failed: list[int] = []
    green = killed = commands = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-drain-soak-")))
        broker = stack.enter_context(KafkaCluster(folder / "kafka", java_options=SHORT_LIVED))
        spark = stack.enter_context(spark_session(folder / "warehouse"))
        stack.callback(hurry_cleaner(broker.bootstrap_servers, "100"))
        for number in range(options.first, options.first + options.sequences):
            seed = options.seed + number
            chance = random.Random(seed)
            topic = Topic(
                f"s-{number}",
                is_compacted=number % 5 == 4,
                chance=random.Random(seed),
                bootstrap=broker.bootstrap_servers,
                broker=broker,
            )
            world = BrokerWorld(spark, topic, folder / f"archive-{number}")
            sequence = History(world, random.Random(), starts_late=chance.random() < 0.3)
            try:
                sequence.run(draw(world, chance, options.steps), end=seed)
            except AssertionError:
                failed.append(seed)
                say("\n".join(["FAILED", *sequence.history, traceback.format_exc()]))
            else:
                if options.histories:
                    say("\n".join(sequence.history))
            green += sequence.ended_green
            killed += sequence.killed
            commands += sequence.commands
            say(f"sequence {number}, seed {seed}: {sequence.summary()}")
            world.discard()
    say(
        f"{options.sequences} sequences of {options.steps} steps: {len(failed)} failed "
        f"{failed or ''}; {commands} commands, {killed} of them killed; {green} ended green, the "
        "others had lost records that are nowhere else"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
