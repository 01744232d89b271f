"""Build the pipeline that a command works for from its arguments."""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.keys import encryption_of
from kafka_drain.cli.commands.arguments import json_file
from kafka_drain.cli.options import pairs
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.source_options import NOT_BOUNDED
from kafka_drain.errors import ConfigError

#: Flags that are also keys of a pipeline.
FLAGS = (
    "topic_pattern",
    "format",
    "compression",
    "partition_by",
    "target_file_bytes",
    "retention_days",
    "max_future_days",
    "max_manifest_lines",
    "max_generation_days",
    "immutable_days",
    "immutable_mode",
)


def pipeline_from(options: argparse.Namespace) -> Pipeline:
    """Build a pipeline from the archive, then the file, then the command line; later ones win."""
    archive = Archive.at(options.archive)
    keys = _keys_of(archive)
    given: dict[str, Any] = {}
    if getattr(options, "pipeline", None):
        given |= json_file(options.pipeline)
    # A file that is also a DAG's may name another folder than the copy that this is about.
    given["archive"] = str(archive.root)
    if options.name == "drain" and options.topic:
        given["topics"] = options.topic
    for flag in FLAGS:
        if getattr(options, flag, None) is not None:
            given[flag] = getattr(options, flag)
    for flag in ("source_options", "sink_options", "spark_conf"):
        given_pairs = pairs(f"--{flag.rstrip('s').replace('_', '-')}", getattr(options, flag, ()))
        if flag == "source_options" and options.name != "drain":
            _refuse_without_effect(options.name, given_pairs)
        # What the archive says of its source stays true beside a flag.
        of_file = given.get(flag, keys.get(flag, {}))
        # If the file has a value of another type, the pipeline's validation refuses it.
        if given_pairs and isinstance(of_file, dict):
            given[flag] = of_file | given_pairs
    if given.get("immutable_days", 0) is None:
        keys.pop("immutable_mode", None)
    sources = {"topics", "topic_pattern", "assign"}
    if given.keys() & sources:
        keys = {name: value for name, value in keys.items() if name not in sources}
    return Pipeline(**(keys | given))


def _refuse_without_effect(command: str, source_options: Iterable[str]) -> None:
    for name in source_options:
        if name in NOT_BOUNDED:
            raise ConfigError(
                f"--source-option {name} has no effect on {command}, which reads given offsets; "
                "leave it out"
            )


def _name_of(folder: str) -> str:
    """Return the name of a folder's pipeline: the folder's, without what a name can't have."""
    ascii_only = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", ascii_only).lstrip("_.-")[:100] or "archive"


def _keys_of(archive: Archive) -> dict[str, Any]:
    """Return the keys of a pipeline that an archive knows."""
    keys: dict[str, Any] = {"archive": str(archive.root), "name": _name_of(archive.root.name)}
    if not archive.exists:
        return keys
    snapshot = archive.snapshot()
    document, generation = snapshot.document, snapshot.open_generation
    keys |= {"name": document.pipeline, **document.source}
    if document.isolation_level != "read_committed":
        keys["source_options"] = {"kafka.isolation.level": document.isolation_level}
    if document.immutability is not None:
        keys["immutable_days"] = document.immutability.days
        keys["immutable_mode"] = document.immutability.mode
    if generation is not None:
        written = generation.document
        keys |= {"format": written.format, "partition_by": written.partition_by}
        if written.values:
            keys["values"] = written.values["settings"]
    if encryption := encryption_of(archive.root):
        keys["encryption"] = encryption
    return keys
