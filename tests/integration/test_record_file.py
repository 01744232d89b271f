"""Records that were found, written to a file, edited and sent again, by the real command."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.offsets import TopicPartition
from tests.integration.command_line import kafka_drain, kafka_drain_killed
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
RECORDS = 40

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]


def row(partition: int, offset: int) -> Row:
    """A record, which may have bytes that aren't text, nulls, and a header twice."""
    return (
        None if offset % 7 == 0 else b"key %d" % (offset % 5),
        None if offset % 11 == 0 else b"\xff\x00%d" % offset if offset % 2 else b"%d" % partition,
        [("h", b"\xfe"), ("h", None), ("", b"")] if offset % 3 == 0 else None,
        NOON + offset,
    )


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A file of the records that are found in an archive."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"})
    made.seal(
        {TopicPartition("orders", p): dense(0, RECORDS, NOON) for p in range(2)},
        key=lambda tp, offset: row(tp.partition, offset)[0],
        value=lambda tp, offset: row(tp.partition, offset)[1],
        headers=lambda tp, offset: [
            {"key": name, "value": value} for name, value in row(tp.partition, offset)[2] or ()
        ],
    )
    made.open_generation()
    path = tmp_path / "cases.jsonl"
    ended = kafka_drain("find", made.root, "--from-time", "2013-01-01", "--out", path)
    assert ended.code == 0, ended.err
    assert f"find: {2 * RECORDS} records found" in ended.err
    return path


@pytest.mark.parametrize("kills", [False, True])
def test_republish_from_file(
    kills: bool,
    found: Path,
    make_topic: Any,
    read: Any,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record once, as it is in the file; also if it is killed again and again."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", bootstrap_servers)
    target = make_topic(partitions=2)
    folder = tmp_path / "run" / "cases"
    asked = ["republish", folder, "--from-file", found, "--target-topic", target, "--json"]

    expected = {p: [row(p, offset) for offset in range(RECORDS)] for p in range(2)}
    key, _, headers, time = expected[0][4]
    expected[0][4] = key, b"repaired", headers, time

    lines = found.read_text().splitlines()
    line = json.loads(lines[4])
    assert (line["partition"], line["offset"]) == (0, 4)
    lines[4] = json.dumps({**line, "value": "repaired", "x": 0})
    found.write_text("\n".join(lines))
    ended = kafka_drain(*asked, "--apply")
    assert ended.code == 2
    assert 'line 5: "x" is unknown' in ended.err
    lines[4] = json.dumps({**line, "value": "repaired"})
    found.write_text("\n".join(lines))

    ended = kafka_drain(*asked)
    assert ended.code == 0, ended.err
    planned = json.loads(ended.out)
    assert [(s["target"], s["records"]) for s in planned["shards"]] == [
        (f"{target}-0", RECORDS),
        (f"{target}-1", RECORDS),
    ]
    assert not folder.exists()
    assert read(target) == {0: [], 1: []}

    if kills:
        # While the records' archive is made beside, and then while the run goes on.
        for number in (1, 16, 31):
            killed = kafka_drain_killed(tmp_path / "run" / ".cases", number, *asked, "--apply")
            assert killed.code == -signal.SIGKILL
            assert not folder.exists()
    number, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        number += 3
        ended = kafka_drain_killed(folder, number if kills else 0, *asked, "--apply")
        code = ended.code
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["verification"]["is_exact"]
    assert (result["attempts"] > 1) is kills
    assert read(target) == expected

    again = kafka_drain(*asked, "--apply")
    assert again.code == 0, again.err
    assert read(target) == expected


def test_republish_from_file_made_by_hand(
    make_topic: Any,
    read: Any,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records without partition are placed by key, in the file's order, with one time for all.

    A plan that was frozen needs only the folder.
    """
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", bootstrap_servers)
    target = make_topic(partitions=3)
    lines = [{"topic": target, "key": f"k{n % 4}", "value": str(n)} for n in range(20)]
    path, text = tmp_path / "cases.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(text)
    asked = ["republish", tmp_path / "run", "--from-file", path, "--same-topics"]

    ended = kafka_drain(*asked, "--apply")
    assert ended.code == 2
    assert "line 1: partition is missing; give one, or say --placement key" in ended.err
    ended = kafka_drain(*asked, "--placement", "key", "--freeze", "--json")
    assert ended.code == 0, ended.err
    plan_id = json.loads(ended.out)["plan_id"]
    path.unlink()
    ended = kafka_drain("republish", tmp_path / "run", "--plan", plan_id, "--apply")

    assert ended.code == 0, ended.err
    sent = [found for rows in read(target).values() for found in rows]
    by_key = {key: [value for of, value, *_ in sent if of == key] for key, *_ in sent}
    assert by_key == {b"k%d" % k: [b"%d" % n for n in range(k, 20, 4)] for k in range(4)}
    assert len({time for *_, time in sent}) == 1

    # Into a topic that holds records, which may be these: only if that is asked for.
    path.write_text(text)
    ended = kafka_drain("republish", tmp_path / "other", *asked[2:], "--placement", "key")
    assert ended.code != 0
    assert "--into-source" in ended.err
