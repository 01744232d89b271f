"""Plan a job's decoding of values, and keep the archive's own copies of schemas up to date.

`schemas.json` holds every writer schema that the archive has ever seen, in self-contained form, so
that values can be decoded even if the registry is gone. `generation.json` defines the columns, so
that all files of a generation have the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import SchemasDocument
from kafka_drain.archive.schema_seals import SCHEMAS, schemas_digests, seal_schemas
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.values import Values
from kafka_drain.errors import AuthenticationError, ConfigError, RegistryUnavailableError
from kafka_drain.schemas.avro import parse_schema, self_contained, undefined_types, why_no_columns
from kafka_drain.schemas.registry import GoneError, SchemaRegistry, WriterSchema
from kafka_drain.storage.paths import quoted


@dataclass(frozen=True)
class ValuePlan:
    """The plan for decoding a drain's values.

    Attributes:
        frozen: The `values` of `generation.json`; None when nothing is decoded.
        schemas: The writer schemas by id.
        changed: Whether some of them aren't in the archive yet.
        warnings: Warnings for the user.
    """

    frozen: Mapping[str, Any] | None = None
    schemas: Mapping[int, WriterSchema] = field(default_factory=dict)
    changed: bool = False
    warnings: Sequence[str] = ()

    @property
    def spec(self) -> dict[str, Any] | None:
        """The `values` of a job spec."""
        return _spec(self.frozen, self.schemas)

    def keep(self, root: UPath, now: datetime) -> None:
        """Write the schemas to the archive and seal them; the caller must hold its lease."""
        if not self.schemas:
            return
        before = document = read_schemas(root)
        if self.changed:
            # Keys of a later release are kept, and what others added while this was suspended.
            rows = {row.id: row.content() for row in before.schemas}
            for id_, schema in self.schemas.items():
                rows[id_] = rows.get(id_, {}) | schema.to_dict()
            kept = [row for _, row in sorted(rows.items())]
            document = SchemasDocument.model_validate(before.content() | {"schemas": kept})
            document.write(root / SCHEMAS)
        # If the newest seal is damaged, nothing is sealed, and the validation says so.
        at = now.isoformat(timespec="milliseconds")
        seal_schemas(root, schemas_digests(before), schemas_digests(document), at=at)


def _spec(
    frozen: Mapping[str, Any] | None, schemas: Mapping[int, WriterSchema]
) -> dict[str, Any] | None:
    if frozen is None:
        return None
    settings = frozen["settings"]
    if settings["encoding"] == "json":
        return {"encoding": "json", "columns": settings["columns"]}
    usable = {id_: s.schema for id_, s in sorted(schemas.items()) if not why_no_columns(s.schema)}
    return {
        "encoding": "avro",
        "reader": frozen["reader"],
        "writers": {str(id_): schema for id_, schema in usable.items()},
    }


def frozen_values(snapshot: Snapshot, pipeline: Pipeline) -> dict[str, Any] | None:
    """Return the `values` of a window's or compaction's job spec, from the archive."""
    return decoded_values(snapshot) if pipeline.values else None


def decoded_values(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the decoding of the open generation's values; None without one."""
    generation = snapshot.open_generation
    if generation is None:
        return None
    return _spec(generation.document.values, _known(snapshot.root))


def plan_values(
    pipeline: Pipeline,
    archive: Archive,
    generation: SnapshotGeneration | None,
    registry: SchemaRegistry | None,
) -> ValuePlan:
    """Plan the decoding of a drain's values; change nothing.

    A registry that is unavailable, rejects the login or has lost a subject doesn't stop a drain
    that already has schemas of it: values that they can't decode stay raw.

    Args:
        pipeline: The pipeline, whose `values` settings apply.
        generation: The open generation, if something was drained to it: its columns are fixed.
        registry: The registry of the schemas; None to use only what the archive knows.

    Raises:
        ConfigError: When a schema can't be read or yields no columns, when there is none, or when
            an id has a different schema in the archive.
        AuthenticationError: When the registry rejects the login, and the archive knows no schema.
        RegistryUnavailableError: When it doesn't respond, and the archive knows no schema.
    """
    values = pipeline.values
    if values is None:
        return ValuePlan()
    settings = values.model_dump(mode="json", exclude_defaults=True)
    warnings = []
    frozen: Mapping[str, Any] | None = None
    if generation is not None:
        frozen = generation.document.values
        if frozen is None or frozen["settings"] != settings:
            what = "aren't decoded in" if frozen is None else "are decoded with the old settings in"
            warnings.append(
                f"values {what} generation {generation.number}, which was opened before the "
                "pipeline's settings changed; run "
                f"`kafka-drain roll {quoted(archive.root)}`: the next generation uses the new "
                "settings"
            )
        if frozen is None:
            return ValuePlan(warnings=warnings)
    if values.encoding == "json":
        return ValuePlan(frozen or {"settings": settings}, warnings=warnings)
    known = _known(archive.root)
    schemas, found, answers = _learn(pipeline, values, known, registry)
    warnings += found
    if frozen is None:
        reader, found = _reader(pipeline, values, schemas, registry if answers else None)
        warnings += found
        frozen = {"settings": settings, "reader": reader}
    return ValuePlan(frozen, schemas, schemas != known, warnings)


