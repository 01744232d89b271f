"""Count the product files that a change touches, by what each of twelve names today.

    python -m scripts.change_reach            # this checkout
    python -m scripts.change_reach COMMIT…    # beside others

A name counts where code has it, not where a docstring or a comment does. Patches would show the
same for one commit; names can be counted at every one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scripts.code_lines import lines_of_code

ROOT = Path(__file__).parents[1]
PRODUCT = ("plugins", "spark_jobs", "dags")


@dataclass(frozen=True)
class Change:
    """A change, and a name that whoever makes it meets in each file that it touches.

    Attributes:
        title: The change.
        name: Regular expression of the name.
        at_most: Number of files; it may only fall.
    """

    title: str
    name: str
    at_most: int


#: Formats, reasons and erasures have one file more: the verifier, which shares no code.
CHANGES = (
    Change("rename an option of many verbs", r"acknowledge[_-]expired", 7),
    Change("rename a key that is a flag, too", r"max[_-]manifest[_-]lines", 4),
    Change("rename an option of the republish", r"bytes[_-]per[_-]second", 5),
    Change("add a key that is a flag, too", r"max[_-]future[_-]days", 5),
    Change("add an option to the republish", r"mark[_-]changed", 3),
    Change("add a field to receipts", r"nul_header_names", 4),
    Change("add a verb with an approval", r"(?i)eras(e|ure)", 50),
    Change("add a reason for a gap", r"(?i)\bcompacted\b", 30),
    Change("add a finding", r"(?i)offset[_-]unexplained", 7),
    Change("add a file format", r"(?i)\borc\b", 10),
    Change("add a store", r"(?i)hdfs", 10),
    Change("add an engine", r"(?i)kubernetes", 6),
)


def sources(commit: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the product's Python sources: of a commit, or of this checkout."""
    if commit is None:
        for root in PRODUCT:
            for path in sorted((ROOT / root).rglob("*.py")):
                yield PurePosixPath(path.relative_to(ROOT)), path.read_text()
        return
    listed = _git("ls-tree", "-r", "--name-only", commit, "--", *PRODUCT)
    for name in listed.splitlines():
        if name.endswith(".py"):
            yield PurePosixPath(name), _git("show", f"{commit}:{name}")


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout


def touched(commit: str | None = None) -> dict[str, list[PurePosixPath]]:
    """Return the files that each change touches, by its title."""
    found: dict[str, list[PurePosixPath]] = {change.title: [] for change in CHANGES}
    for path, source in sources(commit):
        code = lines_of_code(source)
        for change in CHANGES:
            if re.search(change.name, code):
                found[change.title].append(path)
    return found


def main(commits: list[str]) -> None:
    """Print files, and the folders that they are in, for this checkout and for some commits."""
    columns = [touched(commit) for commit in [*commits, None]]
    print(f"{'files in folders':34}", *(f"{name[:8]:>10}" for name in [*commits, "now"]))
    for change in CHANGES:
        cells = []
        for column in columns:
            files = column[change.title]
            cells.append(f"{len(files)} in {len({path.parent for path in files})}")
        print(f"{change.title:34}", *(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main(sys.argv[1:])
