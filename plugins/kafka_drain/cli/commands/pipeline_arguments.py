"""Build the pipeline that a command works for from its arguments."""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.keys import encryption_of
from kafka_drain.cli.commands.arguments import json_file
from kafka_drain.cli.options import add_options, pairs
from kafka_drain.config.options import described, flags_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.source_options import NOT_BOUNDED
from kafka_drain.errors import ConfigError
from kafka_drain.storage.object_retention import can_lock


def add_keys(parser: argparse.ArgumentParser, *names: str, otherwise: str | None = None) -> None:
    """Add flags for keys of a pipeline.

    Args:
        parser: The command's parser.
        names: The keys.
        otherwise: Help on those that aren't given; None for their defaults.
    """
    defaults = ((name, Pipeline.model_fields[name].default) for name in names)
    counts = {
        name: otherwise or (" ".join(default) if isinstance(default, list) else str(default))
        for name, default in defaults
        if default
    }
    add_options(parser, Pipeline, *names, otherwise=counts)
    parser.set_defaults(pipeline_keys=(*(parser.get_default("pipeline_keys") or ()), *names))


def pipeline_from(options: argparse.Namespace) -> Pipeline:
    """Build a pipeline from the archive, then the file, then the command line; later ones win."""
    archive = Archive.at(options.archive)
    keys = _keys_of(archive)
    given: dict[str, Any] = {}
    if getattr(options, "pipeline", None):
        given |= _of_file(options.pipeline, keys)
    # A file that is also a DAG's may name another folder than the copy that this is about.
    given["archive"] = str(archive.root)
    kept = described(Pipeline)
    for key in (*getattr(options, "pipeline_keys", ()), "spark_conf"):
        if (value := getattr(options, key, None)) is None:
            continue
        if kept[key]["type"] != "object":
            given[key] = value
            continue
        given_pairs = pairs(flags_of(key, kept[key])[0], value)
        if key == "source_options" and options.name != "drain":
            _refuse_without_effect(options.name, given_pairs)
        # What the archive says of its source stays true beside a flag.
        of_file = given.get(key, keys.get(key, {}))
        # If the file has a value of another type, the pipeline's validation refuses it.
        if given_pairs and isinstance(of_file, dict):
            given[key] = of_file | given_pairs
    if given.get("immutable_days", 0) is None:
        keys.pop("immutable_mode", None)
    sources = {"topics", "topic_pattern", "assign"}
    if given.keys() & sources:
        keys = {name: value for name, value in keys.items() if name not in sources}
    elif options.name != "drain" and not keys.keys() & sources:
        # Nobody has forgotten the topics: the path is another one.
        archive.require()
    return Pipeline(**(keys | given))


def _of_file(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a file has, beside what the archive knows of how it was drained."""
    found = json_file(path)
    options = found.get("source_options")
    # Commands that read Kafka again must see what drains have seen: the isolation level.
    if isinstance(options, dict):
        found["source_options"] = keys.get("source_options", {}) | options
    return found


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
    # In a copy on a disk, nothing can be locked: what seals there says so.
    if document.immutability is not None and can_lock(archive.root):
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
