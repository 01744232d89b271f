"""Which releases' environments `make test-airflow3` can create."""

from __future__ import annotations

import pytest

from scripts.airflow_environment import case_of


def test_case_of() -> None:
    """A release is found by its version; of two cases, the one whose Spark starts drivers."""
    found = [case_of(version) for version in ("3.0.6", "3.1.8", "3.3.2")]

    assert [case.airflow for case in found] == ["3.0.6", "3.1.8", "3.3.2"]
    assert [case.spark for case in found] == ["spark", "spark", "pyspark"]


@pytest.mark.parametrize("version", ["", "3.0", "3.2.2"])
def test_case_of_unknown(version: str) -> None:
    """A release without pins is refused with those that have some."""
    with pytest.raises(
        SystemExit, match=r"aren't known, expected one of 2\.11\.2, 3\.0\.6, 3\.1\.8"
    ):
        case_of(version)
