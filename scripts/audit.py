"""Ask whether vulnerabilities are known of what the lock files pin.

pip-audit does it, but takes of a lock file only what fits the Python that runs it, and each
package once. Here all pins count, also those for other Pythons and systems: they are sorted into
rounds with one version of a package each.
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

# Vulnerabilities that can't be got rid of yet, by their id, each with the reason why they don't
# matter here and what has to happen for the line to go.
ACCEPTED: dict[str, str] = {}

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; [^\\]*)? \\")

# A name and a version.
Pin = tuple[str, str]


class AuditError(Exception):
    """Raised when it stays open whether vulnerabilities are known."""


def pins_of(text: str) -> dict[Pin, str]:
    """Return the hashes of each pin of a lock file, whatever its marker says.

    Raises:
        AuditError: When a line isn't a pin with hashes.
    """
    found = {}
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        if block.startswith("#"):
            continue
        line, _, hashes = block.partition("\n")
        pin = _PIN.fullmatch(line)
        if pin is None or "--hash=" not in hashes:
            raise AuditError(f"{line!r} is no `name==version` with hashes. Run `make lock`.")
        found[(pin[1], pin[2])] = hashes
    return found


def rounds(pins: Iterable[Pin]) -> list[list[Pin]]:
    """Return the pins in as few lists as there are versions of a package, each name once a list."""
    by_name: dict[str, list[Pin]] = {}
    for pin in sorted(pins):
        by_name.setdefault(pin[0], []).append(pin)
    return [[pin for pin in each if pin] for each in zip_longest(*by_name.values())]


def unanswered(pins: Iterable[Pin], report: Mapping[str, Any]) -> list[Pin]:
    """Return the pins of which pip-audit's report doesn't say whether anything is known."""
    answered = {
        (found["name"], found["version"]) for found in report["dependencies"] if "vulns" in found
    }
    return [pin for pin in pins if pin not in answered]


def vulnerabilities(report: Mapping[str, Any]) -> list[str]:
    """Return what is known, a line each."""
    return [
        f"{found['name']} {found['version']}: {known['id']}, "
        + (f"fixed in {', '.join(fixed)}" if (fixed := known["fix_versions"]) else "not fixed yet")
        for found in report["dependencies"]
        for known in found.get("vulns", [])
    ]


def main(names: Sequence[str], command: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> int:
    """Audit lock files together; return 0 when nothing is known, 1 when something is, else 2."""
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
            "audit: vulnerabilities are known:\n"
            + "\n".join(f"  {line}" for line in sorted(known))
            + "\nRaise what is pinned, and run `make lock`. What has no fix and doesn't matter "
            "here goes into ACCEPTED in scripts/audit.py, with the reason.",
            file=sys.stderr,
        )
        return 1
    print(f"audit: no vulnerability is known of {len(pins)} pins; {len(ACCEPTED)} accepted")
    return 0


def _ask(pins: Mapping[Pin, str], command: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "requirements.lock")
        lock.write_text(
            "".join(f"{name}=={version} \\\n{hashes}\n" for (name, version), hashes in pins.items())
        )
        output = Path(folder, "report.json")
        arguments = ["--vulnerability-service", "osv", "--progress-spinner", "off"]
        # The lock says all: nothing has to be resolved, downloaded or installed.
        arguments += ["--disable-pip", "--requirement", str(lock)]
        arguments += ["--format", "json", "--output", str(output)]
        for accepted in ACCEPTED:
            arguments += ["--ignore-vuln", accepted]
        run = subprocess.run(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # Its status is 1 for a vulnerability and for each failure alike; only the report tells.
        text = output.read_text() if output.exists() else ""
    if not text:
        raise AuditError(
            f"pip-audit ended with {run.returncode} and no report: {_last_line(run.stdout)}\n"
            "Whether vulnerabilities are known is open. It asks the OSV database, so it needs the "
            "network: check that and HTTPS_PROXY, or name a mirror by PIP_AUDIT_OSV_URL."
        )
    report: dict[str, Any] = json.loads(text)
    missed = unanswered(pins, report)
    if missed:
        raise AuditError(
            f"pip-audit's report lacks {len(missed)} of {len(pins)} pins, as "
            f"{'=='.join(missed[0])}. Run it by hand to see why."
        )
    return report


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
