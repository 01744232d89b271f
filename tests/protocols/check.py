"""Check the protocols' models with Spin: `make models`.

Spin looks at every order of steps that a model has. A model as it is must keep each promise; with a
mutation it must break the promise that is named here, by a history that is printed. A limit is a
promise that isn't made: it is broken in the same way.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
#: Memory that a search may take, in megabytes.
MEMORY = 6_000


@dataclass(frozen=True)
class Variation:
    """A model, and what is different in it.

    Attributes:
        model: The file's name.
        what: What it is, in words.
        flags: Macros that make it so.
        breaks: The promise that it breaks; empty if it keeps all.
    """

    model: str
    what: str
    flags: tuple[str, ...] = ()
    breaks: str = ""

    @property
    def macros(self) -> list[str]:
        """The flags, as Spin's options."""
        return [f"-D{flag}" for flag in self.flags]


VARIATIONS = (
    Variation("republish", "as it is"),
    Variation("republish", "progress before the fence", ("PROGRESS_BEFORE_FENCE",), "once"),
    Variation("republish", "one producer for all", ("KEPT_PRODUCER",), "nothing_lost"),
    Variation("republish", "progress read while pending", ("PROGRESS_ON_SIGHT",), "progress_found"),
    Variation("republish", "the same, at opening", ("OPENED_ON_SIGHT",), "progress_found"),
    Variation("republish", "opened.json read last", ("OPENED_READ_LAST",), "progress_found"),
    Variation("lease", "one file"),
    Variation("lease", "one file, clocks 20 s apart, in time", ("APART=1", "IN_TIME")),
    Variation("lease", "one file, a clock 140 s ahead, in time", ("AHEAD=7", "IN_TIME")),
    Variation("lease", "one file, a minute early", ("EARLIER=3",), "exclusive"),
    Variation("lease", "limit: clocks 40 s apart, in time", ("APART=2", "IN_TIME"), "exclusive"),
    Variation("lease", "limit: clocks 20 s apart, suspended", ("APART=1",), "exclusive"),
    Variation("lease", "limit: a store that overwrites", ("OVERWRITTEN",), "exclusive"),
    Variation("lease", "limit: a store that removes", ("REMOVED_UNSEEN",), "exclusive"),
    Variation("lease", "numbered files", ("NUMBERED",)),
    Variation("lease", "numbered, clocks 20 s apart", ("NUMBERED", "APART=1", "IN_TIME")),
    Variation("lease", "numbered, a minute early", ("NUMBERED", "EARLIER=3"), "exclusive"),
    Variation("lease", "numbered, not listed again", ("NUMBERED", "UNLISTED"), "exclusive"),
)


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        states: Number of states.
        broken: The promise that is broken, or what else is wrong; empty for nothing.
    """

    states: int
    broken: str


def found_in(report: str) -> Found:
    """Return what Spin's verifier reports; it ends with exit code 0 whatever it finds."""
    states = re.search(r"(\d+) states, stored", report)
    errors = re.search(r"errors: (\d+)", report)
    if states is None or errors is None:
        return Found(0, "the search was ended")
    broken = re.search(r"pan:\d+: (?:assertion violated )?(.+) \(at depth \d+\)", report)
    if broken is not None:
        return Found(int(states[1]), broken[1].strip("()"))
    if errors[1] != "0" or "Search not completed" in report or "too small" in report:
        return Found(int(states[1]), "the search wasn't completed")
    return Found(int(states[1]), "")


def search(variation: Variation, folder: Path) -> Found:
    """Look at all states of a variation, the nearest first; leave a history that breaks a promise.

    Raises:
        subprocess.CalledProcessError: When Spin or the C compiler refuses the model.
    """
    model = FOLDER / f"{variation.model}.pml"
    subprocess.run(["spin", "-a", *variation.macros, str(model)], cwd=folder, check=True)
    options = ["-O2", "-w", "-DBFS", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY}"]
    subprocess.run(["cc", *options, "-o", "pan", "pan.c"], cwd=folder, check=True)
    ran = subprocess.run(["./pan", "-w24"], cwd=folder, stdout=subprocess.PIPE, text=True)
    return found_in(ran.stdout)


def history(variation: Variation, folder: Path) -> list[str]:
    """Return the steps that break a promise, as the model tells them."""
    model = FOLDER / f"{variation.model}.pml"
    command = ["spin", "-t", "-T", "-B", *variation.macros, "-k", f"{model.name}.trail", str(model)]
    ran = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    told = ("attempt ", "record ", "writer ", "Kafka ", "a tick ")
    return [line for line in map(str.strip, ran.stdout.splitlines()) if line.startswith(told)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.protocols.check", description=__doc__)
    parser.add_argument("only", nargs="*", help="words that a variation's description has")
    options = parser.parse_args(arguments)
    for command in ("spin", "cc"):
        if shutil.which(command) is None:
            say(f"{command} isn't there; install Spin 6.5 (Debian's package spin) and a C compiler")
            return 1
    wrong = 0
    for variation in VARIATIONS:
        name = f"{variation.model}: {variation.what}"
        if not all(word in name for word in options.only):
            continue
        with tempfile.TemporaryDirectory(prefix="kafka-drain-models-") as folder:
            began = time.monotonic()
            found = search(variation, Path(folder))
            seconds = time.monotonic() - began
            say(f"{name}: {outcome(found.broken)}, {found.states:,} states, {seconds:.0f} s")
            if found.broken:
                for line in history(variation, Path(folder)):
                    say(f"    {line}")
            if found.broken != variation.breaks:
                wrong += 1
                say(f"    EXPECTED: {outcome(variation.breaks)}")
    return 1 if wrong else 0


def outcome(broken: str) -> str:
    return f"breaks {broken}" if broken else "keeps its promises"


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command prints


if __name__ == "__main__":
    sys.exit(main())
