"""The version of a release stands in several files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
#: In Keep a Changelog's order.
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_changelog_has_the_version() -> None:
    """The newest release of the changelog is the package's version, below what isn't released."""
    titles = re.findall(r"^## (.+)$", CHANGELOG, flags=re.M)

    assert titles[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", titles[1])


def test_changelog_sections_in_order() -> None:
    """Each release has each section at most once, in Keep a Changelog's order."""
    for release in re.split(r"^## ", CHANGELOG, flags=re.M)[1:]:
        sections = re.findall(r"^### (.+)$", release, flags=re.M)

        assert sections == [name for name in SECTIONS if name in sections]


def test_images_have_the_version() -> None:
    """The images' tags are the package's version, in the stack and where it is documented."""
    for name in ("docker-compose.yaml", "docs/docker.md"):
        tags = re.findall(r"kafka-drain(?:-postgres)?:(\d[\w.]*)", (ROOT / name).read_text())

        assert {*tags} == {VERSION}


def test_security_policy_has_the_version() -> None:
    """The series that gets fixes is the one that is released."""
    series = ".".join(VERSION.split(".")[:2])

    assert f"| {series}.x | yes |" in (ROOT / "SECURITY.md").read_text()