def read_schemas(root: UPath) -> SchemasDocument:
    """Return the schemas that an archive keeps in `schemas.json`; none if there is no such file."""
    try:
        return SchemasDocument.read(root / SCHEMAS)
    except (FileNotFoundError, NotADirectoryError):
        return SchemasDocument(schemas=[])


def _known(root: UPath) -> dict[int, WriterSchema]:
    # Earlier releases kept some without types that a reference defines: those are read once more.
    rows = [row for row in read_schemas(root).schemas if not undefined_types(row.avro)]
    return {row.id: WriterSchema(row.id, row.avro, row.subject, row.version) for row in rows}


def _learn(
    pipeline: Pipeline,
    values: Values,
    known: Mapping[int, WriterSchema],
    registry: SchemaRegistry | None,
) -> tuple[dict[int, WriterSchema], list[str], bool]:
    """Return known and new schemas, warnings, and whether the registry is available."""
    new = [
        WriterSchema(id_, self_contained(_read_file(path), {}))
        for id_, path in values.schema_files.items()
    ]
    warnings: list[str] = []
    if values.registry_conn_id and registry is None and not known and not new:
        raise ConfigError(
            "no Schema Registry was given, and the archive has no schema yet; pass "
            "--registry-config with the registry's url"
        )
    answers = True
    for subject in pipeline.subjects if registry else ():
        have: dict[int, set[int]] = {}
        for schema in known.values():
            if schema.subject == subject and schema.version:
                have.setdefault(schema.version, set()).add(schema.id)
        try:
            found, skipped = registry.schemas(subject, have)  # type: ignore[union-attr]
        except (AuthenticationError, GoneError, RegistryUnavailableError) as error:
            is_of_subject = isinstance(error, GoneError)
            if not (have if is_of_subject else known or new):
                raise
            warnings.append(f"{error}; values are decoded with the archive's own copies of schemas")
            if is_of_subject:
                continue
            answers = False
            break
        new += found
        warnings += skipped
    schemas = dict(known)
    for schema in new:
        before = schemas.setdefault(schema.id, schema)
        if before.schema != schema.schema:
            raise ConfigError(
                f"schema id {schema.id} is a different schema here ({_origin(schema)}) than in the "
                f"archive ({_origin(before)}), but ids of a registry never change; correct the "
                "connection or the file, or choose another archive"
            )
    for schema in new:
        why = why_no_columns(schema.schema)
        if why:
            warnings.append(f"values of schema id {schema.id} aren't decoded: {why}")
    return schemas, warnings, answers


def _origin(schema: WriterSchema) -> str:
    return f"version {schema.version} of {schema.subject}" if schema.subject else "from a file"


def _reader(
    pipeline: Pipeline,
    values: Values,
    schemas: Mapping[int, WriterSchema],
    registry: SchemaRegistry | None,
) -> tuple[Any, list[str]]:
    """Return the schema of the columns, and warnings."""
    if values.reader_schema:
        reader = self_contained(_read_file(values.reader_schema), {})
        why = why_no_columns(reader)
        if why:
            raise ConfigError(f"{values.reader_schema} can't be converted to columns: {why}")
        return reader, []
    candidates = _candidates(pipeline, schemas, registry)
    for schema in candidates:
        if not why_no_columns(schema.schema):
            newer = [f"{s.id}" for s in candidates[: candidates.index(schema)]]
            warning = f"the columns are those of schema id {schema.id}, because {', '.join(newer)} "
            return schema.schema, [f"{warning}can't be converted to columns"] if newer else []
    raise ConfigError(
        f"no schema of {' and '.join(pipeline.subjects) or 'values.schema_files'} can be converted "
        "to columns; set one in values.reader_schema"
    )


def _candidates(
    pipeline: Pipeline, schemas: Mapping[int, WriterSchema], registry: SchemaRegistry | None
) -> list[WriterSchema]:
    """Return the schemas that may define the columns, best first."""
    first = pipeline.subjects[:1]
    registered = [s for s in schemas.values() if s.subject in first]
    if not registered:
        return sorted(schemas.values(), key=lambda s: s.id, reverse=True)
    live: Sequence[int] = ()
    if registry is not None:
        try:
            live = registry.live_versions(first[0])
        except ConfigError:
            # All of its versions are deleted.
            live = ()
    # Versions begin again in a subject that was deleted for good; ids go on.
    order = {s.id: (s.version in live, s.version or 0, s.id) for s in registered}
    return sorted(registered, key=lambda s: order[s.id], reverse=True)


def _read_file(path: str) -> Any:
    try:
        return parse_schema(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the schema {path} can't be read: {error}") from error
