"""Republishes and drills of archives that this user may only read, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.cli.main import main
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.read_only import WAYS

pytestmark = pytest.mark.integration

RECORDS = 30
#: Another user may not be allowed to start this Python's own processes, which send.
SENDING = [way for way in WAYS if way != "other user"]


@pytest.fixture
def made(tmp_path: Path, make_topic: Any) -> MadeArchive:
    """A sealed archive of 30 records, without an id."""
    topic = make_topic(1)
    made = MadeArchive(tmp_path / "archive", {topic: f"id of {topic}"})
    write_topic_settings(made.root, {topic: TopicSettings(1, 1)})
    made.seal({TopicPartition(topic, 0): dense(0, RECORDS)})
    made.open_generation()
    return made


def content(folder: Path) -> dict[str, int]:
    """Return each file with the time of its last change."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder that everybody may write to."""
    folder = tmp_path_factory.mktemp("state")
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_republish_read_only(
    made: MadeArchive,
    cluster: KafkaCluster,
    place: Path,
    read: Any,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    """Nothing is created before it is known that the run can be kept; with a place, all is sent.

    The same command again sends nothing, and the archive stays as it is.
    """
    servers = cluster.config.bootstrap_servers
    target = f"from-{place.name}"
    before = content(Path(str(made.root)))
    command = [
        *("republish", str(made.root), "--bootstrap-servers", servers, "--target-topic", target),
        *("--create-target", "--json", "--apply"),
    ]

    with WAYS[way](Path(str(made.root))):
        assert main(command) != 0
        assert "--state FOLDER" in capsys.readouterr().err
        assert not cluster.has_topic(target)
        if way not in SENDING:
            return
        codes = [main([*command, "--state", str(place / "of it")]) for _ in range(2)]

    assert codes == [0, 0]
    assert {p: len(rows) for p, rows in read(target).items()} == {0: RECORDS}
    assert content(Path(str(made.root))) == before
    [receipt] = (place / "of it").glob("republish/*/receipt.json")
    assert json.loads(receipt.read_text())["records"] == RECORDS


@pytest.mark.parametrize("way", WAYS)
def test_drill_read_only(
    made: MadeArchive,
    cluster: KafkaCluster,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    """A drill keeps its result in the place that is named, and creates nothing without one."""
    topics = set(cluster.topic_names())
    before = content(Path(str(made.root)))
    servers = cluster.config.bootstrap_servers
    command = ["drill", str(made.root), "--to-bootstrap", servers, "--sample", "whole", "--json"]

    with WAYS[way](Path(str(made.root))):
        assert main(command) != 0
        assert "--state FOLDER" in capsys.readouterr().err
        if way not in SENDING:
            return
        assert main([*command, "--state", str(place / "of it")]) == 0
        result = json.loads(capsys.readouterr().out)
        check = ["drill", str(made.root), "--check", "--state", str(place / "of it")]
        assert main(check) == 0

    assert (result["verdict"], result["records"]) == ("passed", RECORDS)
    assert content(Path(str(made.root))) == before
    assert set(cluster.topic_names()) == topics
    assert not list((place / "of it").glob("drills/*/started.json"))
