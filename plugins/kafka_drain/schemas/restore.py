"""Restore the schemas that an archive keeps to another Schema Registry, and write the map of ids.

Every step can be killed and run again: what the target already has is found by the registry's own
comparison, and only the rest is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import RegisteredRow, RegistryDocument, SchemaMapDocument
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.schema_seals import REGISTRY, SEALS, check_schemas
from kafka_drain.errors import ArchiveError, AuthenticationError, ConfigError
from kafka_drain.output import say
from kafka_drain.schemas.capture import read_document, seen_ids
from kafka_drain.schemas.registry import OF_ONE_REQUEST, AnswerError, SchemaRegistry
from kafka_drain.schemas.restore_order import (
    IMPORT,
    KEEP,
    READWRITE,
    Place,
    PlannedVersion,
    RestorePlan,
    TargetSubject,
    in_order,
    is_created,
    is_left,
    kept_settings,
    refusal,
    taken_ids,
    target_references,
    wanted_versions,
)
from kafka_drain.schemas.schema_ids import RegisteredSchema
from kafka_drain.schemas.schema_map import map_path
from kafka_drain.schemas.subjects import Settings, Subjects
from kafka_drain.storage.paths import quoted

NO_CHECK = "NONE"


@dataclass(frozen=True)
class RestoredSchemas:
    """What a restore has done.

    Attributes:
        map: The map that was written.
        warnings: Which settings the target has refused, and why.
    """

    map: SchemaMapDocument
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class SchemaRestore:
    """A restore of schemas.

    Attributes:
        registry: The target.
        map_name: Name of the map that is written.
        ids: `new` or `keep`.
    """

    archive: Archive
    registry: SchemaRegistry
    map_name: str
    ids: str

    def plan(self) -> RestorePlan:
        """Compare the archive's schemas with the target; change nothing.

        Raises:
            ArchiveError: When the archive keeps no schemas.
            ConfigError: When a schema refers to one that isn't kept, or the map's name is in use
                for another registry.
            AuthenticationError: When the target rejects the login.
            RegistryUnavailableError: When it doesn't respond.
        """
        document, versions = self._versions()
        mapped = self._mapped()
        subjects = Subjects(self.registry)
        names = dict.fromkeys(name for name, _ in versions)
        common = subjects.settings("", (None, None), {})
        held = {name: _held(subjects, name, common) for name in names}
        steps = self._steps(subjects, versions, held)
        refusals = _changed(self.archive.root)
        settings: dict[str, Settings] = {}
        kept: list[str] = []
        for name, holds in held.items():
            of_subject = sorted((s for s in steps if s.subject == name), key=lambda s: s.place)
            refusals += filter(None, [refusal(name, of_subject, holds, self.ids)])
            level, mode = _archived(document, name)
            if not is_created(of_subject, holds, mapped.get(name, ())):
                kept += kept_settings(name, holds, (level, mode))
                continue
            # Never known: the target's own one again. After a kill, only its common one is known.
            before = holds.compatibility if holds.compatibility != NO_CHECK else common[0]
            settings[name] = level or before, mode
        if self.ids == KEEP:
            known = {step.schema.id for step in steps if step.found is None}
            for id_ in taken_ids(steps, [id_ for id_ in known if subjects.has_id(id_)]):
                refusals.append(
                    f"the target has given id {id_} to another schema; use --ids new, or restore "
                    "to an empty registry"
                )
        notes = [
            f"version {row.version} of {name} was deleted, but records or other schemas use it"
            for (name, _), row in versions.items()
            if row.deleted
        ]
        notes += [*kept, *document.notes]
        return RestorePlan(self.registry.url, self.ids, steps, held, settings, refusals, notes)

    def apply(self, plan: RestorePlan, *, now: datetime) -> RestoredSchemas:
        """Register missing schemas, set the settings of new subjects, and write the map.

        What the target refuses of the settings is told; the map is written all the same.

        Raises:
            ConfigError: When the plan has refusals, the target refuses a schema, or it gives one
                another id than it was asked to keep.
            AuthenticationError: When the login lacks the rights.
            RegistryUnavailableError: When the target doesn't respond; run it again.
        """
        if plan.refusals:
            raise ConfigError("nothing was registered: " + "; ".join(plan.refusals))
        subjects = Subjects(self.registry)
        found = {step.place: step.found for step in plan.steps if step.found is not None}
        for name in dict.fromkeys(step.subject for step in plan.missing):
            if name in plan.settings:
                self._open(subjects, name, plan.held[name])
        for step in plan.missing:
            found[step.place] = self._register(subjects, step, found)
            say(
                f"schemas: version {step.schema.version} of {step.subject}, id {step.schema.id}, "
                f"is registered with id {found[step.place].id}"
            )
        warnings: list[str] = []
        for name, settings in plan.settings.items():
            warnings += _set(subjects, name, settings, self.ids)
        rows = [
            {
                "subject": step.subject,
                "version": step.schema.version,
                "id": step.schema.id,
                "guid": step.schema.guid,
                "new_version": found[step.place].version,
                "new_id": found[step.place].id,
                "new_guid": found[step.place].guid,
            }
            for step in sorted(plan.steps, key=lambda step: step.place)
        ]
        written = SchemaMapDocument.model_validate(
            {
                "format_version": FORMAT_VERSION,
                "url": self.registry.url,
                "written_at": now.isoformat(timespec="milliseconds"),
                "schemas": rows,
            }
        )
        written.write(map_path(self.archive.root, self.map_name))
        return RestoredSchemas(written, warnings)

    def _steps(
        self,
        subjects: Subjects,
        versions: Mapping[Place, RegisteredRow],
        held: Mapping[str, TargetSubject],
    ) -> list[PlannedVersion]:
        """Look for each version in the target, references first."""
        known: dict[Place, RegisteredSchema] = {}
        steps: list[PlannedVersion] = []
        for place in in_order(versions):
            (name, _), schema = place, versions[place]
            references = target_references(schema, known)
            here = gone = None
            if held[name].versions and references is not None:
                here = subjects.find(name, schema, references)
            if held[name].deleted and references is not None and here is None:
                gone = subjects.find(name, schema, references, deleted=True)
            if gone is not None and is_left(schema, gone, held[name], self.ids):
                here = gone
            there = here or gone
            known |= {} if there is None else {place: there}
            steps.append(PlannedVersion(name, schema, here, gone))
        return steps

    def _open(self, subjects: Subjects, name: str, held: TargetSubject) -> None:
        """Give a new subject the settings with which it is filled."""
        if self.ids == KEEP and held.mode != IMPORT and not subjects.set_mode(IMPORT, name):
            raise ConfigError(
                f"the Schema Registry {self.registry.url} has no modes, so that it can't keep "
                "ids; let it give new ones (--ids new)"
            )
        if not held.versions and held.compatibility is not None:
            # The source has accepted these versions, perhaps when its level was another one. Also
            # where no level is checked: a later run knows by it that this one wasn't finished.
            try:
                subjects.set_compatibility(NO_CHECK, name)
            except (AuthenticationError, *OF_ONE_REQUEST):
                if held.compatibility != NO_CHECK:
                    raise

    def _versions(self) -> tuple[RegistryDocument, Mapping[Place, RegisteredRow]]:
        document = read_document(self.archive.root)
        if not document.subjects:
            self.archive.require()
            raise ArchiveError(
                f"{self.archive.root} keeps no schemas; run `kafka-drain capture-schemas "
                f"{quoted(self.archive.root)}` while their registry still responds"
            )
        return document, wanted_versions(document.subjects, seen_ids(document))

    def _mapped(self) -> Mapping[str, Collection[int]]:
        """Return the versions in the target, by subject, of an earlier restore with this map."""
        path = map_path(self.archive.root, self.map_name)
        try:
            before = SchemaMapDocument.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if before.url != self.registry.url:
            raise ConfigError(
                f"the schema map {self.map_name} leads to {before.url}, this registry is "
                f"{self.registry.url}; name another map (--map)"
            )
        versions: dict[str, set[int]] = {}
        for row in before.schemas:
            versions.setdefault(row.subject, set()).add(row.new_version)
        return versions

    def _register(
        self, subjects: Subjects, step: PlannedVersion, found: Mapping[Place, RegisteredSchema]
    ) -> RegisteredSchema:
        references = target_references(step.schema, found)
        assert references is not None, "registered in order"
        keep = self.ids == KEEP
        what = f"version {step.schema.version} of {step.subject}"
        try:
            id_ = subjects.register(step.subject, step.schema, references, keep=keep)
        except ConfigError as error:
            raise ConfigError(
                f"{what} wasn't registered: {error}. What was registered before it stays; correct "
                "the cause and run this again"
            ) from error
        if keep and id_ != step.schema.id:
            raise ConfigError(
                f"the target doesn't keep ids: it has registered {what} with id {id_} instead of "
                f"{step.schema.id}. Use --ids new, which continues from here"
            )
        here = subjects.find(step.subject, step.schema, references)
        if here is None or here.id != id_:
            raise ConfigError(
                f"{what} was registered with id {id_}, but the target doesn't find it again: "
                f"{here}. Check the registry"
            )
        return here


def _archived(document: RegistryDocument, name: str) -> Settings:
    """Return the settings that a subject is to have; None for a level that was never known."""
    source = next(subject for subject in document.subjects if subject.name == name)
    mode = READWRITE if source.mode in (None, IMPORT) else source.mode
    return source.compatibility or document.compatibility, mode


def _set(subjects: Subjects, name: str, wanted: Settings, ids: str) -> list[str]:
    """Give a subject that this restore, or one that was killed, has filled its settings.

    Returns:
        What the target has refused.
    """
    own, common = (subjects.settings(each, (None, None), {}) for each in (name, ""))
    level, mode = wanted
    changes: list[tuple[str, str, Callable[[str, str], bool]]] = []
    if level and level != own[0]:
        changes.append(("compatibility", level, subjects.set_compatibility))
    if mode and (ids == KEEP or mode != (own[1] or common[1] or READWRITE)):
        # Last: a subject that is READONLY takes no other compatibility.
        changes.append(("mode", mode, subjects.set_mode))
    refused: list[str] = []
    for what, value, put in changes:
        try:
            why = "" if put(value, name) else "the target has no such setting"
        except (AuthenticationError, ConfigError, AnswerError) as error:
            why = f"{error}"
        refused += [f"{name} didn't get its {what} {value}: {why}"] if why else []
    return refused


def _changed(root: UPath) -> list[str]:
    """Say whether the archive keeps other schemas than it had sealed."""
    findings = check_schemas(root, {}, SEALS.newest(root), whole=False, documents=[REGISTRY])
    return [f"{finding}; {finding.reason.remedy_of(root)}" for finding in findings]


def _held(subjects: Subjects, name: str, common: Settings) -> TargetSubject:
    level, mode = subjects.settings(name, (None, None), {})
    live = subjects.versions(name, deleted=False)
    return TargetSubject(
        versions=live,
        deleted=sorted({*subjects.versions(name)} - {*live}),
        mode=mode or common[1] or READWRITE,
        compatibility=level or common[0],
        is_open=level == NO_CHECK or mode == IMPORT,
    )


def rows_of(plan: RestorePlan) -> Sequence[tuple[str, int, int, str]]:
    """Return the plan as rows: subject, version, id, and action."""
    return [(step.subject, step.schema.version, step.schema.id, step.action) for step in plan.steps]


def settings_of(plan: RestorePlan) -> Sequence[str]:
    """Say which settings the subjects get that the restore creates, or that one may have begun."""
    lines = []
    for name, settings in plan.settings.items():
        gets = " and ".join(
            f"{what} {value}"
            for what, value in zip(("compatibility", "mode"), settings, strict=True)
            if value is not None
        )
        if not plan.held[name].versions:
            lines.append(f"{name} is new in the target, and gets {gets}")
            continue
        # A restore that was killed leaves it so, and so may a user: nothing tells them apart.
        lines.append(
            f"{name} is in the target with only the archive's versions, at compatibility "
            f"{NO_CHECK} or in mode {IMPORT}, as a restore that was killed leaves it. It gets "
            f"{gets}; if its settings were yours, set them again afterwards: a later restore keeps "
            "them"
        )
    return lines
