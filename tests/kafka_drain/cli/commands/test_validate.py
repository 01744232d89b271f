"""`kafka-drain validate`: what a run without anything to prove loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.cli.commands import validate as command
from kafka_drain.cli.main import main
from kafka_drain.errors import (
    AuthenticationError,
    AuthorizationError,
    KafkaUnavailableError,
    NotWritableError,
)
from kafka_drain.findings import Reason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import validation
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from tests.core_calls import CoreCalls
from tests.kafka_drain.golden import golden_cluster, sealed_copy
from tests.read_only import WAYS

_RUN = """
import json, sys
from kafka_drain.cli.main import main
code = main(["validate", sys.argv[1], "--json"])
print(json.dumps({"code": code, "loaded": sorted({"numpy", "pyarrow"} & sys.modules.keys())}))
"""


def test_validate_nothing_new(tmp_path: Path) -> None:
    """A validation without new files doesn't import pyarrow, which takes longer than the rest."""
    archive = sealed_copy(tmp_path / "archive")
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, str(archive.root)], check=True, capture_output=True, text=True
    )

    assert json.loads(ended.stdout.splitlines()[-1]) == {"code": 0, "loaded": []}


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("with_witness", [False, True])
def test_validate_without_kafka(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_witness: bool
) -> None:
    """If Kafka doesn't answer, the verdict on the files is given, and what it leaves open.

    A witness that is a topic isn't asked for again.
    """
    archive = sealed_copy(tmp_path / "archive")
    more: list[str] = []
    if with_witness:
        key = tmp_path / "key.pem"
        assert main(["evidence-key", str(key)]) == 0
        more = ["--evidence-key", str(key), "--witness", "kafka:seen"]
        capsys.readouterr()
    config = tmp_path / "kafka.json"
    config.write_text('{"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000}')
    before = snapshot_of(tmp_path / "archive")

    code = main(["validate", str(archive.root), "--kafka-config", str(config), "--json", *more])

    out, err = capsys.readouterr()
    assert code == 1
    told = json.loads(out)
    assert told["verdict"] == "complete"
    assert told["kafka_unavailable"].startswith("no response from Kafka at 127.0.0.1:1")
    assert "what follows is what the files alone prove" in err
    assert "kafka-drain validate: no response from Kafka at 127.0.0.1:1 within 1 s" in err
    assert "127.0.0.1:1 refuses connections" in err
    # A cluster that doesn't answer isn't asked to describe itself.
    assert "unanswered" not in err
    assert snapshot_of(tmp_path / "archive") == before


@pytest.mark.parametrize("error", [AuthenticationError, AuthorizationError])
def test_validate_login_refused(
    error: type[Exception],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If Kafka refuses the login, or what it asks for, the verdict on the files is given too."""
    archive = sealed_copy(tmp_path / "archive")
    before = snapshot_of(tmp_path / "archive")

    def refuse(*_: object, **__: object) -> None:
        raise error("Kafka at k:1 rejects the credentials")

    monkeypatch.setattr("kafka_drain.kafka.admin.Admin.ask", refuse)

    code = main(["validate", str(archive.root), "--bootstrap-servers=127.0.0.1:1", "--json"])

    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (code, told["verdict"]) == (1, "complete")
    assert told["kafka_unavailable"] == "Kafka at k:1 rejects the credentials"
    assert err.endswith("kafka-drain validate: Kafka at k:1 rejects the credentials\n")
    assert snapshot_of(tmp_path / "archive") == before


def test_validate_login_refused_damage_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the files alone prove to be damaged stands, as if Kafka hadn't been named."""
    archive = sealed_copy(tmp_path / "archive")
    note_overview(archive, validate_archive(archive, golden_cluster()), "reports/r.json")
    assert main(["status", str(archive.root)]) == 0
    path = sorted((tmp_path / "archive").glob("generations/*/data/**/part-*"))[0]
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(8) + content[-32:])

    def refuse(*_: object, **__: object) -> None:
        raise AuthenticationError("Kafka at k:1 rejects the credentials")

    monkeypatch.setattr("kafka_drain.kafka.admin.Admin.ask", refuse)
    asked = ["validate", str(archive.root), "--bootstrap-servers=127.0.0.1:1", "--json"]
    for options in (["--deep", "--dry-run"], ["--deep"], ["--deep"], []):
        assert main([*asked, *options]) == 1
        capsys.readouterr()
        code = main(["status", str(archive.root)])
        assert code == ("--dry-run" not in options)
        assert ("not ready" in capsys.readouterr().out) == bool(code)
    # Found again by a validation that reads no other bytes, until it is mended.
    hourly = validate_archive(archive, None, scope="open")
    assert Reason.FILE_CHANGED in {finding.reason for finding in hourly.findings}
    path.write_bytes(content)
    note_overview(archive, validate_archive(archive, golden_cluster()), "reports/r.json")
    assert main(["status", str(archive.root)]) == 0


