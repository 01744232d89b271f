"""`python -m benchmarks.validation`: what validation costs, against the marks set for it.

batch     2,000,000 records of a real broker and a real drain: the share of the drain's time
manifest  a manifest of 1,000,000 lines, and its receipts: time and memory
growth    a small new batch in archives of 1,000 to 100,000 files

About five minutes on two processors that nobody else uses.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.batch import measure_batch
from benchmarks.growth import measure_growth
from benchmarks.manifest_lines import measure_manifest
from benchmarks.marks import Mark, Say, markdown
from benchmarks.processes import load_average

RESULTS = Path(__file__).with_name("results-validation.json")

Part = Callable[[Path, int, Say], tuple[dict[str, Any], list[Mark]]]

PARTS: dict[str, Part] = {
    "batch": measure_batch,
    "manifest": measure_manifest,
    "growth": measure_growth,
}


def main() -> int:
    """Measure, write the results and print the table; 1 when a mark isn't met."""
    options = _parse()
    results = _read(options.output)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-drain-bench-", dir=options.folder) as folder:
        for name in options.only or PARTS:
            say(f"{name}: begins, load average {load_average()}")
            figures, marks = PARTS[name](Path(folder) / name, options.rounds, say)
            results["parts"][name] = {
                "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "machine": machine(),
                "marks": [asdict(mark) for mark in marks],
                **figures,
            }
            # After each part: a later one may fail.
            options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    marks = [Mark(**m) for name in PARTS for m in results["parts"].get(name, {}).get("marks", [])]
    print(markdown(marks))
    say(f"took {time.monotonic() - began:.0f} s; figures: {options.output}")
    return 1 if any(mark.met is False for mark in marks) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument(
        "--only", action="append", choices=list(PARTS), help="measure this part; can be repeated"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each figure (%(default)s)")
    parser.add_argument("--folder", help="where to put temporary folders (the system's)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="JSON file; parts that aren't measured stay"
    )
    return parser.parse_args()


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"{datetime.now():%H:%M:%S} {line}", file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any]:
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {"parts": {}}


def machine() -> dict[str, Any]:
    packages = ("pyarrow", "pyspark", "confluent-kafka")
    return {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "load": load_average(),
    }


if __name__ == "__main__":
    sys.exit(main())
