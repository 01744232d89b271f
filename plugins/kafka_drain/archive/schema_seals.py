"""Seals of the schemas that an archive keeps in `registry.json` and `schemas.json`.

Whoever keeps a schema seals it: a link of the chain has the hash of everything that is kept. A
schema that is changed or removed afterwards is found, because no run ever does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from typing import Annotated

from pydantic import Field
from upath import UPath

from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.archive.format import Link
from kafka_drain.archive.journal.digests import canonical_digest
from kafka_drain.archive.sealed_chain import TRIES, SealedChain
from kafka_drain.errors import ArchiveError, TerminalError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.sealed_json import SealedName
from kafka_drain.storage.typed_json import Complete

REGISTRY = "registry.json"
SCHEMAS = "schemas.json"

#: Number of schemas that a finding names.
_SHOWN = 5


class SchemaSealError(TerminalError, ValueError):
    """Raised when a seal of schemas differs from what was sealed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaKey(Complete):
    """Key of a seal: that of a schema, or of the settings of a registry or subject.

    Attributes:
        document: The document that holds it.
        subject: The subject, in `registry.json`; None for the registry's own settings.
        version: The version; None for the subject's settings.
        id: The schema's id, in `schemas.json`.
    """

    document: str
    subject: str | None = None
    version: int | None = None
    id: int | None = None

    def __str__(self) -> str:
        if self.id is not None:
            return f"schema {self.id}"
        if self.version is not None:
            return f"version {self.version} of {self.subject}"
        return f"the settings of {self.subject or 'the registry'}"


