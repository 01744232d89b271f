"""The whole path through the real command and the real spark-submit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.exit_codes import FAILED
from tests.conftest import manifest_files
from tests.integration.command_line import Ended, kafka_drain, listing
from tests.pseudo_terminal import at_terminal

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
RECORDS = [
    (b"key", b"value", [("h", b"1"), ("h", b"2")], NOON),
    (None, b"no key", [("n", None)], NOON + 86_400_000),
    (b"tombstone", None, None, NOON - 86_400_000),
    (b"\x00\xff", bytes(range(256)), None, NOON),
]


def without_timestamps(topic: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Return records without timestamps, which Spark's Kafka sink sets itself."""
    return {p: [record[:3] for record in records] for p, records in topic.items()}


def without_rates(lines: list[str]) -> list[str]:
    return [re.sub(r", [^ ]+/(s|min)$", "", line) for line in lines]


def answer(ended: Ended) -> Any:
    """Return the JSON output of a command that succeeded."""
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    return json.loads(ended.out)


def test_cli_drain_and_republish(
    tmp_path: Path, make_topic: Any, send: Any, read: Any, bootstrap_servers: str
) -> None:
    """Two topics are drained once, proven complete, and republished: to one topic, to their own."""
    first, second, target = make_topic(3), make_topic(1), make_topic(3)
    send(first, RECORDS, 0)
    send(first, RECORDS[::-1], 2)
    send(second, RECORDS[:2], 0)
    before = {name: read(name) for name in (first, second)}
    pipeline = tmp_path / "pipeline.json"
    pipeline.write_text(json.dumps({"log_levels": {"kafka": "DEBUG"}}))
    # In a locale in which Java would know no such file name.
    archive = tmp_path / "größe [1]" / "archive"
    ascii_only = {"LC_ALL": "C"}
    local = Archive.at(str(archive))
    kafka = ("--bootstrap-servers", bootstrap_servers)
    spark = ("--master", "local[2]")
    topics = ("--topic", first, "--topic", second)

    # The topic stays a column.
    drain = ("drain", archive, *kafka, *spark, *topics, "--partition-by")
    drained = kafka_drain(*drain, "--pipeline", pipeline, "--json", environment=ascii_only)
    files = listing(archive)
    again = kafka_drain(*drain, "--json", environment=ascii_only)

    assert answer(drained)["records"] == 10
    assert "10 of 10 offsets (100 %)" in drained.err
    assert " DEBUG Kafka" in drained.err
    assert answer(again)["offsets"] == 0
    assert "nothing new" in again.err
    assert manifest_files(local) == ["0"]
    assert [n for n in listing(archive) if "/" in n] == [n for n in files if "/" in n]

    listed = kafka_drain("files", archive)
    inspected = answer(kafka_drain("inspect", archive, "--json"))
    validated = answer(kafka_drain("validate", archive, *kafka, "--json"))

    paths = [Path(line) for line in listed.out.splitlines()]
    assert sorted(paths) == sorted((archive / "generations" / "0001" / "data").glob("part-*"))
    partitions = inspected["generations"][0]["partitions"]
    assert {(p["topic"], p["partition"]): p["offsets"] for p in partitions} == {
        (first, 0): 4,
        (first, 1): 0,
        (first, 2): 4,
        (second, 0): 2,
    }
    assert (validated["verdict"], validated["records"]) == ("complete", 10)

    republish = ("republish", archive, *kafka, *spark, "--apply", "--json")
    exactly_once = (*republish, "--engine", "spark", "--topic", first, "--target-topic", target)
    seen = at_terminal(["-m", "kafka_drain.cli", *exactly_once], columns=100, pipes_out=True)
    sent = answer(Ended(seen.code, seen.out, seen.sent))

    assert (sent["records"], sent["records_sent"], sent["attempts"]) == (8, 8, 1)
    assert (sent["engine"], sent["exactly_once"]) == ("spark", True)
    # The progress bar for records sent by Spark's tasks, below the table of the plan.
    assert any(line.endswith("100 %, 8 of 8 records") for line in without_rates(seen.lines))
    assert any(line.startswith(f"│ {first}-0 ") for line in seen.lines)
    assert read(target) == before[first]
    # The target topic takes precedence over the column.
    assert {name: read(name) for name in before} == before

    again = kafka_drain(*exactly_once)

    assert answer(again)["records_sent"] == 0
    assert "already sent and verified at" in again.err
    assert read(target) == before[first]

    into_source = (*republish, "--same-topics", "--delivery", "at_least_once")
    refused = kafka_drain(*into_source)

    assert refused.code == FAILED
    assert "--into-source" in refused.err
    assert {name: read(name) for name in before} == before

    sent = answer(kafka_drain(*into_source, "--into-source"))
    after = {name: read(name) for name in before}

    assert (sent["records"], sent["exactly_once"]) == (10, False)
    for name, topic in before.items():
        twice = {p: records * 2 for p, records in topic.items()}
        assert without_timestamps(twice) == without_timestamps(after[name])
