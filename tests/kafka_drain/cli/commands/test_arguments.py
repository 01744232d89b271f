"""Commands that send, replace or delete do nothing until they are told; the others act at once."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.cli.commands.arguments import (
    cluster_from,
    connection_settings,
    json_file,
    names_kafka,
    signer_from,
    target_from,
)
from kafka_drain.cli.commands.translate_group import _source_cluster
from kafka_drain.cli.main import COMMANDS, main, parser
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from tests.kafka_drain.golden import P0, golden_cluster, golden_copy, sealed_copy

PLANS_FIRST = {
    "plan-recovery",
    "republish",
    "translate-group",
    "restore-schemas",
    "cut-over",
    "repair",
    "reprocess",
    "erase",
    "maintain",
    "rewrap",
}
ACTS_AT_ONCE = {"drill", "drain", "validate", "capture-schemas"}
#: Act at once, unless they replace or discard something.
BOTH = {"backfill", "roll"}


def flags_of(command: str) -> set[str]:
    """Return a command's flags."""
    subparsers = next(
        action
        for action in parser([command])._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return {
        flag for action in subparsers.choices[command]._actions for flag in action.option_strings
    }


def content_of(folder: Path) -> dict[str, bytes]:
    """Return each file with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_flags_of_each_command() -> None:
    """There is one idiom: `--apply` where something is sent, replaced or deleted, `--dry-run`."""
    flags = {command: flags_of(command) for command in COMMANDS}

    assert {name for name, found in flags.items() if "--apply" in found} == PLANS_FIRST | BOTH
    assert {name for name, found in flags.items() if "--dry-run" in found} == {
        *PLANS_FIRST,
        *ACTS_AT_ONCE,
        *BOTH,
    }


@pytest.mark.parametrize("command", sorted(PLANS_FIRST))
def test_apply_contradicts_dry_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who says both is asked which one is meant."""
    required = {
        "translate-group": ["--group", "g"],
        "rewrap": ["--kms", "file", "--key", "new"],
    }

    with pytest.raises(SystemExit, match="2"):
        main([command, "/archive", *required.get(command, []), "--apply", "--dry-run"])

    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "repair"])
def test_dry_run_changes_nothing(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run writes nothing, not even a report, and says last how it is done."""
    archive = tmp_path / "archive"
    golden_copy(archive)
    before = content_of(archive)
    monkeypatch.setattr(
        f"kafka_drain.cli.commands.{command}.cluster_from", lambda _: golden_cluster()
    )

    kafka = "--bootstrap-servers=127.0.0.1:1"
    assert main([command, str(archive), kafka, "--dry-run"]) == 0

    assert content_of(archive) == before
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("dry run: nothing was changed; ")
    assert ("--apply" in last) is (command in PLANS_FIRST)


def test_drain_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drain's dry run says what it would read, and makes no archive."""
    monkeypatch.setattr("kafka_drain.cli.commands.drain.cluster_from", lambda _: golden_cluster())

    assert main(["drain", str(tmp_path / "new"), "--topic", P0.topic, "--dry-run"]) == 0

    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr()
    assert "2,000" in said.out + said.err
    assert said.err.endswith("dry run: nothing was changed; omit --dry-run to carry it out\n")


@pytest.mark.parametrize(
    ("flags", "acts"),
    [
        ([], True),
        (["--apply"], True),
        (["--dry-run"], False),
        (["--force"], False),
        (["--force", "--apply"], True),
        (["--force", "--dry-run"], False),
    ],
)
def test_backfill_acts(
    flags: list[str],
    acts: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A backfill adds what is missing at once; where it replaces, it waits to be told."""

    class Plan:
        nothing_to_do = False

        def lines(self) -> list[str]:
            return ["backfill: planned"]

        def to_dict(self) -> dict[str, Any]:
            return {}

    class Began(Exception):
        pass

    def begin(*_: Any, **__: Any) -> None:
        raise Began

    sealed_copy(tmp_path / "archive")
    module = "kafka_drain.cli.commands.backfill"
    pipeline = Pipeline(name="p", topics=["t"], archive=str(tmp_path / "archive"))
    monkeypatch.setattr(f"{module}.pipeline_from", lambda _: pipeline)
    monkeypatch.setattr(f"{module}.cluster_from", lambda _: golden_cluster())
    monkeypatch.setattr(f"{module}.plan_backfill", lambda *_, **__: Plan())
    monkeypatch.setattr(f"{module}.run_backfill", begin)
    command = [
        "backfill",
        str(tmp_path / "archive"),
        "--start",
        "2026-01-01",
        "--end",
        "2026-01-02",
    ]

    if acts:
        with pytest.raises(Began):
            main([*command, *flags])
    else:
        assert main([*command, *flags]) == 0
        said = capsys.readouterr().err.splitlines()
        how = (
            "pass --apply to carry it out"
            if "--force" in flags
            else "omit --dry-run to carry it out"
        )
        assert said == ["backfill: planned", f"dry run: nothing was changed; {how}"]


def test_cluster_from_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What follows from a setting is said once, on standard error, without its value."""
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({"bootstrap.servers": "k:1", "ssl.crl.location": "/hunter2"}))

    cluster_from(argparse.Namespace(kafka_config=str(config), bootstrap_servers=None))

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "Kafka connection: ssl.crl.location: Spark's Java client doesn't check whether the "
        "broker's certificate was revoked\n"
    )


@pytest.mark.parametrize(
    ("option", "file", "variable", "expected"),
    [
        (None, {}, None, None),
        (None, {}, "env:1", "env:1"),
        (None, {"bootstrap.servers": "file:1"}, "env:1", "file:1"),
        ("option:1", {"bootstrap.servers": "file:1"}, "env:1", "option:1"),
        ("option:1", {}, "env:1", "option:1"),
        (None, {"sasl.password": "hunter2"}, "env:1", "env:1"),
        (None, {"bootstrap.servers": "file:1"}, None, "file:1"),
        ("option:1", {"metadata.broker.list": "file:1"}, "env:1", "option:1"),
    ],
)
def test_connection_settings_precedence(
    option: str | None, file: dict[str, str], variable: str | None, expected: str | None
) -> None:
    """The command line counts before the file, and the file before the environment."""
    environment = {"KAFKA_BOOTSTRAP_SERVERS": variable} if variable else {}

    settings = connection_settings(option, file, environment)

    assert settings.get("bootstrap.servers") == expected
    # One setting has two names, and the file's other one must not count beside the option.
    named = {"bootstrap.servers", "metadata.broker.list"}
    assert settings.keys() - named == file.keys() - named
    assert "metadata.broker.list" not in settings


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"retention_days": 3650, "format": "json", "retention_days": 1}', "'retention_days'"),
        ('{"source_options": {"minPartitions": 1, "minPartitions": 2}}', "'minPartitions'"),
    ],
)
def test_json_file_name_twice(tmp_path: Path, content: str, said: str) -> None:
    """Two values of one option are refused in a file as well: nobody would see which counts."""
    path = tmp_path / "pipeline.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=f"pipeline.json has {said} twice, with two values"):
        json_file(str(path))

    path.write_text('{"format": "json", "format": "json"}')
    assert json_file(str(path)) == {"format": "json"}


def test_connection_settings_other_name() -> None:
    """A file that names its brokers by librdkafka's other name doesn't get the environment's."""
    file = {"metadata.broker.list": "file:1"}

    assert connection_settings(None, file, {"KAFKA_BOOTSTRAP_SERVERS": "env:1"}) == file


def test_cluster_from_file_before_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's brokers are the ones that are asked, whatever the environment exports."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "source:9092")
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({"bootstrap.servers": "target:9092"}))
    options = argparse.Namespace(kafka_config=str(config), bootstrap_servers=None)

    assert cluster_from(options).config.bootstrap_servers == "target:9092"


def test_clusters_of_options_before_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cluster's option counts before its file; the environment means the command's own."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "environment:9092")
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({"bootstrap.servers": "file:9092", "client.id": "c"}))
    names = ("bootstrap_servers", "to_bootstrap", "source_bootstrap_servers")
    files = ("kafka_config", "to_kafka_config", "source_kafka_config")
    makers = (cluster_from, lambda options: target_from(options, "why"), _source_cluster)
    for name, file, make in zip(names, files, makers, strict=True):
        for servers in (None, "option:9092"):
            options = argparse.Namespace(**{name: servers, file: str(config)})
            found = make(options)
            assert found is not None
            assert found.config.settings == {
                "bootstrap.servers": servers or "file:9092",
                "client.id": "c",
            }
    neither = argparse.Namespace(to_bootstrap=None, to_kafka_config=None)
    with pytest.raises(ConfigError, match="no target given"):
        target_from(neither, "why")


@pytest.mark.parametrize("variable", [None, "source:9092"])
def test_names_kafka_by_environment(variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment alone names a cluster."""
    if variable:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", variable)

    named = names_kafka(argparse.Namespace(kafka_config=None, bootstrap_servers=None))

    assert named is (variable is not None)


def test_signer_from_former_key(tmp_path: Path) -> None:
    """A former key without a witness would be of no use: nothing is validated without it."""
    given = {"evidence_key": None, "witness": None, "former_key": ["old.pem"]}

    with pytest.raises(ConfigError, match="--former-key needs --witness"):
        signer_from(argparse.Namespace(**given))
