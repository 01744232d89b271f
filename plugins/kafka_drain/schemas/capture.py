"""Keep the schemas that an archive's records use: `registry.json`.

The ids are read from the records: from keys and values of files that were drained since the last
time, sealed or not, so that the receipts that seal them can name the schemas. What the registry has
of their subjects is added; nothing is ever removed. A registry that doesn't answer is noted, and
asked again the next time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow.compute as pc
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import (
    ReadThroughRow,
    RegisteredRow,
    RegistryDocument,
    SeenIdsRow,
    SubjectRow,
)
from kafka_drain.archive.files import (
    ATTEMPTS,
    ArchiveFile,
    files_of_manifest,
    files_of_receipt,
)
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.generation_state import is_of_sealed_batch, read_state
from kafka_drain.archive.receipts import receipt_name
from kafka_drain.archive.schema_seals import REGISTRY, registry_digests, seal_schemas
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.records import path_of
from kafka_drain.data_files.scalars import text
from kafka_drain.errors import ArchiveError, KafkaDrainError
from kafka_drain.findings import Reason, errors
from kafka_drain.progress import Progress, Ticker
from kafka_drain.schemas.registry import OF_ONE_REQUEST, SchemaRegistry, UnwellError
from kafka_drain.schemas.schema_ids import HEADERS, IdLocation, SchemaId, context_of
from kafka_drain.schemas.subjects import Subjects, read_subject
from kafka_drain.schemas.wire_format import count_ids
from kafka_drain.storage.paths import is_file

#: Number of subjects and ids that a note names.
_SHOWN = 10
#: Beginning of a note about settings alone: all schemas were read.
OF_SETTINGS = "not read, as reading settings is another right: "

#: What a url that leads to a context of a registry may be to blame for.
OF_CONTEXT = "; its url leads to a context, expected that of the registry itself: correct it"
#: Number of failures in a row after which a registry that is unwell isn't asked any more.
_IN_ROW = 3


@dataclass(frozen=True)
class Capture:
    """The result of a capture.

    Attributes:
        document: The document that the archive keeps now.
        new: Versions that weren't kept before, as subject and version.
        missing: Ids of records whose schemas aren't kept.
        unsealed: Whether nothing was sealed, because the newest seal is damaged.
    """

    document: RegistryDocument
    new: tuple[tuple[str, int], ...] = ()
    missing: tuple[SchemaId, ...] = ()
    unsealed: bool = False

    def lines(self, archive: object) -> list[str]:
        """Return it as text for the user, with the archive in its commands."""
        subjects = self.document.subjects
        versions = sum(len(subject.versions) for subject in subjects)
        lines = [
            f"schemas: {len(subjects):,} subjects with {versions:,} versions are kept, "
            f"{len(self.new):,} of them new"
        ]
        notes = [*self.document.notes]
        if self.unsealed:
            notes.append(f"nothing was sealed: {Reason.SCHEMA_SEAL_LOST.remedy_of(archive)}")
        return lines + [f"WARNING schemas: {note}" for note in notes]


def read_document(root: UPath) -> RegistryDocument:
    """Return the archived schemas; an empty document if there are none."""
    try:
        return RegistryDocument.read(root / REGISTRY)
    except (FileNotFoundError, NotADirectoryError):
        return RegistryDocument.empty()


def capture_schemas(
    archive: Archive,
    registry: SchemaRegistry,
    *,
    now: datetime,
    subjects: Iterable[str] = (),
    writes: bool = True,
) -> Capture:
    """Read the ids of newly drained records, and archive the registry's subjects for them.

    Args:
        registry: The registry of the records' schemas.
        subjects: Subjects to keep in addition to those of the ids, of the topics, and those that
            are kept already.
        writes: Whether to write what was found; False for a dry run.

    Raises:
        ManifestInvalidError: When a receipt is damaged.
        DataFileError: When a file can't be read.
        ArchiveError: When the archive can't be written.
    """
    snapshot = archive.snapshot()
    before = read_document(archive.root)
    seen, through = _read_new(snapshot, before)
    document = before.model_copy(
        update={
            "format_version": FORMAT_VERSION,
            "url": registry.url,
            "captured_at": now.isoformat(timespec="milliseconds"),
            "seen": merged_seen(before.seen, seen),
            "read_through": through,
            "notes": [],
        }
    )
    asked = _Asked(Subjects(registry), {subject.name: subject for subject in before.subjects})
    wanted = [*subjects, *(f"{t}-{part}" for t in snapshot.document.topics for part in HEADERS)]
    asked.ask(document, wanted)
    document = document.model_copy(
        update={
            "compatibility": asked.compatibility or before.compatibility,
            "mode": asked.mode or before.mode,
            "subjects": [asked.found[name] for name in sorted(asked.found)],
        }
    )
    missing = missing_ids(document)
    if lacking := asked.lacking(missing):
        asked.notes.append(
            f"{registry.url} doesn't have the schemas of {len(lacking):,} ids in the records: "
            f"{', '.join(map(str, lacking[:_SHOWN]))}{OF_CONTEXT * ('/contexts/' in registry.url)}"
        )
    document = document.model_copy(update={"notes": [*asked.notes, *asked.failures()]})
    unsealed = False
    if writes:
        document.write(archive.root / REGISTRY)
        found = registry_digests(before), registry_digests(document)
        unsealed = not seal_schemas(archive.root, *found, at=document.captured_at)
    known = _versions(before.subjects)
    new = [version for version in _versions(document.subjects) if version not in set(known)]
    return Capture(document, tuple(new), tuple(missing), unsealed)


@dataclass
class _Asked:
    """The subjects that were found.

    Attributes:
        subjects: The registry.
        found: Subjects by name; at first, those that the archive has.
        compatibility: The registry's own.
        mode: The registry's own.
        notes: Notes on answers of what must be another registry.
        failed: What couldn't be read, with the registry's answer.
        refused: Settings that couldn't be read, likewise.
        in_row: How many reads have failed in a row because the registry is unwell.
        ended: What ended it before everything was asked for.
    """

    subjects: Subjects
    found: dict[str, SubjectRow]
    compatibility: str | None = None
    mode: str | None = None
    notes: list[str] = field(default_factory=list)
    failed: dict[str, KafkaDrainError] = field(default_factory=dict)
    refused: dict[str, KafkaDrainError] = field(default_factory=dict)
    in_row: int = 0
    ended: KafkaDrainError | None = None

    def ask(self, document: RegistryDocument, wanted: Iterable[str]) -> None:
        """Read subjects, those of the ids in the records, and their references."""
        known = dict(self.found)
        try:
            with self._noted("settings of the registry"):
                own = self.subjects.settings("", (None, None), self.refused)
                self.compatibility, self.mode = own
            self._read(dict.fromkeys([*known, *wanted]), known)
            # After the topics' own subjects, which have most ids.
            now = document.model_copy(update={"subjects": [*self.found.values()]})
            for id_ in missing_ids(now):
                self._read_id(id_, known)
        except KafkaDrainError as error:
            self.ended = error

    def lacking(self, missing: Iterable[SchemaId]) -> list[SchemaId]:
        """Return the ids that the registry doesn't have, of those whose schemas aren't kept."""
        if self.ended is not None or self.notes:
            return []
        return [id_ for id_ in missing if _named(id_) not in self.failed]

    def failures(self) -> list[str]:
        """Say what couldn't be read, and why, once for each kind of reason."""
        # What failed comes first, and counts where settings failed and were refused.
        unread = self.failed | self.refused | self.failed
        by_kind: dict[type, list[str]] = {}
        for what, error in unread.items():
            by_kind.setdefault(type(error), []).append(what)
        is_named = self.ended is None or self.ended in self.failed.values()
        notes = [] if is_named else [f"{self.ended}"]
        for names in by_kind.values():
            first = unread[names[0]]
            if f"{first}" in notes:
                # A login that is rejected altogether (401) has ended it with the same words.
                continue
            end = ", and nothing after them" if self.ended in map(unread.get, names) else ""
            of_schemas = f"{first}; not read: {_listed(names)}{end}"
            of_settings = f"{OF_SETTINGS}{_listed(names)}: {first}"
            notes.append(of_schemas if names[0] in self.failed else of_settings)
        return notes

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Note an answer that says nothing about other subjects and ids, so that they are read.

        Raises:
            KafkaDrainError: When there is no use in asking for others.
        """
        try:
            yield
        except OF_ONE_REQUEST as error:
            self.failed[what] = error
        except UnwellError as error:
            # One subject may be damaged; but a registry that is unwell isn't asked on and on.
            self.failed[what] = error
            self.in_row += 1
            if self.in_row == _IN_ROW:
                raise
            return
        self.in_row = 0

    def _read_id(self, id_: SchemaId, known: Mapping[str, SubjectRow]) -> None:
        names: dict[str, None] = {}
        with self._noted(_named(id_)):
            ids = [id_] if isinstance(id_, int) else self.subjects.ids_of_guid(id_)
            names = dict.fromkeys(name for each in ids for name, _ in self.subjects.of_id(each))
        self._read(names, known)
        for name in names:
            if name in self.failed:
                self.failed[_named(id_)] = self.failed[name]

    def _read(self, names: Iterable[str], known: Mapping[str, SubjectRow]) -> None:
        waiting, done = list(names), set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in done or name in self.failed:
                continue
            done.add(name)
            with self._noted(name):
                referred = self._read_subject(name, known)
                waiting += [each for each in referred if each not in done | {*self.found}]

    def _read_subject(self, name: str, known: Mapping[str, SubjectRow]) -> list[str]:
        """Read a subject, and return those that it refers to."""
        subject = read_subject(self.subjects, name, known.get(name), self.refused)
        if subject is None:
            return []
        if self._is_other_registry(known.get(name), subject) or self._has_other_ids(subject, known):
            return []
        self.found[name] = subject
        return [row.subject for version in subject.versions for row in version.references]

    def _is_other_registry(self, before: SubjectRow | None, now: SubjectRow) -> bool:
        """Note a version whose id is another one than before: the registry must be another."""
        # Known versions aren't fetched again; the newest one that is there is enough to see it.
        for version in reversed(before.versions if before else ()):
            found = self.subjects.version(now.name, version.version)
            if found is None:
                continue
            if found.id != version.id:
                self._note(
                    f"version {version.version} of {now.name} has schema id {found.id} in "
                    f"{self.subjects.registry.url}, but {version.id} in the archive: this must be "
                    "another registry, and the connection has to be corrected; or the subject was "
                    "deleted for good and filled again: register its schemas under another "
                    "subject, too, so that they are kept. What is kept stays as it is"
                )
                return True
            return False
        return False

    def _has_other_ids(self, now: SubjectRow, known: Mapping[str, SubjectRow]) -> bool:
        """Note a new version whose id is that of another schema: the registry must be another.

        Records of both would be decoded, and translated, by one of them.
        """
        before = {row.version for row in known[now.name].versions} if now.name in known else set()
        new = {row.id: row for row in now.versions if row.version not in before}
        if not new:
            return False
        for subject in known.values():
            if context_of(subject.name) != context_of(now.name):
                continue
            for kept in subject.versions:
                row = new.get(kept.id)
                if row is not None and not _is_same(row, kept):
                    self._note(
                        f"schema id {row.id} is version {row.version} of {now.name} in "
                        f"{self.subjects.registry.url}, but version {kept.version} of "
                        f"{subject.name} in the archive, which is another schema: this must be "
                        "another registry. Correct the connection; what is kept stays as it is"
                    )
                    return True
        return False

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}"


def _named(id_: SchemaId) -> str:
    return f"schema id {id_}"


def _is_same(one: RegisteredRow, other: RegisteredRow) -> bool:
    """Return whether two versions have the same schema, however it is spaced."""
    if one.kind != other.kind:
        return False
    if one.text == other.text:
        return True
    try:
        return bool(json.loads(one.text) == json.loads(other.text))
    except ValueError:
        # Protobuf.
        return one.text.split() == other.text.split()


def merged_seen(rows: Iterable[SeenIdsRow], counts: Mapping[IdLocation, int]) -> list[SeenIdsRow]:
    """Return the ids of both, by topic and part."""
    ids: dict[tuple[str, str], set[SchemaId]] = {
        (row.topic, row.part): {*row.ids, *row.guids} for row in rows
    }
    for seen in counts:
        if seen.id is not None:
            ids.setdefault((seen.topic, seen.part), set()).add(seen.id)
    return [
        SeenIdsRow(
            topic=topic,
            part=part,
            ids=sorted(id_ for id_ in found if isinstance(id_, int)),
            guids=sorted(id_ for id_ in found if isinstance(id_, str)),
        )
        for (topic, part), found in sorted(ids.items())
    ]


def missing_ids(document: RegistryDocument) -> list[SchemaId]:
    """Return the ids of records whose schemas aren't kept."""
    rows = [(subject.name, row) for subject in document.subjects for row in subject.versions]
    # Records have ids of the default context, and another one may have the same ids.
    kept: set[SchemaId | None] = {row.id for name, row in rows if not context_of(name)}
    kept |= {row.guid for _, row in rows}
    return sorted(seen_ids(document) - kept, key=lambda id_: (isinstance(id_, str), id_))