#: The hash of each.
Digests = Mapping[SchemaKey, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSchema(SchemaKey):
    """A row of a seal: what it names, and the hash of that."""

    sha256: str

    @property
    def key(self) -> SchemaKey:
        """The key of its seal."""
        return SchemaKey(
            document=self.document, subject=self.subject, version=self.version, id=self.id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSeal(Link):
    """The schemas that an archive kept at one moment.

    Attributes:
        sealed_at: When it was written, in UTC.
        rows: Everything that was kept, in order.
    """

    sealed_at: str
    rows: Annotated[tuple[SealedSchema, ...], Field(alias="schemas")]

    @classmethod
    def of(cls, number: int, previous: str | None, sealed_at: str, schemas: Digests) -> SchemaSeal:
        """Return a seal of the kept schemas."""
        kept = sorted(schemas.items(), key=lambda row: [str(part) for part in astuple(row[0])])
        rows = tuple(SealedSchema(**asdict(key), sha256=sha256) for key, sha256 in kept)
        return cls(number=number, previous=previous, sealed_at=sealed_at, rows=rows)

    @property
    def schemas(self) -> Digests:
        """The hash of everything that was kept."""
        return {row.key: row.sha256 for row in self.rows}


def parse_schema_seal(content: bytes, name: str = "a seal of schemas") -> SchemaSeal:
    """Parse a seal and verify its own hash.

    Raises:
        SchemaSealError: When a byte was changed, or it isn't a seal.
    """
    return SchemaSeal.parse_named(content, name, "a document", SchemaSealError)


SEALS = SealedChain("schema-seals", parse_schema_seal)


def registry_digests(document: RegistryDocument) -> dict[SchemaKey, str]:
    """Return the hash of everything that `registry.json` keeps of a registry.

    Which ids the records have isn't part of it: that can be read from the records again.
    """
    if not document.url:
        return {}
    own = {"compatibility": document.compatibility, "mode": document.mode}
    digests = {SchemaKey(document=REGISTRY): canonical_digest(own)}
    for subject in document.subjects:
        settings = {"compatibility": subject.compatibility, "mode": subject.mode}
        key = SchemaKey(document=REGISTRY, subject=subject.name)
        digests[key] = canonical_digest(settings)
        for row in subject.versions:
            key = SchemaKey(document=REGISTRY, subject=subject.name, version=row.version)
            digests[key] = canonical_digest(row.content())
    return digests


def schemas_digests(document: SchemasDocument) -> dict[SchemaKey, str]:
    """Return the hash of each schema in `schemas.json`."""
    return {
        SchemaKey(document=SCHEMAS, id=row.id): canonical_digest(row.content())
        for row in document.schemas
    }


def renewed(sealed: Digests, before: Digests, now: Digests) -> dict[SchemaKey, str]:
    """Return the seal after a run has changed the kept schemas.

    What was damaged before the run stays sealed as it was: only what the run found intact may it
    change, such as a subject's compatibility.

    Args:
        sealed: The sealed digests.
        before: The digests that the run found.
        now: The digests that it has left.
    """
    return {**sealed} | {
        key: sha256
        for key, sha256 in now.items()
        if key not in sealed or before.get(key) == sealed[key]
    }


def seal_schemas(root: UPath, before: Digests, now: Digests, *, at: str) -> bool:
    """Seal the schemas that a run has kept, unless they are sealed already.

    Args:
        before: The digests that the run found in its document.
        now: The digests that it has left there.
        at: The current time, in UTC.

    Returns:
        False if the newest seal is missing or was changed; then nothing is sealed.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    for _ in range(TRIES):
        newest = SEALS.newest(root)
        sealed = _newest_seal(root, newest)
        if newest is not None and sealed is None:
            return False
        if _append(
            root, newest, sealed, renewed(sealed.schemas if sealed else {}, before, now), at
        ):
            return True
    raise _busy(root)


def accept_schemas(root: UPath, *, at: str) -> None:
    """Seal the kept schemas as they are, regardless of earlier seals.

    Raises:
        ArchiveError: When a document can't be read, or the archive can't be written.
    """
    for _ in range(TRIES):
        newest = SEALS.newest(root)
        kept: dict[SchemaKey, str] = {}
        for document in (REGISTRY, SCHEMAS):
            with suppress(FileNotFoundError, NotADirectoryError):
                kept |= _kept(root, document)
        if _append(root, newest, _newest_seal(root, newest), kept, at):
            return
    raise _busy(root)


def _append(
    root: UPath, newest: SealedName | None, sealed: SchemaSeal | None, schemas: Digests, at: str
) -> bool:
    """Append a link, unless the newest says the same; return False if another run was faster."""
    if schemas == (sealed.schemas if sealed else {}) and (sealed or newest is None):
        return True
    number = newest.number + 1 if newest else 1
    previous = newest.sha256 if newest and newest.sha256 else None
    return SEALS.append(root, SchemaSeal.of(number, previous, at, schemas).sealed())


def _busy(root: UPath) -> ArchiveError:
    return ArchiveError(f"{root / SEALS.name}: {TRIES} other runs sealed schemas; try again")


def _newest_seal(root: UPath, newest: SealedName | None) -> SchemaSeal | None:
    """Return the newest seal; None if there is none, or it is missing or was changed."""
    if newest is None or SEALS.check(root, {}, newest, whole=False):
        return None
    return SEALS.read(root, newest.number)


def _kept(root: UPath, document: str) -> dict[SchemaKey, str]:
    if document == REGISTRY:
        return registry_digests(RegistryDocument.read(root / document))
    return schemas_digests(SchemasDocument.read(root / document))


def judge_seal(*, is_newest: bool) -> Reason:
    """Return whether damage to a seal does harm: schemas are compared with the newest one."""
    return Reason.SCHEMA_SEAL_LOST if is_newest else Reason.SCHEMA_SEAL_DAMAGED


def check_schemas(
    root: UPath,
    named: Mapping[int, str],
    newest: SealedName | None,
    *,
    whole: bool,
    documents: Iterable[str] = (REGISTRY, SCHEMAS),
) -> list[Finding]:
    """Find kept schemas, and seals, that are missing or were changed.

    Args:
        named: Hashes of seals that receipts name, by number.
        newest: The newest seal; None if no schema was ever sealed.
        whole: Whether to check all seals; otherwise only the newest and those that are named.
        documents: The documents to compare with the newest seal.
    """
    damaged = SEALS.check(root, named, newest, whole=whole)
    findings = [
        Finding(judge_seal(is_newest=damage.is_newest), damage.where, damage.detail)
        for damage in damaged
    ]
    if newest is not None and not any(damage.is_newest for damage in damaged):
        sealed = SEALS.read(root, newest.number).schemas
        for document in documents:
            mine = {key: sha256 for key, sha256 in sealed.items() if key.document == document}
            if mine and (detail := _difference(root, document, mine)):
                findings.append(Finding(Reason.SCHEMA_CHANGED, document, detail))
    return findings


def _difference(root: UPath, document: str, sealed: Digests) -> str:
    """Describe the differences between a document and its seal; empty for none."""
    try:
        kept = _kept(root, document)
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except ArchiveError as error:
        return str(error).removeprefix(f"{root / document} ").partition(";")[0]
    wrong = [
        f"{key}: {'changed' if key in kept else 'missing'}"
        for key, sha256 in sealed.items()
        if kept.get(key) != sha256
    ]
    more = f", and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
    return ", ".join(wrong[:_SHOWN]) + more
