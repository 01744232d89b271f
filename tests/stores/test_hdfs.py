"""An archive on a real HDFS: what only HDFS has, and what goes wrong there.

`make test-hdfs` runs it. What each store has to do is in the other modules.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError, LockedError, StoreUnavailableError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.unlock import list_leases
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.storage.hdfs import HdfsPath, read_settings
from kafka_drain.storage.json_files import clear_unfinished, create_text, write_text
from kafka_drain.storage.lease import Lease, find_lease, hold_lease
from kafka_drain.storage.paths import list_folder, locate, read_bytes, require_reachable
from tests.conftest import Drain
from tests.faults.injection import wait_for
from tests.hdfs_cluster import Hdfs
from tests.integration.command_line import kafka_drain
from tests.integration.test_lease import drain_started
from tests.stores.conftest import RECORDS, numbered
from tests.stores.test_s3_archive import pipeline_of, rows

pytestmark = [pytest.mark.integration, pytest.mark.store]


@pytest.fixture
def root(bucket_in: Callable[[str], str]) -> UPath:
    """A folder that doesn't exist yet."""
    return locate(f"{bucket_in('hdfs')}/archive")


@pytest.fixture
def in_safe_mode(hdfs: Hdfs) -> Iterator[Hdfs]:
    """An HDFS that takes no writes when it is told to; it takes them again afterwards."""
    yield hdfs
    hdfs.leave_safe_mode()


# --- files and folders ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "a+b", "a%2Fb", "a%b", "a;b", "ü€", "a=b", "a&b", "a?b#c"])
def test_names(root: UPath, name: str) -> None:
    """A file is found by its name, whatever is in it, and so is its folder."""
    path = root / name / name
    path.write_text(name)

    assert path.read_text() == name
    assert list_folder(root) == {name: True}
    assert list_folder(root / name) == {name: False}
    assert [each.name for each in (root / name).iterdir()] == [name]
    assert root.fs.find(root.path) == [path.path]


def test_path(root: UPath) -> None:
    """A path that is derived, pickled or written down is the same path."""
    path = root / "a" / "b.json"
    path.write_text("{}")

    for again in (pickle.loads(pickle.dumps(path)), locate(str(path)), UPath(path)):
        assert isinstance(again, HdfsPath)
        assert again == path
        assert again.read_text() == "{}"
    assert path.parent.parent == root
    assert path.with_suffix(".html").name == "b.html"
    assert (path.is_file(), path.is_dir(), path.parent.is_dir()) == (True, False, True)
    assert path.stat().st_size == 2
    assert not (root / "none").exists()
    assert list_folder(root / "none") == {}
    assert list_folder(path) == {}


def test_read_parts(root: UPath) -> None:
    """Parts of a file are read alone, from its beginning or its end."""
    content = os.urandom(3_000_000)
    path = root / "x"
    path.write_bytes(content)

    assert read_bytes(path) == content
    assert root.fs.cat_file(path.path, 10, 20) == content[10:20]
    assert root.fs.cat_file(path.path, -5) == content[-5:]
    assert root.fs.cat_file(path.path, 5, 5) == b""
    with path.open("rb", cache_type="none") as source:
        source.seek(2_999_990)
        assert source.read(100) == content[-10:]
    (root / "empty").write_bytes(b"")
    assert read_bytes(root / "empty") == b""


def test_remove(root: UPath) -> None:
    """What isn't there can't be removed; a folder that isn't empty only as a whole."""
    (root / "a" / "b").write_text("x")

    with pytest.raises(OSError, match=r"not empty|PathIsNotEmpty"):
        (root / "a").rmdir()
    root.fs.rm((root / "a").path, recursive=True)
    assert list_folder(root) == {}
    (root / "a").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (root / "a").unlink()


def test_write_while_read(root: UPath) -> None:
    """Who reads a document that is replaced over and over sees one of the versions, complete."""
    path = root / "x.json"
    versions = {bytes([65 + n]) * 20_000 for n in range(20)}
    path.write_bytes(max(versions))
    seen = list[bytes]()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(read_bytes(path))

    reader = threading.Thread(target=read)
    reader.start()
    for version in sorted(versions):
        write_text(path, version.decode())
    done.set()
    reader.join()

    assert len(seen) > 1
    assert set(seen) <= versions
    assert list_folder(root) == {"x.json": False}