def seen_ids(document: RegistryDocument) -> set[SchemaId]:
    """Return the ids of records."""
    seen: set[SchemaId] = set()
    for row in document.seen:
        seen |= {*row.ids, *row.guids}
    return seen


def _versions(subjects: Iterable[SubjectRow]) -> list[tuple[str, int]]:
    return [(subject.name, row.version) for subject in subjects for row in subject.versions]


def _read_new(
    snapshot: Snapshot, before: RegistryDocument
) -> tuple[Counter[IdLocation], ReadThroughRow]:
    """Count the ids of records drained since the last time; return how far was read, too."""
    counts: Counter[IdLocation] = Counter()
    done: set[str] = set()
    for _ in range(ATTEMPTS):
        files, through = _new_files(snapshot, before.read_through)
        if _read_ids(snapshot, [file for file in files if file.path not in done], counts, done):
            return counts, through
        # Maintenance has replaced a file since the snapshot, which so lacks the window.
        snapshot = snapshot.again()
    raise ArchiveError(
        f"{snapshot.root}: files were replaced while the schema ids in them were read, "
        f"{ATTEMPTS} times; run again once maintenance has ended"
    )


def _read_ids(
    snapshot: Snapshot, files: Sequence[ArchiveFile], counts: Counter[IdLocation], done: set[str]
) -> bool:
    """Count the ids in files, and note those that are read; return whether all were there."""
    ticker = Ticker("read schema ids", Progress("files", len(files)))
    for number, file in enumerate(files):
        path = path_of(str(snapshot.root), file.path)
        topic = topic_of(file.path)
        try:
            for batch in read_records(path, file.file_format):
                if topic is not None:
                    counts += count_ids(batch, topic)
                    continue
                topics = batch["topic"]
                for name in filter(None, topics.unique().to_pylist()):
                    counts += count_ids(batch.filter(pc.equal(topics, text(name))), name)
        except FileNotFoundError:
            return False
        done.add(file.path)
        ticker.at(number)
    return True


