"""What editors, git and the repository's host are told about the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_hooks_are_make_check() -> None:
    """The hooks before a commit run what `make check` runs, by the tools of .venv alone."""
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    checked = re.findall(r"\$\(PYTHON_ENV\) (-m .+?)(?: \.)?$", recipe, flags=re.M)
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]

    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert [*map(str.split, entries)] == [[".venv/bin/python", *line.split()] for line in checked]


def test_golden_data_kept_by_git() -> None:
    """Git changes no byte of what real systems wrote, on any system."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout of git's")
    paths = [str(path) for path in (ROOT / "tests" / "data").glob("*/**/*") if path.is_file()]
    asked = ["git", "-C", str(ROOT), "check-attr", "--stdin", "text"]
    told = subprocess.run(asked, input="\n".join(paths), capture_output=True, text=True, check=True)

    assert len(paths) > 50
    assert [line for line in told.stdout.splitlines() if not line.endswith(": text: unset")] == []


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_forms_of_issues(path: Path) -> None:
    """A form for issues is YAML; each of its questions has an id of its own and a label."""
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        return

    assert form["name"]
    assert form["description"]
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["attributes"]["label"] for part in asked)
    assert len({part["id"] for part in asked}) == len(asked)
