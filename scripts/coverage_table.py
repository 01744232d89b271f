"""Print the test coverage by package: `python -m scripts.coverage_table FILE`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["Measured", "by_package", "main", "table"]


@dataclass
class Measured:
    """The coverage of a set of modules.

    Attributes:
        statements: Number of statements.
        run: Number of statements that were run.
        branches: Number of branches after conditions.
        taken: Number of branches that were taken.
    """

    statements: int = 0
    run: int = 0
    branches: int = 0
    taken: int = 0

    def add(self, summary: Mapping[str, Any]) -> None:
        """Add a file's summary from coverage's JSON."""
        self.statements += summary["num_statements"]
        self.run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.taken += summary["covered_branches"]

    @property
    def percent(self) -> float:
        """The coverage of statements and branches together, as in coverage's own reports."""
        whole = self.statements + self.branches
        return 100 * (self.run + self.taken) / whole if whole else 100.0


def by_package(files: Mapping[str, Any]) -> dict[str, Measured]:
    """Return the coverage of each package, by its name.

    Args:
        files: The files in coverage's JSON, by their path in the repository.
    """
    found: dict[str, Measured] = defaultdict(Measured)
    for path, measured in files.items():
        # The first folder contains the packages: plugins, spark_jobs.
        package = ".".join(PurePosixPath(path).parent.parts[1:])
        found[package].add(measured["summary"])
    return dict(sorted(found.items()))


def table(packages: Mapping[str, Measured]) -> list[str]:
    """Return the lines of a table; the last line is the total."""
    whole = Measured(
        *(sum(getattr(p, name) for p in packages.values()) for name in Measured.__match_args__)
    )
    lines = [
        f"{'package':<36}{'statements':>12}{'not run':>9}{'branches':>10}{'not taken':>11}{'':>8}"
    ]
    for name, seen in [*packages.items(), ("all", whole)]:
        left, not_taken = seen.statements - seen.run, seen.branches - seen.taken
        lines.append(
            f"{name:<36}{seen.statements:>12,}{left:>9,}{seen.branches:>10,}{not_taken:>11,}"
            f"{seen.percent:>6.1f} %"
        )
    return lines


def main(arguments: list[str]) -> int:
    """Print the table for a file written by `coverage json`."""
    [path] = arguments
    files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    print("\n".join(table(by_package(files))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
