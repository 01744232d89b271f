"""The commands with an archive on Google Cloud Storage (fake-gcs-server) or HDFS: real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from upath import UPath

from kafka_drain.storage.lease import find_lease
from kafka_drain.storage.paths import locate
from tests.faults.injection import wait_for
from tests.faults.republishing import audit, read_topic
from tests.integration.command_line import ROOT, Ended, run_module

pytestmark = [pytest.mark.integration, pytest.mark.store]

RECORDS = 300


@pytest.fixture(params=["gcs", "hdfs"])
def root(
    request: pytest.FixtureRequest,
    bucket_in: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> UPath:
    """A folder in a new bucket, which this process's environment opens."""
    found = locate(f"{bucket_in(request.param)}/archive")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "plugins"), prepend=os.pathsep)
    return found


@pytest.fixture
def run(root: UPath, bootstrap_servers: str) -> Callable[..., Ended]:
    """Run a command on the archive."""

    def command(name: str, *arguments: object, code: int = 0) -> Ended:
        kafka = ("--bootstrap-servers", bootstrap_servers)
        ended = run_module("kafka_drain.cli", name, root, *kafka, *arguments, environment=_path())
        assert ended.code == code, ended.err + ended.out
        return ended

    return command


def _path() -> dict[str, str]:
    """Return where a command finds its modules, gcsfs, and Hadoop's configuration."""
    names = ("PYTHONPATH", "HADOOP_CONF_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def test_commands_on_store(
    root: UPath,
    run: Callable[..., Ended],
    make_topic: Any,
    send: Any,
    bootstrap_servers: str,
) -> None:
    """A drain is killed and resumed; damage is found and repaired; each record is sent once.

    In between, the files are compacted.
    """
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        send(topic, [(b"%d" % n, b"v%d" % n, None, 1_000 + n) for n in range(RECORDS)], partition)
    drain = ("--topic", topic, "--source-option", "maxOffsetsPerTrigger=100")
    drain += ("--master", "local[2]")

    _killed_after_batch(root, [*drain, "--bootstrap-servers", bootstrap_servers])
    # Its lease expires; until then, nobody else drains.
    assert "is being drained by" in run("drain", *drain, code=1).err
    wait_for(lambda: _has_expired(root), "the end of the killed drain's lease", patience=120)
    run("drain", *drain)
    before = json.loads(run("validate", "--json").out)
    first, *_ = sorted(path for path in root.fs.find(root.path) if path.endswith(".parquet"))
    root.fs.rm_file(first)
    found = [json.loads(run("validate", "--json", code=1).out) for _ in range(2)]
    run("repair", "--master", "local[2]", "--apply")
    after = json.loads(run("validate", "--deep", "--json").out)
    run("roll")
    compacted = json.loads(run("maintain", "--master", "local[2]", "--apply", "--json").out)
    target = f"{topic}-again"
    run("republish", "--target-topic", target, "--create-target", "--apply")

    assert before["verdict"] == after["verdict"] == "complete"
    for report in found:
        assert report["reasons"] == {"file_missing": 1, "offset_missing": 1}
    assert compacted["files_after"] < compacted["files_before"]
    sent = audit(*(read_topic(bootstrap_servers, name) for name in (topic, target)))
    assert (sent.records, sent.is_exact) == (2 * RECORDS, True)


def _has_expired(archive: UPath) -> bool:
    lease = find_lease(archive)
    assert lease is not None
    assert lease.expires_at is not None
    return lease.expires_at < datetime.now(timezone.utc)


def _killed_after_batch(archive: UPath, arguments: list[str]) -> None:
    """Kill a drain with its Spark, after it has committed a batch."""
    command = [sys.executable, "-m", "kafka_drain.cli", "drain", str(archive), *arguments]
    commits = archive / "generations" / "0001" / "checkpoint" / "commits"
    with subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:

        def committed() -> bool:
            assert process.poll() is None, process.stdout and process.stdout.read()
            return (commits / "0").exists()

        wait_for(committed, "a batch's commit", patience=120)
        os.killpg(process.pid, signal.SIGKILL)
