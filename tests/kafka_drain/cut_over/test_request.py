"""The republish that is a cut-over's mirror."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.cut_over import CutOver
from kafka_drain.cut_over.request import CutOverRequest, mirror_request
from kafka_drain.errors import ConfigError


def test_mirror_request() -> None:
    """By default, each record goes to the topic of its name, which is created."""
    request = mirror_request("move")
    assert (request.target_topic, request.create_target, request.follow) == ("{topic}", True, True)
    assert (request.run_name, request.into_source, request.delivery) == (
        *("move", False),
        "exactly_once",
    )
    other = mirror_request("move", {"placement": "key", "rename": {"a": "b"}, "engine": "worker"})
    assert (other.placement, other.rename, other.engine) == ("key", {"a": "b"}, "worker")


@pytest.mark.parametrize(
    "options",
    [
        {"topics": ["t"]},
        {"from_time": "2026-01-01T00:00:00Z"},
        {"sealed_only": True},
        {"delivery": "at_least_once"},
        {"repeat": True},
        {"into_source": True},
        {"follow": False},
        {"run_name": "x"},
        {"placment": "key"},
    ],
)
def test_mirror_request_refused(options: dict[str, Any]) -> None:
    """What would leave records out, send them twice, or isn't an option, is refused."""
    with pytest.raises(ConfigError, match=f"mirror has {next(iter(options))}"):
        mirror_request("move", options)


def test_mirror_request_transactions_removed() -> None:
    """An option that only older releases know is refused with what there is instead."""
    with pytest.raises(ConfigError, match=r"'transactions' .* was removed: .* Leave it out"):
        mirror_request("move", {"transactions": "fast"})


def test_mirror_request_bad_value() -> None:
    """A value that the republish doesn't take is refused."""
    with pytest.raises(ConfigError, match="engine"):
        mirror_request("move", {"engine": "flink"})


def test_cut_over_request() -> None:
    """A pipeline's settings become a request."""
    settings = CutOver(kafka_conn_id="b", run_name="m", groups=["g"], max_lag=3, quiet_seconds=5)
    request = CutOverRequest.of(settings)
    assert (request.run_name, request.mirror.run_name) == ("m", "m")
    assert (request.groups, request.max_lag, request.quiet_seconds) == (("g",), 3, 5)
