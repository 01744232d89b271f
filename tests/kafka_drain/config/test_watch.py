"""The pipeline key `watch`: which limits are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        ({}, r"watch = \{\} is not acceptable; accepted: lag, hours_to_expiry, or both"),
        ({"lag": 0}, "watch.lag = 0: .*greater than or equal to 1"),
        ({"hours_to_expiry": 0}, "watch.hours_to_expiry = 0: .*greater than 0"),
        (
            {"bytes": 5},
            "'bytes' .*a valid key of a pipeline's watch; accepted: hours",
        ),
        (
            {"lagg": 5},
            "'lagg' .*a valid key of a pipeline's watch; did you mean 'lag'",
        ),
        ({"lag": 1}, None),
        ({"hours_to_expiry": 0.5}, None),
        ({"lag": 1, "hours_to_expiry": 12}, None),
    ],
)
def test_watch(watch: dict[str, Any], words: str | None) -> None:
    """A watch has at least one limit, each of them positive."""
    arguments: dict[str, Any] = {"name": "p", "topics": ["t"], "archive": "/a", "watch": watch}
    if words is None:
        found = Pipeline(**arguments).watch
        assert found is not None
        assert found.model_dump(exclude_none=True) == watch
    else:
        with pytest.raises(ConfigError, match=words):
            Pipeline(**arguments)
