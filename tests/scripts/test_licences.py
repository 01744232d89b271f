"""`make licences`: the licences that a package states, and their evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scripts.licences import (
    ALLOWED,
    NAMES,
    Exemption,
    Installed,
    check,
    is_allowed,
    needed_at_run_time,
    stated,
)

MIT = "License :: OSI Approved :: MIT License"
GPL = "License :: OSI Approved :: GNU General Public License (GPL)"
OSI = "License :: OSI Approved"


def package(name: str, *licences: str, requires: Sequence[str] = ()) -> Installed:
    return Installed(name, "1.0", licences, tuple(requires))


@pytest.mark.parametrize(
    ("expressions", "classifiers", "texts", "said"),
    [
        (["MIT"], [GPL], ["GPL"], ["MIT"]),
        (
            [],
            [MIT, GPL, "Typing :: Typed"],
            ["MIT"],
            ["MIT License", GPL.rsplit(" :: ", maxsplit=1)[-1]],
        ),
        ([], [OSI], ["MIT"], ["MIT"]),
        ([], ["License :: Public Domain"], [], ["Public Domain"]),
        ([], [], ["\n BSD-3-Clause\n\nCopyright"], ["BSD-3-Clause"]),
        ([], ["Typing :: Typed"], [""], []),
        ([], [], [], []),
    ],
)
def test_stated(
    expressions: list[str], classifiers: list[str], texts: list[str], said: list[str]
) -> None:
    """An SPDX expression has priority over classifiers, which all count, and those over text."""
    assert tuple(said) == stated(expressions, classifiers, texts)


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT License", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND ISC", True),
        ("GPL-3.0-only AND MIT OR ISC", True),
        ("GPL-3.0-only AND (MIT OR ISC)", False),
        ("(GPL-3.0-only OR MIT) AND ISC", True),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("MIT ISC", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT OR", False),
        ("", False),
    ],
)
def test_is_allowed(licence: str, allowed: bool) -> None:
    """AND binds tighter than OR; expressions with unknown identifiers aren't allowed."""
    assert is_allowed(licence) is allowed


def test_names_mean_identifiers() -> None:
    """Each name maps to an allowed licence."""
    assert set(NAMES.values()) <= ALLOWED


def test_needed_at_run_time() -> None:
    """Requirements are followed with their extras and markers, even in cycles."""
    packages = {
        found.name: found
        for found in (
            package(
                "root",
                requires=["Direct[more]>=1", "s3; extra == 's3'", "docs; extra == 'docs'"],
            ),
            package("direct", requires=["of-more; extra == 'more'", "old; python_version < '3'"]),
            package("of-more", requires=["direct", "not-installed"]),
            package("s3"),
            package("docs"),
            package("old"),
            package("pytest"),
        )
    }

    assert needed_at_run_time(packages, "root", ["s3"]) == {"direct", "of-more", "s3"}


EXEMPTION = Exemption(("GPL",), "for tests", optional=True)


@pytest.mark.parametrize(
    ("found", "run_time", "wrong"),
    [
        (package("a", "MIT"), True, None),
        (package("a", "MIT", "GPL"), True, "a 1.0 states 'MIT', 'GPL', which isn't allowed"),
        (package("a"), True, "a 1.0 states no licence, which isn't allowed"),
        (package("exempt", "GPL"), False, None),
        (package("exempt", "GPL"), True, "exempt 1.0 is needed at run time"),
        (package("exempt", "AGPL"), False, "exempt 1.0 states 'AGPL'; its exemption is for 'GPL'"),
        (package("exempt", "MIT"), False, "exempt 1.0 no longer needs its exemption"),
    ],
)
def test_check(found: Installed, run_time: bool, wrong: str | None) -> None:
    """An exemption holds only for the licence and use it was granted for, while it is needed."""
    lines = check([found], {found.name} if run_time else set(), {"exempt": EXEMPTION})

    assert len(lines) == (wrong is not None)
    assert wrong is None or lines[0].startswith(wrong)