def _new_files(
    snapshot: Snapshot, before: ReadThroughRow
) -> tuple[list[ArchiveFile], ReadThroughRow]:
    last: dict[str, str] = {}
    files: list[ArchiveFile] = []
    for generation in snapshot.generations:
        names, number = generation.receipt_names(), str(generation.number)
        known = before.generations.get(number, "")
        for name in names:
            if name > known:
                receipt = generation.read_receipt(name)
                files += files_of_receipt(generation, receipt, generation.document.format)
        through = max([known, *names[-1:]])
        if generation is snapshot.open_generation:
            unsealed, through = _unsealed(snapshot, generation, through)
            files += unsealed
        if through:
            last[number] = through
    gone = [file for file in files if not is_file(snapshot.root / file.path)]
    new = (window for key, window in snapshot.folders.items() if key not in before.windows)
    windows = [window for window in new if window.is_sealed]
    for window in windows:
        # Compaction copies records whose ids were read, unless it came first.
        if window.kind is not WindowKind.COMPACTION or gone:
            files += files_of_receipt(window, window.receipt, window.plan.format)
    lost = {file.path for file in gone}
    read = sorted({*before.windows, *(window.key for window in windows)})
    return [f for f in files if f.path not in lost], ReadThroughRow(generations=last, windows=read)


def _unsealed(
    snapshot: Snapshot, generation: SnapshotGeneration, through: str
) -> tuple[list[ArchiveFile], str]:
    """Return files that were drained and aren't sealed, and how far these go.

    None if something is wrong with them, which is for a validation to say: what becomes of them is
    read once it is sealed.
    """
    state = read_state(snapshot, generation)
    manifest, last = state.manifest, int(through[:12] or -1)
    if errors(state.findings) or manifest.last_batch is None:
        return [], through
    new = [row for row in state.new if not is_of_sealed_batch(row, manifest.compacted, last)]
    files = files_of_manifest(snapshot, generation, new)
    if not all(is_file(snapshot.root / file.path) for file in files):
        return [], through
    return files, max(through, receipt_name(manifest.last_batch))