def validated(
    capsys: pytest.CaptureFixture[str], root: Any, *options: str
) -> tuple[int, dict[str, Any], str]:
    """Return the exit code of a validation, its answer, and what it said."""
    code = main(["validate", str(root), *options, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.mark.parametrize("options", [(), ("--deep",)])
@pytest.mark.parametrize("way", WAYS)
def test_validate_read_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, options: tuple[str, ...]
) -> None:
    """Whoever may only read an archive gets the verdict that its owner gets, and its exit code."""
    archive = sealed_copy(tmp_path / "archive")
    code, owners, _ = validated(capsys, archive.root, *options, "--dry-run")
    assert (code, owners["verdict"]) == (0, "complete")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    with WAYS[way](tmp_path / "archive"):
        code, told, said = validated(capsys, archive.root, *options)

    assert (code, told["verdict"], told["records"]) == (0, "complete", owners["records"])
    reason = "its file system is read-only" if way == "mounted" else "this user may not write"
    assert told["report"] is None
    assert told["not_written"].startswith(reason)
    assert f"nothing is sealed or noted: {reason}" in said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    # A damage is one for everybody.
    receipt = min(Path(str(archive.root)).glob("generations/*/receipts/*.json"))
    receipt.write_text(receipt.read_text().replace("1", "2", 1))
    code, owners, _ = validated(capsys, archive.root, *options, "--dry-run")
    assert (code, owners["verdict"]) == (1, "findings")
    with WAYS[way](tmp_path / "archive"):
        code, told, _ = validated(capsys, archive.root, *options)
    assert (code, told["findings"]) == (1, owners["findings"])


def test_validate_store_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a write tells, as in a store, is told the same way."""
    archive = sealed_copy(tmp_path / "archive")

    def refuse(*_: object, **__: object) -> None:
        raise NotWritableError("s3://b/reports can't be written: Access Denied")

    monkeypatch.setattr("kafka_drain.cli.commands.report_answer.write_report", refuse)
    code, told, _ = validated(capsys, archive.root)
    assert (code, told["report"]) == (0, None)
    assert "Access Denied" in told["not_written"]

    monkeypatch.undo()
    key = tmp_path / "key.pem"
    assert main(["evidence-key", str(key)]) == 0
    capsys.readouterr()
    monkeypatch.setattr("kafka_drain.cli.commands.report_answer.sign_report", refuse)
    code, told, _ = validated(capsys, archive.root, "--evidence-key", str(key))
    # Who asked for a signature must not take a report without one for it.
    assert (code, "evidence" in told) == (1, False)
    assert told["report"] is not None

    monkeypatch.setattr(validation, "_validate_generations", once(validation, refuse))
    code, told, _ = validated(capsys, archive.root)
    assert (code, told["report"]) == (0, None)


def test_validate_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A signed report is a success; a dry run signs nothing, which isn't a failure."""
    archive = sealed_copy(tmp_path / "archive")
    key = tmp_path / "key.pem"
    assert main(["evidence-key", str(key)]) == 0
    capsys.readouterr()
    asked = ("--evidence-key", str(key))

    code, told, _ = validated(capsys, archive.root, *asked, "--dry-run")
    assert (code, told["report"], "evidence" in told) == (0, None, False)
    assert not (tmp_path / "archive" / "evidence").exists()

    code, told, _ = validated(capsys, archive.root, *asked)
    assert (code, told["verdict"]) == (0, "complete")
    capsys.readouterr()
    assert main(["verify-evidence", told["evidence"], "--public-key", f"{key}.pub"]) == 0


def once(module: Any, refuse: Any) -> Any:
    """Return the module's function, which is refused if it writes."""
    real = module._validate_generations

    def validate(*args: Any, writes: bool, **more: Any) -> None:
        if writes:
            refuse()
        real(*args, writes=writes, **more)

    return validate


@pytest.mark.parametrize(
    ("flags", "scope", "deep", "is_down"),
    [
        ([], "all", False, False),
        (["--scope", "open", "--deep"], "open", True, True),
    ],
)
def test_validate_asks(
    flags: list[str],
    scope: str,
    deep: bool,
    is_down: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flags say what is validated, also if Kafka is down; a dry run writes nothing."""
    archive = sealed_copy(tmp_path / "archive")
    calls, kafka = CoreCalls(monkeypatch), golden_cluster()
    here = "kafka_drain.cli.commands.validate"
    report = validate_archive(archive, None)
    down = KafkaUnavailableError("no response")
    calls.replace(f"{here}.cluster_from", kafka)
    calls.replace(f"{here}.describe_with", "describes")
    calls.replace(f"{here}.signer_from", "the signer")
    calls.replace(f"{here}.validate_archive", down if is_down else report)
    calls.replace(f"{here}.validate_files_alone", report)
    calls.replace(f"{here}.note_damage")
    more = ["--acknowledge-expired", "flights:0:1-2", "--dry-run", *flags]

    code = main(["validate", str(archive.root), "--bootstrap-servers", "nowhere:1", *more])

    assert code == is_down
    given, named = calls.given["validate_archive"]
    assert (given, named.pop("writes")) == ((archive, kafka), False)
    assert named.pop("describe") == "describes"
    accepted = {TopicPartition("flights", 0): [OffsetRange(1, 2)]}
    assert (named["scope"], named["deep"], named["acknowledged"]) == (scope, deep, accepted)
    assert named["signer"] == "the signer"
    alone = ((archive, down), named)
    assert calls.given.get("validate_files_alone") == (alone if is_down else None)
    assert "note_damage" not in calls.given


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        # As the last validation did.
        ([], ["topics"]),
        (["--describe-cluster", "none"], []),
        (["--describe-cluster", "groups, acls"], ["groups", "acls"]),
    ],
)
def test_validate_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], parts: list[str]
) -> None:
    """What a pipeline leaves out of a cluster's description, the command leaves out too."""
    archive = sealed_copy(tmp_path / "archive")
    asked: list[Any] = []
    monkeypatch.setattr(command, "parts_before", lambda _: ["topics"])
    monkeypatch.setattr(command, "describe_with", lambda _, parts: asked.append(parts))
    monkeypatch.setattr(command, "cluster_from", lambda _: golden_cluster())

    main(["validate", str(archive.root), "--bootstrap-servers", "nowhere:1", *flags])

    assert asked == [parts]