def test_create_text_at_once(root: UPath) -> None:
    """Of six writers at the same moment, exactly one creates a document; nothing else is left."""
    path, start, won = root / "receipt.json", threading.Barrier(6), list[str]()

    def create(text: str) -> None:
        start.wait()
        if create_text(path, text):
            won.append(text)

    threads = [threading.Thread(target=create, args=(f"text {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [path.read_text()]
    assert list_folder(root) == {"receipt.json": False}


def test_create_text_response_lost(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename that was done, and whose answer was lost, is found out by reading again."""
    files = root.fs
    path = root / "receipt.json"
    cluster, _ = files._at(path.path)
    rename = cluster.rename

    def twice(*arguments: Any, **options: Any) -> None:
        rename(*arguments, **options)
        rename(*arguments, **options)

    monkeypatch.setattr(cluster, "rename", twice)

    assert create_text(path, "first")
    assert not create_text(path, "second")
    write_text(path, "third")
    assert path.read_text() == "third"


def test_clear_unfinished(root: UPath) -> None:
    """The write of a document that a kill has left is removed by its next writer."""
    write_text(root / "generation.json", "{}")
    left = [f".{name}.{'0' * 32}.tmp" for name in ("generation.json", "other.json")]
    for name in left:
        (root / name).write_text("half")

    clear_unfinished(root / "generation.json")

    assert set(list_folder(root)) == {"generation.json", left[1]}


def test_permission_denied(root: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user is told what is missing, by HDFS's own words."""
    (root / "x").write_text("x")
    ours, where = root.fs._at(root.path)
    ours.ask("PUT", "SETPERMISSION", where, permission="700")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    theirs = locate(str(root))

    with pytest.raises(ArchiveError, match="user=somebody"):
        write_text(theirs / "y", "y")
    with pytest.raises(ArchiveError, match=r"user=somebody.*HADOOP_USER_NAME"):
        require_reachable(theirs / "folder")
    with pytest.raises(PermissionError):
        (theirs / "x").exists()


def test_unknown_host() -> None:
    """An HDFS that isn't there is said to be unreachable, and where it was looked for."""
    with pytest.raises(StoreUnavailableError, match=r"hdfs://127\.0\.0\.1:1 .*9870"):
        require_reachable(locate("hdfs://127.0.0.1:1/archive"))


def test_settings_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that can't be read is named."""
    (tmp_path / "core-site.xml").write_text("<configuration>")

    with pytest.raises(ConfigError, match=r"core-site\.xml of HADOOP_CONF_DIR isn't XML"):
        read_settings(str(tmp_path))


# --- the lease ------------------------------------------------------------------------------


def test_lease_damaged(root: UPath) -> None:
    """A newest file that can't be parsed is reported; `unlock` shows it."""
    lease = Lease(root, run="r")
    lease.acquire()
    (root / ".lock" / "000000000001.json").write_text('{"hol')

    found = find_lease(root)
    assert found is not None
    assert found.expires_at is None
    [held] = list_leases(root)
    assert held.to_dict()["lease"] == f"{root}/.lock"
    with pytest.raises(ArchiveError, match="expected the lease of a drain"):
        Lease(root, run="r").acquire()


def test_lease_released(root: UPath) -> None:
    """One small file stays, whatever is taken and released."""
    for _ in range(5):
        with hold_lease(root, run="r"):
            pass

    assert list_folder(root / ".lock") == {"000000000010.json": False}


# --- an HDFS that fails ---------------------------------------------------------------------


def test_safe_mode(root: UPath, in_safe_mode: Hdfs) -> None:
    """Nothing is written, what is there can be read, and the error says how to go on."""
    path = root / "x.json"
    write_text(path, "before")
    in_safe_mode.enter_safe_mode()

    for write in (
        lambda: write_text(path, "after"),
        lambda: create_text(root / "y.json", "y"),
        lambda: Lease(root, run="r").acquire(),
    ):
        with pytest.raises(StoreUnavailableError, match=r"safe mode.*dfsadmin -safemode get"):
            write()
    assert path.read_text() == "before"
    in_safe_mode.leave_safe_mode()
    write_text(path, "after")
    assert path.read_text() == "after"
    assert list_folder(root) == {"x.json": False}


def test_data_node_down(root: UPath, hdfs: Hdfs) -> None:
    """Without a DataNode nothing is read or written; when it is back, all is there."""
    path = root / "x.json"
    write_text(path, "before")
    hdfs.stop_data_node()
    try:
        for act in (lambda: write_text(path, "after"), lambda: read_bytes(path)):
            with pytest.raises(StoreUnavailableError, match="DataNode"):
                act()
    finally:
        hdfs.start_data_node()

    def is_there() -> bool:
        try:
            return path.read_text() == "before"
        except StoreUnavailableError:
            return False

    wait_for(is_there, "the content", patience=60)
    write_text(path, "after")
    assert path.read_text() == "after"


# --- drains ---------------------------------------------------------------------------------


@pytest.fixture
def drained(root: UPath, topic: str, drain: Drain) -> Pipeline:
    """The pipeline of an archive with two batches, which no validation has sealed."""
    pipeline = pipeline_of(topic, str(root))
    assert drain(pipeline)["batches"] == 2
    return pipeline


def test_archive_equals_local(
    drained: Pipeline, topic: str, drain: Drain, cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The same records, receipts and verdicts as on a disk."""
    local = pipeline_of(topic, str(tmp_path / "archive"))
    assert drain(local)["batches"] == 2
    archives = [Archive.at(each.archive) for each in (drained, local)]
    for archive in archives:
        assert validate_archive(archive, cluster).complete

    ours, theirs = (list(archive.generation(1).receipts()) for archive in archives)

    assert rows(drained.archive).equals(rows(local.archive))
    assert [r.partitions for r in theirs] == [r.partitions for r in ours]
    assert [r.fingerprint for r in theirs] == [r.fingerprint for r in ours]
    assert validate_archive(archives[0], cluster, deep=True).findings == []


def test_drain_in_safe_mode(
    drained: Pipeline,
    drain: Drain,
    send: Any,
    topic: str,
    cluster: KafkaCluster,
    in_safe_mode: Hdfs,
    bootstrap_servers: str,
) -> None:
    """A drain while nothing can be written fails with a reason, and loses nothing."""
    send(topic, numbered(RECORDS), partition=0)
    kafka = ("--topic", topic, "--bootstrap-servers", bootstrap_servers)
    in_safe_mode.enter_safe_mode()

    ended = kafka_drain("drain", drained.archive, *kafka, "--master", "local[2]")

    assert ended.code != 0
    assert "is in safe mode" in ended.err
    in_safe_mode.leave_safe_mode()
    assert drain(drained)["records"] == RECORDS
    assert validate_archive(Archive.at(drained.archive), cluster, scope="all").complete
    assert rows(drained.archive).num_rows == 3 * RECORDS


def test_drain_beside_another_without_lease(
    root: UPath,
    topic: str,
    drain: Drain,
    cluster: KafkaCluster,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two drains without a lease, Spark fails the later one; each offset is there once.

    HDFS lets only one of them rename the file of a batch. On one machine, the second is refused as
    long as the first runs.
    """
    file, log = tmp_path / "pipeline.json", tmp_path / "log"
    # The first drain has batches to do when it is stopped.
    several = {"maxOffsetsPerTrigger": RECORDS // 5}
    # A command names a pipeline as its folder.
    pipeline = Pipeline(name="archive", topics=[topic], archive=str(root), source_options=several)
    file.write_text(json.dumps({"source_options": pipeline.source_options}))
    kafka = ("--bootstrap-servers", bootstrap_servers, "--master", "local[2]")
    planned = root / "generations" / "0001" / "checkpoint" / "offsets" / "1"

    with drain_started(
        ("drain", root, "--topic", topic, *kafka, "--pipeline", file), log, planned
    ) as first:
        os.killpg(first.pid, signal.SIGSTOP)
        root.fs.rm((root / ".lock").path, recursive=True)
        with pytest.raises(LockedError, match="is being drained without its lease"):
            drain(pipeline)
        # From here on, the first drain counts as another machine's.
        monkeypatch.setattr("kafka_drain.drain.drain.refuse_orphans", lambda _: None)
        second = drain(pipeline)
        os.killpg(first.pid, signal.SIGCONT)
        first.wait(120)

    assert second["records"] > 0
    # It had to finish a batch that the second drain had already written.
    assert first.returncode == 1, log.read_text()[-2000:]
    assert "THE LEASE IS LOST" in log.read_text()
    assert validate_archive(Archive.at(str(root)), cluster).complete
    table = archive_dataset(str(root)).to_table(columns=["partition", "offset"])
    offsets = set(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert len(offsets) == table.num_rows == 2 * RECORDS
    assert drain(pipeline)["offsets"] == 0


def test_republish_on_executors(
    drained: Pipeline,
    cluster: KafkaCluster,
    topic: str,
    make_topic: Any,
    read: Any,
    bootstrap_servers: str,
) -> None:
    """Spark's executors read an archive on HDFS, and send each record exactly once."""
    assert validate_archive(Archive.at(drained.archive), cluster).complete
    target = make_topic(partitions=2)
    kafka = ("--bootstrap-servers", bootstrap_servers, "--target-topic", target)

    ended = kafka_drain(
        "republish", drained.archive, *kafka, "--engine", "spark", "--master", "local[2]", "--apply"
    )

    assert ended.code == 0, ended.err
    assert read(target) == read(topic)
