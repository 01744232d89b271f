"""The soak: `python -m tests.faults.soak --kills 50 --zombies 15 --records 400000`.

Kills and pauses the real command at random moments, with a real broker and a real archive, until
everything is sent, in one and in two processes; then on Spark, whose executors are killed. An
auditor that is independent of the product compares source and target. Prints how many restarts
found committed progress, and ends with `lost 0, twice 0, out of order 0`, or with exit code 1.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from demo.broker import KafkaCluster
from kafka_drain.archive.archive import Archive
from kafka_drain.output import heard_by
from tests.faults.republishing import (
    ROOT,
    Audit,
    Run,
    audit,
    make_target,
    read_topic,
    send_all,
    torment,
    torment_executors,
    total,
)
from tests.faults.spark_cluster import standalone_spark

PARTITIONS = 6


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - a command prints


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--zombies", type=int, default=15, metavar="N")
    parser.add_argument("--records", type=int, default=400_000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), metavar="N")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        stack.enter_context(heard_by(say))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-drain-soak-")))
        say(f"seed {options.seed}, {options.records:,} records, logs in {folder}")
        broker = stack.enter_context(KafkaCluster(folder / "kafka"))
        found = soak(
            broker.bootstrap_servers,
            folder,
            kills=options.kills,
            zombies=options.zombies,
            records=options.records,
            chance=random.Random(options.seed),
        )
    print(found)  # noqa: T201 - a command prints
    return 0 if found.is_exact else 1


def soak(
    bootstrap: str, folder: Path, *, kills: int, zombies: int, records: int, chance: random.Random
) -> Audit:
    """Create an archive, send it under torment three times, and audit each run."""
    source = make_target(bootstrap, "source", PARTITIONS)
    send_all(bootstrap, source, PARTITIONS, records)
    archive = folder / "archive"
    command(folder, "drain", archive, "--bootstrap-servers", bootstrap, "--topic", source)
    command(folder, "validate", archive, "--bootstrap-servers", bootstrap)
    assert Archive.at(str(archive)).exists
    say("the archive is made and sealed")
    wanted = read_topic(bootstrap, source)
    audits: list[Audit] = []
    restarts = {"worker": 0, "spark": 0}

    def audited(target: str) -> None:
        audits.append(audit(wanted, read_topic(bootstrap, target)))
        say(f"{target}: {audits[-1].records:,} records, {audits[-1]}")

    def make_run(nth: int) -> Run:
        return Run(archive, bootstrap, make_target(bootstrap, f"worker-{nth}", PARTITIONS), folder)

    for run in torment(make_run, records, kills=kills, zombies=zombies, chance=chance):
        audited(run.target)
        restarts["worker"] += run.restarts()
    with standalone_spark(folder) as (master, workers):
        run = Run(archive, bootstrap, make_target(bootstrap, "spark", PARTITIONS), folder)
        torment_executors(
            run,
            records,
            master=master,
            workers=workers,
            kills=max(1, kills // 2),
            chance=chance,
        )
        audited("spark")
        restarts["spark"] += run.restarts(by_process=True)
    counts = ", ".join(f"{engine} {number:,}" for engine, number in restarts.items())
    say(f"restarts that found committed progress: {counts}")
    return total(audits)


def command(folder: Path, *arguments: object) -> None:
    """Run `kafka-drain` to completion."""
    log = folder / f"{arguments[0]}.log"
    with log.open("wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, arguments)],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            check=False,
        )
    assert ended.returncode == 0, log.read_text()


if __name__ == "__main__":
    sys.exit(main())
