"""Republishes that leave records out and change them, to a real broker."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError, SourceRecordError, VerifyError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.planning import find_run, plan_group, read_map
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from tests.integration.command_line import ROOT, kafka_drain, run_module
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
RECORDS = 60
KEY = b"a secret key of pseudonyms"

RULES = '''
import pyarrow as pa

SECRET = {secret!r}

def odd_ones(batch):
    """Leave out every second record, and add a header to the others."""
    rows = [row for row in batch.to_pylist() if row["offset"] % 2]
    for row in rows:
        row["headers"] = [*(row["headers"] or []), {{"key": "by", "value": SECRET}}]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)

def by_the_clock(batch):
    """Write down when it was called: the same within a plan, another one later."""
    import os
    rows = batch.to_pylist()
    for row in rows:
        row["value"] = os.environ["NOW_OF_A_TEST"].encode()
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)
'''


def record(n: int) -> Any:
    value = {"id": n, "country": "DE" if n % 3 else "FR", "email": f"{n}@example.com", "sum": 1.50}
    return (
        b"customer %d" % (n % 10),
        None if n % 11 == 0 else json.dumps(value).encode(),
        [("trace", b"%d" % n)] if n % 2 else None,
        NOON + n // 2,
    )


@pytest.fixture
def source(tmp_path: Path) -> Archive:
    """A sealed archive of two partitions."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"})
    rows = {TopicPartition("orders", p): dense(0, RECORDS // 2, NOON) for p in range(2)}
    made.seal(
        rows,
        key=lambda tp, n: record(2 * n + tp.partition)[0],
        value=lambda tp, n: record(2 * n + tp.partition)[1],
        headers=lambda tp, n: [
            {"key": name, "value": held} for name, held in record(2 * n + tp.partition)[2] or ()
        ],
    )
    # A closed generation needs no checkpoint of Spark's.
    made.open_generation()
    return made.archive


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the user's, which processes find."""
    folder = tmp_path / "rules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def module(folder: Path, secret: bytes = b"me") -> str:
    """Write the module under a name of its own; return the name."""
    name = f"rules_{hashlib.sha256(str(folder).encode() + secret).hexdigest()[:8]}"
    (folder / f"{name}.py").write_text(RULES.format(secret=secret))
    return name


def pseudonym(content: bytes) -> bytes:
    return hmac.new(KEY, content, hashlib.sha256).hexdigest().encode()


def expected(rows: list[Any]) -> list[Any]:
    """Return what is sent of a partition by the options of the test below."""
    found = []
    for key, value, headers, time in rows:
        if value is None or b'"DE"' not in value:
            continue
        masked = value[: value.index(b'"email": ')] + b'"email": "***", "sum": 1.5}'
        found.append((pseudonym(key), masked, [h for h in headers or () if h[0] != "trace"], time))
    return found


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_republish_masked_and_filtered(
    engine: str,
    source: Archive,
    make_topic: Any,
    read: Any,
    bootstrap_servers: str,
    tmp_path: Path,
    cluster: KafkaCluster,
) -> None:
    """With the real command: what is sent, counted, verified, said, and never said; once."""
    archive = source
    target = make_topic(partitions=2)
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY + b"\n")
    asked = [
        "republish", str(archive.root), "--target-topic", target,
        "--engine", engine,
        "--filter", "$.country=DE", "--mask", "$.email", "--hash", "key",
        "--hash-key-file", str(key_file), "--drop-header", "trace", "--json",
    ]  # fmt: skip

    servers = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
    first = kafka_drain(*asked, "--apply", environment=servers)

    assert first.code == 0, first.err
    answer = json.loads(first.out)
    before = {p: [record(n) for n in range(p, RECORDS, 2)] for p in range(2)}
    sent = {partition: expected(rows) for partition, rows in before.items()}
    number = sum(map(len, sent.values()))
    found = {
        partition: [(key, value, headers or [], time) for key, value, headers, time in rows]
        for partition, rows in read(target).items()
    }
    assert found == sent
    assert (answer["records"], answer["engine"]) == (number, engine)
    assert answer["change"]["selected"] == RECORDS
    assert (answer["change"]["dropped"], answer["change"]["changed"]) == (RECORDS - number, number)
    assert f"as planned: {RECORDS - number:,} left out, {number:,} changed" in first.err
    for text in (first.out, first.err, _documents(archive)):
        assert KEY.decode() not in text
        assert "example.com" not in text

    again = kafka_drain(*asked, "--apply", environment=servers)

    assert json.loads(again.out)["records_sent"] == 0
    assert read(target) == read(target)
    [run] = [run for run in map(_run(archive), _runs(archive)) if run.has_ended]
    with pytest.raises(ConfigError, match=r"left out \d+ records"):
        plan_group(
            archive,
            run,
            read_map(find_run(archive, run.key)),
            cluster,
            ConsumerGroups(cluster.config),
            GroupRecords(run.folder, "readers"),
            group="readers",
            to_group="readers",
        )


def _runs(archive: Archive) -> list[str]:
    names = [path.name for path in (archive.root / "republish").iterdir()]
    return [name for name in names if name != "openings"]


def _run(archive: Archive) -> Any:
    return lambda key: RepublishRun(archive.root, key)


def _documents(archive: Archive) -> str:
    folder = Path(str(archive.root)) / "republish"
    return "".join(path.read_text() for path in folder.rglob("*.json"))


def test_republish_function(
    source: Archive, make_topic: Any, read: Any, republish: Any, rules: Path
) -> None:
    """A function leaves records out and changes them, in two processes; by key too."""
    archive = source
    for placement in ("original", "key"):
        target = make_topic(partitions=2)
        receipt = republish(
            archive,
            target,
            change=f"{module(rules)}:odd_ones",
            mark_changed=True,
            placement=placement,
            processes=2,
        )
        assert receipt["records"] == receipt["change"]["changed"] == RECORDS // 2
        assert receipt["change"]["dropped"] == RECORDS // 2
        headers = [h for rows in read(target).values() for _, _, h, _ in rows]
        assert all([name for name, _ in h][-2:] == ["by", "kafka-drain.changed"] for h in headers)


def test_republish_function_became_another(
    source: Archive, make_topic: Any, read: Any, republish: Any, rules: Path
) -> None:
    """A run that has started is resumed only with the function and the key that it started with."""
    archive = source
    target = make_topic(partitions=2)
    name = module(rules)
    asked: dict[str, Any] = {"change": f"{name}:odd_ones", "run_name": "one"}
    republish(archive, target, **asked)
    (RepublishRun(archive.root, run_key("one")).folder / "receipt.json").unlink()

    path = rules / f"{name}.py"
    whole = path.read_text()
    path.write_text(whole + "\n# another one\n")
    with pytest.raises(ConfigError, match="Put the planned one back to resume"):
        republish(archive, target, **asked)
    path.write_text(whole)
    assert republish(archive, target, **asked)["records_sent"] == 0
    assert sum(map(len, read(target).values())) == RECORDS // 2


def test_republish_function_of_the_time(
    source: Archive, make_topic: Any, republish: Any, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that gives something else later than when it was planned gets no receipt."""
    from kafka_drain.republish import run as running

    archive = source
    target = make_topic(partitions=2)
    monkeypatch.setenv("NOW_OF_A_TEST", "planned")
    send = running.Republish._send

    def later(*arguments: Any) -> None:
        monkeypatch.setenv("NOW_OF_A_TEST", "sent")
        send(*arguments)

    monkeypatch.setattr(running.Republish, "_send", later)
    with pytest.raises(VerifyError, match=r"made something else of the records .*than when"):
        republish(archive, target, change=f"{module(rules)}:by_the_clock", run_name="clock")
    assert not RepublishRun(archive.root, run_key("clock")).has_ended


def test_republish_changed_refused(
    source: Archive, make_topic: Any, read: Any, republish: Any, tmp_path: Path
) -> None:
    """What can't be carried out is refused before the first record; no value is shown."""
    archive = source
    target = make_topic(partitions=2)
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"mask": ["$.emial"]}, ConfigError, r"no record that is sent has .*emial"),
        ({"hash_fields": ["key"]}, ConfigError, "hash needs the secret key"),
        ({"mask": ["key:$.id"]}, SourceRecordError, r"at offset 0 of .*-[01]"),
        ({"change": "no_such_rules:f"}, ConfigError, "can't be imported"),
    ]
    for asked, kind, said in refused:
        with pytest.raises(kind, match=said) as error:
            republish(archive, target, **asked)
        assert "customer" not in str(error.value)
    answer = republish(archive, target, filters=["$.country=nowhere"])
    assert answer["records"] == 0
    assert not any(read(target).values())


