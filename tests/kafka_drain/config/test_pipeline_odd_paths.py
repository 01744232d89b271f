"""Odd paths of archives: each works, or is refused where the pipeline is declared."""

from __future__ import annotations

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.storage.paths import locate
from tests.odd_paths import REFUSED, WORKS
from tests.tables import each_of


def declared(path: str) -> Pipeline:
    """Declare a pipeline with an archive."""
    return Pipeline(name="p", topics=["t"], archive=path)


@each_of("what", WORKS)
def test_pipeline_odd_path(what: str) -> None:
    """The path stays as it is."""
    path = f"/data/{WORKS[what]}/a"
    assert declared(path).archive == path
    assert str(locate(path)) == path


@pytest.mark.parametrize("what", REFUSED)
def test_pipeline_odd_path_refused(what: str) -> None:
    """The refusal names the pipeline, and the character or what is too long."""
    path, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said) as raised:
        declared(f"{path}/a" if path else path)
    assert "pipeline 'p'" in str(raised.value)
    # It can be printed and logged.
    assert str(raised.value).encode()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/a/", "/data/a"),
        ("//data/a", "/data/a"),
        ("///data/a//", "/data/a"),
        ("file:///data/a b", "/data/a b"),
        ("file:/data/a", "/data/a"),
    ],
)
def test_pipeline_path_written_otherwise(path: str, expected: str) -> None:
    """One folder has one path; two slashes in front would be a host to Java."""
    assert declared(path).archive == expected
    assert str(locate(path)) == expected
