"""Subjects of a Schema Registry: their versions, and how schemas are registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kafka_drain.archive.documents import ReferenceRow, RegisteredRow, SubjectRow
from kafka_drain.errors import AuthenticationError, ConfigError, KafkaDrainError
from kafka_drain.schemas.avro import AVRO
from kafka_drain.schemas.registry import OF_ONE_REQUEST, VERSION, SchemaRegistry
from kafka_drain.schemas.schema_ids import RegisteredSchema

#: Compatibility and mode of a subject, or of a registry; None for none of its own.
Settings = tuple[str | None, str | None]


@dataclass(frozen=True)
class Subjects:
    """The subjects of a registry."""

    registry: SchemaRegistry

    def versions(self, subject: str, *, deleted: bool = True) -> list[int]:
        """Return a subject's versions; none if it doesn't exist."""
        path = f"{_of(subject)}/versions"
        return sorted(self.registry.ask("GET", path, deleted=deleted, shape=[int]) or ())

    def version(self, subject: str, version: int, *, deleted: bool = False) -> RegisteredRow | None:
        """Return one version of a subject; None if it doesn't exist.

        Args:
            version: Its version, deleted or not.
            deleted: Whether it is deleted, which the registry doesn't say.
        """
        path = f"{_of(subject)}/versions/{version}"
        answer = self.registry.ask("GET", path, deleted=True, shape=VERSION)
        return None if answer is None else _row(answer, deleted=deleted)

    def of_id(self, id_: int) -> list[tuple[str, int]]:
        """Return the subjects and versions of a schema id; deleted ones too."""
        path = f"/schemas/ids/{id_}/versions"
        shape = [{"subject": str, "version": int}]
        found = self.registry.ask("GET", path, deleted=True, shape=shape) or ()
        return sorted((row["subject"], row["version"]) for row in found)

    def has_id(self, id_: int) -> bool:
        """Return whether a schema has an id."""
        shape = {"schema": str}
        return self.registry.ask("GET", f"/schemas/ids/{id_}", shape=shape) is not None

    def ids_of_guid(self, guid: str) -> list[int]:
        """Return the ids of a GUID's schema, in the default context."""
        path, shape = f"/schemas/guids/{guid}/ids", [{"id": int}]
        found = self.registry.ask("GET", path, shape=shape) or ()
        return sorted({row["id"] for row in found if row.get("context", ".") == "."})

    def compatibility(self, subject: str = "") -> str | None:
        """Return a subject's compatibility, or the registry's; None if it has none of its own.

        Raises:
            AuthenticationError: When the login may not read it, which is a right of its own.
        """
        shape = {"compatibilityLevel?": str}
        answer = self.registry.ask("GET", _path("config", subject), shape=shape)
        return None if answer is None else answer.get("compatibilityLevel")

    def mode(self, subject: str = "") -> str | None:
        """Return a subject's mode, or the registry's; None if it has none of its own.

        Raises:
            AuthenticationError: When the login may not read it, which is a right of its own.
        """
        answer = self.registry.ask("GET", _path("mode", subject), shape={"mode?": str})
        return None if answer is None else answer.get("mode")

    def settings(
        self, subject: str, known: Settings, refused: dict[str, KafkaDrainError]
    ) -> Settings:
        """Return compatibility and mode of a subject, or of the registry.

        Args:
            known: What is returned where the login may not read it, or the registry doesn't say.
            refused: Takes the registry's answer in this case.
        """
        found = list(known)
        for at, read in enumerate((self.compatibility, self.mode)):
            try:
                found[at] = read(subject)
            except (AuthenticationError, *OF_ONE_REQUEST) as error:
                # Reading schemas and reading settings are different rights.
                refused[f"settings of {subject or 'the registry'}"] = error
        return found[0], found[1]

    def set_compatibility(self, level: str, subject: str) -> bool:
        """Set a subject's compatibility; return False if the registry has no place for it."""
        answer = self.registry.ask("PUT", _path("config", subject), {"compatibility": level})
        return answer is not None

    def set_mode(self, mode: str, subject: str) -> bool:
        """Set a subject's mode; return False if the registry has no modes."""
        return self.registry.ask("PUT", _path("mode", subject), {"mode": mode}) is not None

    def find(
        self,
        subject: str,
        schema: RegisteredRow,
        references: Sequence[ReferenceRow],
        *,
        deleted: bool = False,
    ) -> RegisteredSchema | None:
        """Return a schema's place in a subject, by the registry's own comparison; None for none.

        Args:
            references: Its references, in this registry's versions.
            deleted: Whether a deleted version counts too.
        """
        body = _body(schema, references)
        shape = {"subject": str, "version": int, "id": int, "guid?": str}
        answer = self.registry.ask("POST", _of(subject), body, deleted=deleted, shape=shape)
        return None if answer is None else _found(answer)

    def register(
        self,
        subject: str,
        schema: RegisteredRow,
        references: Sequence[ReferenceRow],
        *,
        keep: bool = False,
    ) -> int:
        """Register a schema as a version of a subject; return its id.

        Args:
            references: Its references, in this registry's versions.
            keep: Whether to ask for the schema's own id and version; requires mode IMPORT.

        Raises:
            ConfigError: When the registry refuses it, such as an incompatible one.
        """
        body = _body(schema, references)
        if keep:
            body |= {"id": schema.id, "version": schema.version}
        path = f"{_of(subject)}/versions"
        answer = self.registry.ask("POST", path, body, shape={"id": int})
        if answer is None:
            raise ConfigError(
                f"the Schema Registry {self.registry.url} has no {_of(subject)}/versions; correct "
                "the url: it must lead to an API that is compatible with Confluent's"
            )
        return int(answer["id"])


