"""Create an environment with the pins that an Airflow release came with, and what the tests need.

The pins are those of `scripts/install_check.py`. What they don't have is at its newest version.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.install_check import CASES, EXTRAS, ROOT, UV, Case, official_pins, resolve, without

__all__ = ["case_of", "main"]

#: Beside the extras of `scripts/install_check.py`: what the tests import.
FOR_TESTS = ("--extra", "demo", "--extra", "protobuf", "--group", "dev")
#: Pinned, but the tests need a newer one.
RAISED = ("pyiceberg",)


def case_of(airflow: str) -> Case:
    """Return the environment of an Airflow release in which Spark's driver can run.

    Raises:
        SystemExit: If none is known; the text has the releases.
    """
    cases = {case.airflow: case for case in CASES if case.spark != "connect"}
    if airflow in cases:
        return cases[airflow]
    known = ", ".join(cases)
    raise SystemExit(f"the pins of Airflow {airflow or '?'} aren't known, expected one of {known}")


def main(airflow: str, environment: Path) -> None:
    """Create the environment, or update it; needs the network.

    Raises:
        CalledProcessError: If kafka-drain doesn't fit, or a package can't be installed.
        SystemExit: As `case_of`.
    """
    case = case_of(airflow)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    extras = [word for extra in (case.spark, *EXTRAS) for word in ("--extra", extra)]
    with tempfile.TemporaryDirectory() as folder:
        pins, wanted = Path(folder) / "pins.txt", Path(folder) / "wanted.txt"
        pins.write_text(without(official_pins(case, python), RAISED))
        # Compiled before, because `uv pip install` would keep what an environment already has.
        wanted.write_text(
            resolve(python, "pyproject.toml", *extras, *FOR_TESTS, "--constraint", str(pins))
        )
        if not (environment / "bin" / "python").exists():
            subprocess.run(
                [UV, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True
            )
        install = [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python"]
        install += [str(environment)]
        subprocess.run([*install, "--requirements", str(wanted)], cwd=ROOT, check=True)
        subprocess.run([*install, "--no-deps", "--editable", "."], cwd=ROOT, check=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr or str(error))