LEAVING = """
import inspect, os, sys

def leave(batch):
    where, how = os.environ["LEAVES"].split()
    if where == "plan" or any(frame.function == where for frame in inspect.stack()):
        if how == "os._exit":
            os._exit(0)
        raise {"sys.exit": SystemExit(0), "interrupt": KeyboardInterrupt()}[how]
    return batch
"""


@pytest.mark.parametrize("where", ["plan", "_following", "verify_partitions"])
@pytest.mark.parametrize("how", ["sys.exit", "os._exit", "interrupt"])
def test_republish_function_leaves(
    how: str,
    where: str,
    source: Archive,
    make_topic: Any,
    read: Any,
    rules: Path,
    bootstrap_servers: str,
) -> None:
    """A function that leaves, in the plan or later, is a failure that says so: never a success."""
    (rules / "leaving.py").write_text(LEAVING)
    target = make_topic(partitions=2)
    path = os.pathsep.join([str(ROOT / "plugins"), str(rules)])

    ended = run_module(
        *("kafka_drain.cli", "republish", source.root, "--target-topic", target),
        *("--bootstrap-servers", bootstrap_servers, "--run", "leaving", "--apply"),
        *("--change", "leaving:leave"),
        environment={"LEAVES": f"{where} {how}", "PYTHONPATH": path},
    )

    if (where, how) == ("plan", "interrupt"):
        # As Ctrl-C, which it can't be told from.
        assert ended.code == 130
    else:
        assert ended.code in (1, 2), ended
        left = {"sys.exit": "SystemExit", "interrupt": "KeyboardInterrupt"}.get(how, how)
        assert f"leaving:leave left by {left}" in ended.err
    sent = sum(map(len, read(target).values()))
    assert sent == (RECORDS if where == "verify_partitions" else 0)
    assert not RepublishRun(source.root, run_key("leaving")).has_ended
