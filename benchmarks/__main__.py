"""`python -m benchmarks`: measure all costs on this machine and compare them with alternatives.

drain      a drain compared with a stock Spark job, Kafka to nowhere, and a handwritten script
warm       the second drain of a group, in a warm Spark session
connect    drains on a warm Spark Connect server compared with scripts
hot        one partition with nine tenths of all records
hourly     1,000 new records, from the operator's start to the sealed receipt
memory     the peak memory of each job with 2 and with 20 million records
republish  both engines compared with Spark's sink and a bare loop
verified   a whole republish, by its command, compared with a loop that verifies nothing
changed    a republish with each preset that changes records compared with one as they are
batch      validation of 2,000,000 records, as a share of the drain's time
growth     validation of a small new batch in archives of 1,000 to 1,000,000 files
long       what a month, a year, and ten years of hourly drains cost
requests   what each operation asks of an object store, and what that costs
workers    a republish on one to four workers of a cluster, and what `kafka-drain size` foretells
scale      the cost of planning, specs and leases with thousands of partitions and pipelines
wide       10,000 partitions in one drain, validated and republished by the commands

Arms run in turns after a warm-up round, and ratios are taken within a round. An arm with a wrong
outcome gets no figure. Takes about two hours on two otherwise idle processors.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.marks import Mark, Say, markdown
from benchmarks.processes import load_average

RESULTS = Path(__file__).with_name("results.json")

Part = Callable[[Path, int, Say], tuple[dict[str, Any], list[Mark]]]

#: The function for each part, imported only when it is measured, so that this process stays small.
PARTS = {
    "drain": "benchmarks.drain:measure_drain",
    "warm": "benchmarks.warm:measure_warm",
    "connect": "benchmarks.connect:measure_connect",
    "hot": "benchmarks.hot:measure_hot",
    "hourly": "benchmarks.hourly:measure_hourly",
    "memory": "benchmarks.memory:measure_memory",
    "republish": "benchmarks.republish:measure_republish",
    "verified": "benchmarks.verified:measure_verified",
    "changed": "benchmarks.republish_changed:measure_changed",
    "batch": "benchmarks.batch:measure_batch",
    "growth": "benchmarks.growth:measure_growth",
    "long": "benchmarks.long:measure_long",
    "requests": "benchmarks.store_requests:measure_requests",
    "workers": "benchmarks.workers:measure_workers",
    "scale": "benchmarks.scale:measure_scale",
    "wide": "benchmarks.wide:measure_wide",
}


def main() -> int:
    """Measure, write the results and print the table; return 1 if a target isn't met."""
    options = _parse()
    results = _read(options.output)
    names = options.parts or list(PARTS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-drain-bench-", dir=options.folder) as folder:
        for name in names:
            say(f"{name}: starting, load average {load_average()}")
            started = time.monotonic()
            figures, marks = _part(name)(Path(folder) / name, options.rounds, say)
            results["parts"][name] = {
                "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "took_seconds": round(time.monotonic() - started),
                "machine": machine(),
                "marks": [asdict(mark) for mark in marks],
                **figures,
            }
            # Written after each part, because a later one may fail.
            options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            if options.output == RESULTS:
                page.update(results)
    marks = [Mark(**m) for name in names for m in results["parts"][name]["marks"]]
    print(markdown(marks))
    say(f"took {time.monotonic() - began:.0f} s; figures: {options.output}")
    return 1 if any(mark.met is False for mark in marks) else 0


def _part(name: str) -> Part:
    module, _, function = PARTS[name].partition(":")
    part: Part = getattr(import_module(module), function)
    return part


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to measure (all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per figure (%(default)s)")
    parser.add_argument("--folder", help="parent of the temporary folders (the system's)")
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        help="JSON file for the results; parts that aren't measured are kept",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    return options


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"{datetime.now().astimezone():%H:%M:%S} {line}", file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any]:
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {"parts": {}}


def machine() -> dict[str, Any]:
    """Return the figures' environment: processors, memory, versions, and the machine's load."""
    # Imported here because each measured process imports this module again.
    from kafka_drain.spark.cds_training import class_archive_of_this_machine

    packages = ("apache-airflow", "confluent-kafka", "pyarrow", "pyspark")
    java = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True).stderr
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30), 1),
        "python": platform.python_version(),
        "java": java.split('"')[1] if '"' in java else "unknown",
        # Has a large effect: half the time of an hourly drain.
        "class_archive": "yes" if class_archive_of_this_machine() else "no",
        **{name: version(name) for name in packages},
        "load": load_average(),
    }


if __name__ == "__main__":
    sys.exit(main())
