"""Choose the schemas that a restore registers, and their order. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_drain.errors import ConfigError
from kafka_drain.schemas.schema_ids import RegisteredSchema

if TYPE_CHECKING:
    from kafka_drain.archive.documents import ReferenceRow, RegisteredRow, SubjectRow
    from kafka_drain.schemas.subjects import Settings

#: Whether a restore gives schemas new ids or asks the registry to keep theirs.
NEW, KEEP = "new", "keep"

#: The map's name if none is given.
RESTORED = "restored"

#: The registry's mode unless it is set, and what a schema needs to keep its id.
READWRITE, IMPORT = "READWRITE", "IMPORT"

Place = tuple[str, int]


@dataclass(frozen=True)
class PlannedVersion:
    """A version of a subject that is to be in the target.

    Attributes:
        schema: The version.
        found: Its version in the target; None if it is registered.
        deleted: Its version in the target if that is deleted there, softly.
    """

    subject: str
    schema: RegisteredRow
    found: RegisteredSchema | None = None
    deleted: RegisteredSchema | None = None

    @property
    def place(self) -> Place:
        """Subject and version in the archive."""
        return self.subject, self.schema.version

    @property
    def action(self) -> str:
        """What a restore does with it, for the user."""
        if self.found is not None:
            deleted = "deleted, " if self.found == self.deleted else ""
            return f"is there, {deleted}id {self.found.id}"
        if self.deleted is not None:
            return f"register again: its version {self.deleted.version} is deleted there"
        return "register"


@dataclass(frozen=True)
class TargetSubject:
    """A subject in a target registry.

    Attributes:
        versions: Its versions that aren't deleted.
        deleted: Its versions that are, softly.
        mode: The subject's effective mode.
        compatibility: The subject's effective compatibility.
        is_open: Whether compatibility NONE or mode IMPORT is its own: a restore fills subjects so.
    """

    versions: Sequence[int] = ()
    mode: str = READWRITE
    compatibility: str | None = None
    is_open: bool = False
    deleted: Sequence[int] = ()


@dataclass(frozen=True)
class RestorePlan:
    """The plan of a restore.

    Attributes:
        url: The target registry's URL.
        ids: `new` or `keep`.
        steps: All versions, those first that others refer to.
        held: State of each subject in the target.
        settings: Compatibility and mode of each subject that the restore creates.
        refusals: Why nothing is done; empty if it can be.
        notes: Notes for the user.
    """

    url: str
    ids: str
    steps: Sequence[PlannedVersion] = ()
    held: Mapping[str, TargetSubject] = field(default_factory=dict)
    settings: Mapping[str, Settings] = field(default_factory=dict)
    refusals: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def missing(self) -> list[PlannedVersion]:
        """The versions that are registered."""
        return [step for step in self.steps if step.found is None]


def wanted_versions(
    subjects: Iterable[SubjectRow], seen: Collection[int | str]
) -> dict[Place, RegisteredRow]:
    """Return the versions to restore.

    Deleted ones are left out, except those that records use or other schemas refer to.
    """
    versions = {
        (subject.name, row.version): row for subject in subjects for row in subject.versions
    }
    wanted = {
        place: row
        for place, row in versions.items()
        if not row.deleted or row.id in seen or row.guid in seen
    }
    waiting = list(wanted.values())
    while waiting:
        for reference in waiting.pop().references:
            place = reference.subject, reference.version
            if place in versions and place not in wanted:
                wanted[place] = versions[place]
                waiting.append(versions[place])
    return wanted


def in_order(versions: Mapping[Place, RegisteredRow]) -> list[Place]:
    """Return versions, each after those that it refers to and after older ones of its subject.

    Raises:
        ConfigError: When one refers to a version that isn't among them, or to itself.
    """
    before: dict[Place, list[Place]] = {}
    last: dict[str, Place] = {}
    for place, row in sorted(versions.items()):
        references = [(r.subject, r.version) for r in row.references]
        lost = [each for each in references if each not in versions]
        if lost:
            raise ConfigError(
                f"version {place[1]} of {place[0]} refers to version {lost[0][1]} of {lost[0][0]}, "
                "which the archive doesn't have; capture again while the registry still has it"
            )
        before[place] = [*references, *([last[place[0]]] if place[0] in last else [])]
        last[place[0]] = place
    ordered: dict[Place, None] = {}
    for start in before:
        path = [start]
        while path:
            waiting = [each for each in before[path[-1]] if each not in ordered]
            if not waiting:
                ordered.setdefault(path.pop())
            elif waiting[0] in path:
                raise ConfigError(f"version {path[-1][1]} of {path[-1][0]} refers to itself")
            else:
                path.append(waiting[0])
    return list(ordered)


def refusal(subject: str, steps: Sequence[PlannedVersion], held: TargetSubject, ids: str) -> str:
    """Return why a subject can't be restored; empty if it can be.

    Args:
        steps: Its versions, the oldest first.
        held: Its state in the target.
        ids: `new` or `keep`.
    """
    found = [step.found for step in steps if step.found is not None]
    missing = [step.schema.version for step in steps if step.found is None]
    if ids == KEEP:
        for step in steps:
            if step.found is not None and step.found.id != step.schema.id:
                return (
                    f"version {step.schema.version} of {subject} has id {step.schema.id}, but the "
                    f"target has given it id {step.found.id}; use --ids new"
                )
    foreign = sorted(set(held.versions) - {each.version for each in found})
    if missing and foreign:
        return (
            f"{subject} holds other schemas in the target: version {foreign[0]} isn't in the "
            f"archive, and version {missing[0]} isn't in the target. Restore into an empty subject"
        )
    if missing and _are_newer_there(steps, missing[0]):
        return (
            f"version {missing[0]} of {subject} would come after newer ones, which the target "
            "already has. Restore into an empty subject"
        )
    if missing and ids == KEEP and held.versions and held.mode != IMPORT:
        return (
            f"{subject} isn't empty in the target, so that version {missing[0]} can't get its id: "
            "the registry accepts ids only for subjects in mode IMPORT, which have to be empty. "
            "Use --ids new"
        )
    return ""


def is_left(
    schema: RegisteredRow, deleted: RegisteredSchema, held: TargetSubject, ids: str
) -> bool:
    """Return whether a version that is deleted in the target is left so: its id still decodes.

    Otherwise, it is registered again, as the subject's newest version.

    Args:
        deleted: Its version in the target.
        held: Its subject in the target.
        ids: `new` or `keep`.
    """
    if not held.versions and ids == KEEP:
        # A registry forgets the deleted versions of a subject that is set to mode IMPORT.
        return False
    return schema.deleted or deleted.version < max(held.versions, default=0)


def is_created(
    steps: Iterable[PlannedVersion], held: TargetSubject, mapped: Collection[int]
) -> bool:
    """Return whether a restore creates a subject, or has begun to and was killed.

    All other subjects keep their settings.

    Args:
        steps: Its versions.
        held: Its state in the target.
        mapped: Its versions in the target by the map that a restore wrote when it had finished.
    """
    there = set(held.versions)
    ours = {step.found.version for step in steps if step.found is not None}
    return not there or (held.is_open and there <= ours and there.isdisjoint(mapped))


def kept_settings(subject: str, held: TargetSubject, archived: Settings) -> list[str]:
    """Say which settings a subject keeps that it doesn't have in the archive.

    Args:
        archived: Those in the archive; None if they aren't known.
    """
    names = ("compatibility", "mode")
    return [
        f"{subject} is in the target already, and keeps its {name} {here or '(unknown)'}, not "
        f"{there} as in the archive"
        for name, here, there in zip(names, (held.compatibility, held.mode), archived, strict=True)
        if there is not None and here != there
    ]


def _are_newer_there(steps: Sequence[PlannedVersion], version: int) -> bool:
    """Return whether the target has versions that are newer than a missing one.

    A schema that was registered again is found where its older version is, which says nothing.
    """
    older = {s.found.version for s in steps if s.found and s.schema.version < version}
    newer = {s.found.version for s in steps if s.found and s.schema.version > version}
    return bool(newer - older)


def taken_ids(steps: Iterable[PlannedVersion], target_ids: Collection[int]) -> list[int]:
    """Return the ids that the target has given to other schemas.

    Args:
        steps: The versions.
        target_ids: The ids of missing versions that the target has.
    """
    steps = list(steps)
    same = {at.id for step in steps for at in (step.found, step.deleted) if at is not None}
    return sorted({s.schema.id for s in steps if s.found is None} & set(target_ids) - same)


def target_references(
    schema: RegisteredRow, found: Mapping[Place, RegisteredSchema]
) -> list[ReferenceRow] | None:
    """Return a schema's references in the target's versions; None if the target lacks one."""
    references = []
    for row in schema.references:
        target = found.get((row.subject, row.version))
        if target is None:
            return None
        references.append(row.model_copy(update={"version": target.version}))
    return references
