"""Check that an Apache-2.0 project may depend on every package that is installed.

A package's licence is what its metadata say: the SPDX expression, else the classifiers, else the
free text. What is on none of the lists below fails.
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

# SPDX identifiers. MPL-2.0 binds only changes of its own files, and none are made here.
ALLOWED = frozenset(
    """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC MIT MIT-0 MPL-2.0 PSF-2.0 Unlicense Zlib
    """.split()
)

# What classifiers and free text say, and which of the identifiers is meant. The classifier "BSD
# License" doesn't tell which BSD licence it is; each that it stands for would do.
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
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
    """Why a package may stay although its metadata name nothing of the lists.

    Attributes:
        says: What the metadata say; when they say anything else, the package is read again.
        reason: What its files say, and why that will do.
        optional: Whether kafka-drain may not need it, with its extra `s3`: what the demo, the
            documentation and the tests bring isn't part of what its users run.
    """

    says: tuple[str, ...]
    reason: str
    optional: bool = False


EXEMPTIONS = {
    "docutils": Exemption(
        ("Public Domain", "BSD License", "GNU General Public License (GPL)"),
        "in the public domain, with files of its own under BSD licences; the GPL is that of a mode "
        "for Emacs, which isn't in the package. `make docs` needs it, nothing else",
        optional=True,
    ),
    "openlineage-sql": Exemption(
        (),
        "part of OpenLineage, whose repository and other packages are under Apache 2.0; Airflow's "
        "provider needs it, which is here for tests alone",
        optional=True,
    ),
    "psycopg2-binary": Exemption(
        ("GNU Library or Lesser General Public License (LGPL)",),
        "LGPL 3 or later: a library that Airflow loads, unchanged, where its database is "
        "PostgreSQL: in the Docker stack, in the demo and in tests",
        optional=True,
    ),
    "text-unidecode": Exemption(
        (
            "Artistic License",
            "GNU General Public License (GPL)",
            "GNU General Public License v2 or later (GPLv2+)",
        ),
        "either the GPL or the Artistic License, as one likes; Airflow needs it for python-slugify",
    ),
}


@dataclass(frozen=True, slots=True)
class Installed:
    """A package as its metadata describe it.

    Attributes:
        name: In the form that compares.
        version: As installed.
        licences: What `stated` returns.
        requires: Its requirements, with extras and markers.
    """

    name: str
    version: str
    licences: tuple[str, ...]
    requires: tuple[str, ...] = ()


def stated(
    expressions: Iterable[str], classifiers: Iterable[str], texts: Iterable[str]
) -> tuple[str, ...]:
    """Return what a package says of its licence, from the most exact source that says anything."""
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in classifiers
        if classifier.startswith("License :: ")
    ]
    # Which licence it is that OSI approved isn't said.
    names = [name for name in names if name != "OSI Approved"]
    first_lines = [text.strip().partition("\n")[0] for text in texts]
    return tuple(expressions) or tuple(names) or tuple(line for line in first_lines if line)


def is_allowed(licence: str) -> bool:
    """Return whether a name or an SPDX expression leaves a choice that is on the lists."""
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
    """Return the packages that `root` with these extras leads to, without itself."""
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
    """Return what is wrong, a line each."""
    wrong = []
    for package in sorted(packages, key=lambda package: package.name):
        name = f"{package.name} {package.version}"
        allowed = bool(package.licences) and all(map(is_allowed, package.licences))
        exemption = exemptions.get(package.name)
        if exemption is None:
            if not allowed:
                wrong.append(f"{name} says {_quoted(package.licences)}, which isn't allowed")
        elif allowed:
            wrong.append(f"{name} needs no exemption any more: remove it")
        elif package.licences != exemption.says:
            wrong.append(
                f"{name} says {_quoted(package.licences)}, its exemption was for "
                f"{_quoted(exemption.says)}"
            )
        elif exemption.optional and package.name in run_time:
            wrong.append(f"{name} is needed at run time, its exemption was for an option alone")
    return wrong


def _quoted(licences: Iterable[str]) -> str:
    return ", ".join(map(repr, licences)) or "nothing of its licence"


def main() -> int:
    """Check what is installed beside this Python and print a line; return the exit status."""
    packages = {package.name: package for package in map(_read, distributions())}
    if "kafka-drain" not in packages:
        print("licences: kafka-drain isn't installed here. Run `make setup`.", file=sys.stderr)
        return 1
    run_time = needed_at_run_time(packages, "kafka-drain", ("s3",))
    wrong = check(packages.values(), run_time, EXEMPTIONS)
    if wrong:
        print(
            "licences: not every package may be used:\n"
            + "\n".join(f"  {line}" for line in wrong)
            + "\nRead the package's licence file. Then add the licence to ALLOWED or NAMES in "
            "scripts/licences.py, or the package with a reason to EXEMPTIONS, or do without it.",
            file=sys.stderr,
        )
        return 1
    exempt = sorted(EXEMPTIONS.keys() & packages)
    print(
        f"licences: {len(packages)} packages, {len(run_time)} of them needed at run time; "
        f"{len(exempt)} by an exemption: {', '.join(exempt)}"
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
