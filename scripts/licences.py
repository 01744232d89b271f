"""Check that an Apache-2.0 project may depend on every installed package.

A package's licence is taken from its metadata: the SPDX expression, else the classifiers, else the
free text. A licence that is on none of the lists below fails the check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Exemption", "Installed", "check", "is_allowed", "main", "needed_at_run_time", "stated"]

# SPDX identifiers. MPL-2.0 applies only to changes to its own files, and we make none.
ALLOWED = frozenset(
    """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC MIT MIT-0 MPL-2.0 PSF-2.0 Unlicense Zlib
    """.split()
)

# Identifiers by the text found in classifiers and free text. The classifier "BSD License" doesn't
# say which BSD licence it is, but any of them would be allowed.
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    # All that kubernetes-validate says; its licence file is that of version 2.0.
    "Apache": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "CC0": "CC0-1.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


@dataclass(frozen=True, slots=True)
class Exemption:
    """Why a package is allowed although its metadata name no licence from the lists.

    Attributes:
        says: The licences that its metadata state; if they change, it must be reviewed again.
        reason: What its licence files say, and why that is acceptable.
        optional: Whether the exemption holds only as long as kafka-drain with its extras `s3` and
            `spark` doesn't need the package: what only the demo, the documentation and the tests
            install isn't part of what users run.
    """

    says: tuple[str, ...]
    reason: str
    optional: bool = False


EXEMPTIONS = {
    "docutils": Exemption(
        ("Public Domain", "BSD License", "GNU General Public License (GPL)"),
        "in the public domain, with some files under BSD licences; the GPL covers an Emacs mode "
        "that isn't in the package. Only `make docs` needs it",
        optional=True,
    ),
    "openlineage-sql": Exemption(
        (),
        "part of OpenLineage, whose repository and other packages are under Apache 2.0; needed by "
        "Airflow's provider, which is installed only for tests",
        optional=True,
    ),
    "psycopg2-binary": Exemption(
        ("GNU Library or Lesser General Public License (LGPL)",),
        "LGPL 3 or later: an unmodified library that Airflow loads if its database is PostgreSQL, "
        "as in the Docker stack, the demo and tests",
        optional=True,
    ),
    "text-unidecode": Exemption(
        (
            "Artistic License",
            "GNU General Public License (GPL)",
            "GNU General Public License v2 or later (GPLv2+)",
        ),
        "the GPL or the Artistic License, at the user's choice; Airflow needs it for "
        "python-slugify",
    ),
}


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed package, from its metadata.

    Attributes:
        name: The normalized name.
        version: The installed version.
        licences: The result of `stated`.
        requires: Its requirements, with extras and markers.
    """

    name: str
    version: str
    licences: tuple[str, ...]
    requires: tuple[str, ...] = ()


def stated(
    expressions: Iterable[str], classifiers: Iterable[str], texts: Iterable[str]
) -> tuple[str, ...]:
    """Return the licences that a package states, from the most precise source that has any."""
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in classifiers
        if classifier.startswith("License :: ")
    ]
    # "OSI Approved" alone doesn't say which licence it is.
    names = [name for name in names if name != "OSI Approved"]
    first_lines = [text.strip().partition("\n")[0] for text in texts]
    return tuple(expressions) or tuple(names) or tuple(line for line in first_lines if line)


def is_allowed(licence: str) -> bool:
    """Return whether a name or an SPDX expression permits a choice of allowed licences."""
    if licence in NAMES:
        return NAMES[licence] in ALLOWED
    tokens = re.findall(r"[()]|[^\s()]+", licence)
    try:
        allowed = _any_of(tokens)
    except IndexError:
        return False
    return allowed and not tokens


def _any_of(tokens: list[str]) -> bool:
    allowed = _all_of(tokens)
    while tokens and tokens[0] == "OR":
        tokens.pop(0)
        allowed = _all_of(tokens) or allowed
    return allowed


def _all_of(tokens: list[str]) -> bool:
    allowed = _one(tokens)
    while tokens and tokens[0] == "AND":
        tokens.pop(0)
        allowed = _one(tokens) and allowed
    return allowed


def _one(tokens: list[str]) -> bool:
    token = tokens.pop(0)
    if token != "(":
        return token in ALLOWED
    allowed = _any_of(tokens)
    return tokens.pop(0) == ")" and allowed


def needed_at_run_time(
    packages: Mapping[str, Installed], root: str, extras: Iterable[str]
) -> set[str]:
    """Return the installed packages that `root` with these extras requires, without `root`."""
    waiting = [(root, extra) for extra in ("", *extras)]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        for line in packages[name].requires if name in packages else ():
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            wanted = canonicalize_name(requirement.name)
            found = {(wanted, asked) for asked in ("", *requirement.extras)} - seen
            seen |= found
            waiting += found
    return {name for name, _ in seen if name in packages} - {root}


def check(
    packages: Iterable[Installed], run_time: set[str], exemptions: Mapping[str, Exemption]
) -> list[str]:
    """Return the problems found, one per line."""
    wrong = []
    for package in sorted(packages, key=lambda package: package.name):
        name = f"{package.name} {package.version}"
        allowed = bool(package.licences) and all(map(is_allowed, package.licences))
        exemption = exemptions.get(package.name)
        if exemption is None:
            if not allowed:
                wrong.append(f"{name} states {_quoted(package.licences)}, which isn't allowed")
        elif allowed:
            wrong.append(f"{name} no longer needs its exemption; remove it")
        elif package.licences != exemption.says:
            wrong.append(
                f"{name} states {_quoted(package.licences)}; its exemption is for "
                f"{_quoted(exemption.says)}"
            )
        elif exemption.optional and package.name in run_time:
            wrong.append(f"{name} is needed at run time; its exemption is only for optional use")
    return wrong


def _quoted(licences: Iterable[str]) -> str:
    return ", ".join(map(repr, licences)) or "no licence"


def main() -> int:
    """Check the packages installed for this Python, print a summary and return the exit status."""
    packages = {package.name: package for package in map(_read, distributions())}
    if "kafka-drain" not in packages:
        print("licences: kafka-drain isn't installed here. Run `make setup`.", file=sys.stderr)
        return 1
    run_time = needed_at_run_time(packages, "kafka-drain", ("s3", "spark"))
    wrong = check(packages.values(), run_time, EXEMPTIONS)
    if wrong:
        print(
            "licences: some packages may not be used:\n"
            + "\n".join(f"  {line}" for line in wrong)
            + "\nRead the package's licence file. Then add the licence to ALLOWED or NAMES in "
            "scripts/licences.py, add the package with a reason to EXEMPTIONS, or remove it.",
            file=sys.stderr,
        )
        return 1
    exempt = sorted(EXEMPTIONS.keys() & packages)
    print(
        f"licences: {len(packages)} packages, {len(run_time)} of them needed at run time; "
        f"{len(exempt)} exempt: {', '.join(exempt)}"
    )
    return 0


def _read(distribution: Distribution) -> Installed:
    fields = distribution.metadata
    return Installed(
        name=canonicalize_name(distribution.name),
        version=distribution.version,
        licences=stated(
            fields.get_all("License-Expression") or [],
            fields.get_all("Classifier") or [],
            fields.get_all("License") or [],
        ),
        requires=tuple(distribution.requires or ()),
    )


if __name__ == "__main__":
    sys.exit(main())
