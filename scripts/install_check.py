"""Check that kafka-drain can be installed with the pins that an Airflow release came with.

Airflow's own constraints aren't on a package index. This resolves what they have of the packages
that matter here, as they are made: Airflow and common providers, each at its newest version of the
release's day. The official pins of other packages may differ. Then it resolves kafka-drain with
these pins. It needs an index with upload times, and installs nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CASES", "Case", "main", "official_pins", "resolve", "without"]

ROOT = Path(__file__).resolve().parents[1]
UV = str(Path(sys.executable).parent / "uv")
#: Beside Airflow, in its constraints: what kafka-drain needs or shares an environment with.
PROVIDERS = """
    amazon[s3fs] apache-kafka apache-spark cncf-kubernetes common-compat fab openlineage postgres
""".split()
#: Extras that are resolved with each of those for Spark.
EXTRAS = ("s3", "kubernetes", "postgres")


@dataclass(frozen=True)
class Case:
    """An environment.

    Attributes:
        airflow: Version of Airflow.
        until: The day after its release.
        spark: Extra that brings Spark.
        pythons: Versions of Python.
        raised: Packages whose pin is too old for kafka-drain, and has to be left out.
    """

    airflow: str
    until: str
    spark: str
    pythons: tuple[str, ...]
    raised: tuple[str, ...] = ()


CASES = (
    Case("2.11.2", "2026-03-15", "spark", ("3.10", "3.12")),
    Case("3.0.6", "2025-08-30", "spark", ("3.12",), ("apache-airflow-providers-common-compat",)),
    Case("3.1.8", "2026-03-12", "spark", ("3.10", "3.13")),
    Case("3.2.2", "2026-05-30", "connect", ("3.10", "3.13")),
    Case("3.3.2", "2026-09-18", "connect", ("3.10", "3.13")),
    # A full pyspark, without the Spark provider.
    Case("3.3.2", "2026-09-18", "pyspark", ("3.12",)),
)


def without(pins: str, names: tuple[str, ...]) -> str:
    """Return constraints without those of some packages."""
    return "".join(
        line
        for line in pins.splitlines(keepends=True)
        if re.split(r"[=\[ ]", line, maxsplit=1)[0] not in names
    )


def resolve(python: str, *arguments: str) -> str:
    """Return the pins that uv resolves; raises CalledProcessError with its explanation."""
    command = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", python, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def official_pins(case: Case, python: str) -> str:
    """Return the pins that a release came with, without those that are too old for kafka-drain.

    Raises:
        CalledProcessError: If they can't be resolved.
    """
    names = [f"apache-airflow-providers-{name}" for name in PROVIDERS]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join([f"apache-airflow=={case.airflow}", *names]))
        wanted.flush()
        return without(resolve(python, "--exclude-newer", case.until, wanted.name), case.raised)


def check(case: Case, python: str, folder: Path) -> str:
    """Return how many pins a resolution kept, in words.

    Raises:
        CalledProcessError: If kafka-drain doesn't fit.
    """
    pins = folder / "pins.txt"
    pins.write_text(official_pins(case, python))
    extras = [word for extra in (case.spark, *EXTRAS) for word in ("--extra", extra)]
    found = resolve(python, "pyproject.toml", *extras, "--constraint", str(pins))
    kept = {*found.splitlines()} & {*pins.read_text().splitlines()}
    return f"{len(kept)} of {len(found.splitlines())} packages as pinned"


def main() -> int:
    """Print a line for each environment; return 1 if kafka-drain doesn't fit one."""
    failed = 0
    for case in CASES:
        for python in case.pythons:
            who = f"Airflow {case.airflow}, Python {python}, [{','.join((case.spark, *EXTRAS))}]"
            raised = f", {', '.join(case.raised)} raised" if case.raised else ""
            with tempfile.TemporaryDirectory() as folder:
                try:
                    print(f"{who}: {check(case, python, Path(folder))}{raised}", flush=True)
                except subprocess.CalledProcessError as error:
                    failed = 1
                    print(f"{who}: DOESN'T FIT\n{error.stderr}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
