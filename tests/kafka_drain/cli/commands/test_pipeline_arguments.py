"""The pipeline that a command works for, from its archive, its file and its flags."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.storage.immutability import Immutability
from tests.kafka_drain.made_archive import MadeArchive

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
    (tmp_path / "pipeline.json").write_text(json.dumps({"archive": "s3://b/a", **file}))
    options = argparse.Namespace(
        name="validate", archive=str(made.root), pipeline=str(tmp_path / "pipeline.json"), **flags
    )

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
    given = {"archive": str(tmp_path / folder), "name": "drain", "topic": ["t"], "pipeline": None}

    assert pipeline_from(argparse.Namespace(**given)).name == name


def test_pipeline_from_source_option(tmp_path: Path) -> None:
    """A flag for reading leaves what the archive says of its source, which a file may replace."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    made.archive.create(
        pipeline="made",
        cluster_id="cluster-1",
        topic_ids={"t": "id"},
        source={"topics": ["t"]},
        isolation_level="read_uncommitted",
        known=made.archive.snapshot().document,
    )
    given: dict[str, Any] = {"archive": str(made.root), "topic": [], "pipeline": None}
    flags = ["kafka.max.poll.records=7"]

    for name in ("drain", "reprocess"):
        options = argparse.Namespace(name=name, **given, source_options=flags)
        assert pipeline_from(options).source_options == {
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.poll.records": "7",
        }

    given["pipeline"] = str(tmp_path / "pipeline.json")
    Path(given["pipeline"]).write_text(json.dumps({"source_options": {"minPartitions": 3}}))
    options = argparse.Namespace(name="drain", **given, source_options=flags)
    assert pipeline_from(options).source_options == {
        "minPartitions": "3",
        "kafka.max.poll.records": "7",
    }


@pytest.mark.parametrize("option", ["startingOffsets=latest", "maxOffsetsPerTrigger=5"])
def test_pipeline_from_source_option_without_effect(option: str, tmp_path: Path) -> None:
    """What only decides where a drain begins or ends is refused where offsets are given."""
    given = {"archive": str(tmp_path), "topic": ["t"], "pipeline": None}
    options = argparse.Namespace(name="drain", **given, source_options=[option])
    assert len(pipeline_from(options).source_options) == 1
    options.name = "backfill"

    with pytest.raises(ConfigError, match="no effect on backfill, which reads given offsets"):
        pipeline_from(options)
