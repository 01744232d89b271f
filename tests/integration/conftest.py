"""What the tests of Spark Connect share: one server, and a topic for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from demo.broker.ports import free_ports
from tests.spark_connect import Server, fill


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one Spark Connect server of this test run."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path_factory.mktemp("server") / "log")
    found.start()
    yield found
    if not found.has_ended():
        assert found.stop() == 0, found.said()


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic with records in two partitions."""
    name: str = make_topic(partitions=2)
    fill(send, name)
    return name
