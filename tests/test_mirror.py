"""The tests of a module lie as it does: those of `a/b.py` in `a/test_b.py` or `a/test_b_*.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "kafka_drain": ROOT / "plugins",
    "kafka_drain_airflow": ROOT / "plugins",
    "kafka_drain_spark": ROOT / "spark_jobs",
    "demo": ROOT,
    "scripts": ROOT,
}


@pytest.mark.parametrize("package", SOURCES)
def test_tests_mirror_the_package(package: str) -> None:
    """Each file of tests is named for a module of the package that it lies in."""
    tests = ROOT / "tests" / package
    found = sorted(tests.rglob("test_*.py"))

    assert found
    strays = []
    for path in found:
        folder = SOURCES[package] / package / path.relative_to(tests).parent
        names = [module.stem for module in folder.iterdir() if not module.stem.startswith("__")]
        about = path.stem.removeprefix("test_")
        if not any(about == name or about.startswith(f"{name}_") for name in names):
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []
