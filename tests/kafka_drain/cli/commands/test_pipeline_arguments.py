"""The pipeline that a command works for, from its archive, its file and its flags."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands import pipeline_arguments
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.main import COMMANDS, parser
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.storage.immutability import Immutability
from tests.kafka_drain.made_archive import MadeArchive

TOPIC = {"topics": ["t"], "pipeline_keys": ["topics"]}
LOCKS = Immutability("compliance", 30)


@pytest.mark.parametrize(
    ("file", "flags", "expected"),
    [
        ({}, {}, LOCKS),
        ({}, {"immutable_days": 60}, Immutability("compliance", 60)),
        ({"immutable_days": 60}, {}, Immutability("compliance", 60)),
        ({"immutable_mode": "governance"}, {}, Immutability("governance", 30)),
        ({"immutable_days": 60}, {"immutable_days": 90}, Immutability("compliance", 90)),
        ({"immutable_days": None}, {}, None),
    ],
)
def test_pipeline_from_immutable(
    file: dict[str, Any],
    flags: dict[str, Any],
    expected: Immutability | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are locked as the archive says, unless a file or a flag says otherwise."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    document = made.archive.snapshot().document
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"t": "id"},
        source={"topics": ["t"]},
        immutable=LOCKS,
        known=document,
    )
    (tmp_path / "pipeline.json").write_text(json.dumps(file))
    options = argparse.Namespace(
        name="validate",
        archive=str(made.root),
        pipeline=str(tmp_path / "pipeline.json"),
        pipeline_keys=[*flags],
        **flags,
    )

    # Only a store locks files, and this archive is on a disk.
    class OnStore(Pipeline):
        def __init__(self, **keys: Any) -> None:
            super().__init__(**{**keys, "archive": "s3://b/a"})

    monkeypatch.setattr(pipeline_arguments, "Pipeline", OnStore)
    monkeypatch.setattr(pipeline_arguments, "can_lock", lambda root: True)

    found: Pipeline = pipeline_from(options)

    assert found.immutable == expected
    assert Archive.at(str(made.root)).snapshot().document.immutability == LOCKS


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("orders", "orders"),
        ("orders.v2_a-b", "orders.v2_a-b"),
        ("größe", "groe"),
        ("a b#c?d", "a_b_c_d"),
        ("[prod] {eu}", "prod_eu_"),
        (".hidden", "hidden"),
        ("日本", "archive"),
        ("x" * 200, "x" * 100),
    ],
)
def test_pipeline_from_folder(folder: str, name: str, tmp_path: Path) -> None:
    """A folder's name is the pipeline's, as far as one can have it."""
    given = {"archive": str(tmp_path / folder), "name": "drain", "pipeline": None, **TOPIC}

    assert pipeline_from(argparse.Namespace(**given)).name == name


@pytest.mark.parametrize(
    ("path", "says"),
    [("nowhere", "doesn't exist"), ("file", "isn't a folder"), ("", "without archive.json")],
)
def test_pipeline_from_no_archive(path: str, says: str, tmp_path: Path) -> None:
    """Another path than the archive's isn't taken for a pipeline without topics, but by a drain."""
    (tmp_path / "file").touch()
    given = {"archive": str(tmp_path / path), "pipeline": None}

    with pytest.raises(ArchiveError, match=rf"{says}.*check"):
        pipeline_from(argparse.Namespace(name="backfill", **given))
    with pytest.raises(ConfigError, match="give exactly one of topics"):
        pipeline_from(argparse.Namespace(name="drain", **given))


def test_pipeline_from_source_option(tmp_path: Path) -> None:
    """Flags and files for reading leave the archive's isolation level, unless they name one."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"t": "id"},
        source={"topics": ["t"]},
        isolation_level="read_uncommitted",
        known=made.archive.snapshot().document,
    )
    given: dict[str, Any] = {"archive": str(made.root), "pipeline": None}
    given["pipeline_keys"] = ["source_options"]
    flags = ["kafka.max.poll.records=7"]

    for name in ("drain", "reprocess"):
        options = argparse.Namespace(name=name, **given, source_options=flags)
        assert pipeline_from(options).source_options == {
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.poll.records": "7",
        }

    given["pipeline"] = str(tmp_path / "pipeline.json")
    options = argparse.Namespace(name="drain", **given, source_options=flags)
    for of_file, level in (
        ({"minPartitions": 3}, "read_uncommitted"),
        ({"minPartitions": 3, "kafka.isolation.level": "read_committed"}, "read_committed"),
    ):
        Path(given["pipeline"]).write_text(json.dumps({"source_options": of_file}))
        assert pipeline_from(options).source_options == {
            "kafka.isolation.level": level,
            "minPartitions": "3",
            "kafka.max.poll.records": "7",
        }
    # What isn't an object is refused as a pipeline's value.
    Path(given["pipeline"]).write_text(json.dumps({"source_options": ["minPartitions"]}))
    with pytest.raises(ConfigError, match="source_options"):
        pipeline_from(options)


@pytest.mark.parametrize("option", ["startingOffsets=latest", "maxOffsetsPerTrigger=5"])
def test_pipeline_from_source_option_without_effect(option: str, tmp_path: Path) -> None:
    """What only decides where a drain begins or ends is refused where offsets are given."""
    given = {"archive": str(tmp_path), "pipeline": None, "topics": ["t"]}
    given["pipeline_keys"] = ["topics", "source_options"]
    options = argparse.Namespace(name="drain", **given, source_options=[option])
    assert len(pipeline_from(options).source_options) == 1
    options.name = "backfill"

    with pytest.raises(ConfigError, match="no effect on backfill, which reads given offsets"):
        pipeline_from(options)


#: For each flag: what the file has, and what the command line has.
SETTINGS: dict[str, tuple[Any, Any]] = {
    "topic_pattern": ("f.*", "c.*"),
    "format": ("avro", "json"),
    "compression": ("snappy", "gzip"),
    "partition_by": (["topic"], ["hour"]),
    "target_file_bytes": (1 << 20, 1 << 21),
    "retention_days": (1, 2),
    "max_future_days": (3, 4),
    "scrub_days": (5, 6),
    "max_manifest_lines": (5, 6),
    "max_generation_days": (7, 8),
    "source_options": ({"maxOffsetsPerTrigger": "1"}, ["maxOffsetsPerTrigger=2"]),
    "sink_options": ({"maxRecordsPerFile": "1"}, ["maxRecordsPerFile=2"]),
    "spark_conf": ({"spark.task.cpus": "1"}, ["spark.task.cpus=2"]),
}


def test_settings_of_each_flag() -> None:
    """Locks have a test of their own: only a store has them."""
    keys = {"spark_conf"}
    for name in COMMANDS:
        subparsers = next(
            action
            for action in parser([name])._actions
            if isinstance(action, argparse._SubParsersAction)
        )
        keys |= {*(subparsers.choices[name].get_default("pipeline_keys") or ())}

    assert set(SETTINGS) == keys - {"immutable_days", "immutable_mode", "topics"}


@pytest.mark.parametrize("flag", SETTINGS)
def test_pipeline_from_order(flag: str, tmp_path: Path) -> None:
    """The command line wins over the file, which wins over what the archive has."""
    of_file, of_line = SETTINGS[flag]
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.open_generation()
    keys = {"topic_pattern": "t", "retention_days": 9, flag: of_file, "archive": "/elsewhere"}
    (tmp_path / "pipeline.json").write_text(json.dumps(keys))
    given = {"name": "drain", "archive": str(made.root), "pipeline_keys": [flag]}

    def found(**more: Any) -> Any:
        options = argparse.Namespace(**given, **{"pipeline": None, **more})
        pipeline = pipeline_from(options)
        assert pipeline.archive == str(made.root)
        return getattr(pipeline, flag)

    expected = of_line
    if flag in ("source_options", "sink_options", "spark_conf"):
        expected = dict(pair.split("=") for pair in of_line)
    file = {"pipeline": str(tmp_path / "pipeline.json")}
    with_line = {flag: of_line, **({"compression": None} if flag == "format" else {})}
    assert found(**file) == of_file
    assert found(**file, **with_line) == expected


def test_pipeline_from_copy_on_a_disk(tmp_path: Path) -> None:
    """Commands work on a disk's copy of an archive with locks."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"t": "id"},
        source={"topics": ["t"]},
        immutable=LOCKS,
        known=made.archive.snapshot().document,
    )

    found = pipeline_from(argparse.Namespace(name="republish", archive=str(made.root)))

    assert found.immutable is None
