"""Check the packages pinned in the lock files for known vulnerabilities.

pip-audit does the work, but it considers only the pins that apply to the Python it runs on, and
only one version per package. This script audits all pins, including those for other Pythons and
systems, in rounds with one version of each package.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

__all__ = ["AuditError", "main", "pins_of", "rounds", "unanswered", "vulnerabilities"]

# Vulnerabilities that can't be fixed yet, by id, each with the reason why it doesn't matter here
# and with what has to happen before the entry can be removed.
ACCEPTED: dict[str, str] = {}

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]*)? \\")

# A name and a version.
Pin = tuple[str, str]


class AuditError(Exception):
    """Raised when the audit can't determine whether vulnerabilities are known."""


def pins_of(text: str) -> dict[Pin, str]:
    """Return the hashes of each pin in a lock file, regardless of its marker.

    Raises:
        AuditError: If a line isn't a pin with hashes.
    """
    found = {}
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        if block.startswith("#"):
            continue
        line, _, hashes = block.partition("\n")
        pin = _PIN.fullmatch(line)
        if pin is None or "--hash=" not in hashes:
            raise AuditError(f"{line!r} isn't `name==version` with hashes. Run `make lock`.")
        found[(pin[1], pin[2])] = hashes
    return found


def rounds(pins: Iterable[Pin]) -> list[list[Pin]]:
    """Split the pins into as few lists as possible, with each name at most once per list."""
    by_name: dict[str, list[Pin]] = {}
    for pin in sorted(pins):
        by_name.setdefault(pin[0], []).append(pin)
    return [[pin for pin in each if pin] for each in zip_longest(*by_name.values())]


def unanswered(pins: Iterable[Pin], report: Mapping[str, Any]) -> list[Pin]:
    """Return the pins that pip-audit's report doesn't cover."""
    answered = {
        (found["name"], found["version"]) for found in report["dependencies"] if "vulns" in found
    }
    return [pin for pin in pins if pin not in answered]


def vulnerabilities(report: Mapping[str, Any]) -> list[str]:
    """Return the known vulnerabilities, one per line."""
    return [
        f"{found['name']} {found['version']}: {known['id']}, "
        + (f"fixed in {', '.join(fixed)}" if (fixed := known["fix_versions"]) else "not fixed yet")
        for found in report["dependencies"]
        for known in found.get("vulns", [])
    ]


def main(names: Sequence[str], command: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> int:
    """Audit lock files together; return 0 if nothing is known, 1 if something is, 2 on errors."""
    known: list[str] = []
    try:
        pins: dict[Pin, str] = {}
        for name in names:
            pins |= pins_of(Path(name).read_text(encoding="utf-8"))
        for chosen in rounds(pins):
            report = _ask({pin: pins[pin] for pin in chosen}, command)
            known += vulnerabilities(report)
    except AuditError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    if known:
        print(
            "audit: known vulnerabilities:\n"
            + "\n".join(f"  {line}" for line in sorted(known))
            + "\nUpgrade the pinned versions and run `make lock`. Add vulnerabilities that have no "
            "fix and don't matter here to ACCEPTED in scripts/audit.py, with the reason.",
            file=sys.stderr,
        )
        return 1
    print(f"audit: no known vulnerabilities in {len(pins)} pins; {len(ACCEPTED)} accepted")
    return 0


def _ask(pins: Mapping[Pin, str], command: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "requirements.lock")
        lock.write_text(
            "".join(f"{name}=={version} \\\n{hashes}\n" for (name, version), hashes in pins.items())
        )
        output = Path(folder, "report.json")
        arguments = ["--vulnerability-service", "osv", "--progress-spinner", "off"]
        # The lock file is complete: nothing has to be resolved, downloaded or installed.
        arguments += ["--disable-pip", "--requirement", str(lock)]
        arguments += ["--format", "json", "--output", str(output)]
        for accepted in ACCEPTED:
            arguments += ["--ignore-vuln", accepted]
        run = subprocess.run(
            [*command, *arguments],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Exit code 1 may mean a vulnerability or any failure; only the report tells them apart.
        text = output.read_text() if output.exists() else ""
    if not text:
        raise AuditError(
            f"pip-audit ended with {run.returncode} and no report: {_last_line(run.stdout)}\n"
            "The audit is inconclusive. pip-audit queries the OSV database over the network: check "
            "the network and HTTPS_PROXY, or set PIP_AUDIT_OSV_URL to a mirror."
        )
    report: dict[str, Any] = json.loads(text)
    missed = unanswered(pins, report)
    if missed:
        raise AuditError(
            f"pip-audit's report lacks {len(missed)} of {len(pins)} pins, such as "
            f"{'=='.join(missed[0])}. Run it manually to see why."
        )
    return report


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
