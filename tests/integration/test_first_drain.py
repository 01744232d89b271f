"""What comes before the first batch of an archive: a drain that failed, folders of a volume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command_line import kafka_drain

pytestmark = pytest.mark.integration


def test_validate_after_failed_first_drain(
    tmp_path: Path, bootstrap_servers: str, make_topic: Any, send: Any
) -> None:
    """A first drain that failed isn't "complete", with Kafka or without; an empty topic is."""
    full, empty = make_topic(), make_topic()
    send(full, [(b"k", b"v", None, 1_700_000_000_000)] * 10)
    kafka = ("--bootstrap-servers", bootstrap_servers)
    for topic in (full, empty):
        folder = tmp_path / topic
        # As a volume that was formatted just now.
        (folder / "lost+found").mkdir(parents=True)
        ended = kafka_drain("drain", folder, "--topic", topic, "--master", "nowhere", *kafka)
        assert ended.code == (1 if topic == full else 0), ended.err
        assert f"a new archive begins at {folder}, which holds none" in ended.err

    seen = {
        (topic, with_kafka): kafka_drain(
            "validate", tmp_path / topic, "--json", *(kafka if with_kafka else ()),
            environment={"KAFKA_BOOTSTRAP_SERVERS": None},
        )
        for topic in (full, empty)
        for with_kafka in (True, False)
    }  # fmt: skip

    codes = {asked: ended.code for asked, ended in seen.items()}
    assert codes == {(full, True): 1, (full, False): 1, (empty, True): 0, (empty, False): 1}
    [finding] = json.loads(seen[full, True].out)["findings"]
    assert finding["reason"] == "nothing_drained"
    assert "10 offsets wait in Kafka" in finding["detail"]