def read_subject(
    subjects: Subjects,
    name: str,
    known: SubjectRow | None,
    refused: dict[str, KafkaDrainError],
) -> SubjectRow | None:
    """Return the content of a subject; versions that are known aren't fetched again.

    A version that the registry no longer has is kept: the archive may hold its values. So are
    settings that the login may not read.

    Args:
        subjects: The registry.
        name: The subject.
        known: Its content in the archive.
        refused: Takes the registry's answer if the login may not read the settings.

    Returns:
        None if neither knows it.
    """
    versions = subjects.versions(name)
    if not versions:
        return known
    live = set(subjects.versions(name, deleted=False))
    rows = {row.version: row for row in known.versions} if known else {}
    for version in versions:
        if version not in rows:
            row = subjects.version(name, version, deleted=version not in live)
            rows |= {} if row is None else {version: row}
        else:
            rows[version] = rows[version].model_copy(update={"deleted": version not in live})
    before = (known.compatibility, known.mode) if known else (None, None)
    compatibility, mode = subjects.settings(name, before, refused)
    return SubjectRow(
        name=name,
        compatibility=compatibility,
        mode=mode,
        versions=[row for _, row in sorted(rows.items())],
    )


def _of(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _path(setting: str, subject: str) -> str:
    return f"/{setting}/{quote(subject, safe='')}" if subject else f"/{setting}"


def _row(answer: Mapping[str, Any], *, deleted: bool) -> RegisteredRow:
    references = answer.get("references") or ()
    return RegisteredRow.model_validate(
        {
            "version": answer["version"],
            "id": answer["id"],
            "guid": answer.get("guid"),
            "type": answer.get("schemaType") or AVRO,
            "schema": answer["schema"],
            "references": [
                {name: reference[name] for name in ("name", "subject", "version")}
                for reference in references
            ],
            "deleted": deleted,
        }
    )


def _found(answer: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(answer["subject"], answer["version"], answer["id"], answer.get("guid"))


def _body(schema: RegisteredRow, references: Sequence[ReferenceRow]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if references:
        body["references"] = [row.content() for row in references]
    return body
