"""All tests with real components are in folders that the Makefile's targets run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"pytest\.mark\.(integration|store|cluster)\b")


def test_integration_tests_are_looked_for() -> None:
    """Modules with the marker are in one of the folders that the targets name."""
    named = re.search(r"^WITH_PARTS := (.+)$", (ROOT / "Makefile").read_text(), flags=re.M)
    assert named is not None
    folders = [ROOT / folder for folder in named[1].split()]

    modules = {
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and MARKED.search(path.read_text())
    }

    assert modules
    assert {path for path in modules if not any(f in path.parents for f in folders)} == set()


def test_each_marker_has_a_verb() -> None:
    """Every marker that `make test` leaves out has its own target."""
    makefile = (ROOT / "Makefile").read_text()
    left_out = re.search(r"^HERE := integration and not \((.+)\)$", makefile, flags=re.M)
    assert left_out is not None

    for marker in left_out[1].split(" or "):
        assert re.search(rf"^\t@(\w+=\S+ )?\S+ -m pytest -m {marker} ", makefile, flags=re.M), (
            marker
        )


def test_parts_without_java_are_all_of_them() -> None:
    """The parts of `make test` without Java leave out only what another of them runs."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    parts = dict(re.findall(r'"(\w+)=(.+?)"(?: |\n)', makefile))
    left_out = re.search(r"\$\(patsubst %,--ignore=%,(\S+) \$\(RULES\)\)$", parts["unit"])

    assert left_out is not None
    assert parts["core"].endswith(f" -m 'not integration' {left_out[1]}")
    assert parts["rules"].split()[-1] == "rules"
    assert re.search(
        r'^rules: .+\n\t@\S+ -m pytest -m "not integration" \$\(RULES\)$', makefile, re.M
    )
    named = re.search(r"^RULES := (.+)$", makefile, flags=re.M)
    assert named is not None
    for path in re.sub(r"\$\(.+\)", "", named[1]).split():
        assert (ROOT / path).exists(), path


def test_clean_twice(tmp_path: Path) -> None:
    """Without an environment nothing has to be stopped, and all environments go."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv-connect").mkdir()

    for _ in range(2):
        run = subprocess.run(
            ["make", "--directory", str(tmp_path), "clean"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr

    assert not (tmp_path / ".venv-connect").exists()
