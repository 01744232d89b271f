"""Thousands of changed archives: `python -m tests.agreement.soak --mutations 10000 --seed 1`.

Prints a line for each on which judges or readers disagree, and a table by kind of change; ends with
exit code 1 when there was one.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.agreement.agreement import EXCUSES, Outcome, run, table
from tests.agreement.archives import make_archives, master_key


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command prints


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.agreement.soak", description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first one")
    parser.add_argument("--details", action="store_true", help="say what each judge said")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="kafka-drain-agreement-") as name:
        folder = Path(name)
        with master_key(folder):
            archives = make_archives(folder / "archives")
            numbers = range(options.first, options.first + options.mutations)
            for outcome in run(archives, folder, options.seed, numbers):
                outcomes.append(outcome)
                if outcome.disagreements:
                    say(outcome.line)
                    if options.details:
                        for judge, details in outcome.judged.details.items():
                            say(f"    {judge}: {'; '.join(details)[-600:]}")
    say(table(outcomes))
    excused = Counter(excuse for each in outcomes for excuse in each.excuses)
    for excuse, number in sorted(excused.items()):
        say(f"{excuse}, {number:,}: {EXCUSES[excuse]}")
    failed = sum(bool(each.disagreements) for each in outcomes)
    say(
        f"seed {options.seed}: {len(outcomes):,} changes in {time.monotonic() - began:,.0f} s, "
        f"{failed:,} with disagreements"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
