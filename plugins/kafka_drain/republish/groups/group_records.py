"""Records of changes to consumer groups, kept in the run's folder.

A record is the file `groups/<group>-<time>.json` in the run's folder. It holds what was committed
before and what apply commits, and is written before anything is committed. Files next to it record
the state: `…-applied.json` once everything was committed, `…-undone.json` once everything was
restored. Files are never changed, so every step can be killed and run again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from urllib.parse import quote, unquote

from upath import UPath

from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.errors import ArchiveError
from kafka_drain.kafka.consumer_groups import Committed
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.translation import TranslationPlan
from kafka_drain.republish.planning.documents import GroupOffsetJson, GroupRecordJson, parse
from kafka_drain.storage.json_files import create_document, read_document
from kafka_drain.storage.paths import list_folder, read_bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The changes of one apply to a group's offsets.

    Attributes:
        run: Name of the run's folder.
        cluster_id: Id of the target cluster.
        from_group: The group whose offsets were translated.
        group: The group that got them.
        group_existed: Whether the group existed in the cluster before.
        written_at: When the record was written, in UTC.
        sources: The offsets that were translated.
        before: Offsets committed before; partitions without one are left out.
        after: Offsets that apply commits.
        metadata: Metadata that apply commits with them, where there is any.
        is_applied: Whether everything was committed.
        is_undone: Whether everything was restored.
    """

    path: UPath
    run: str
    cluster_id: str
    from_group: str
    group: str
    group_existed: bool
    written_at: str
    sources: Mapping[TopicPartition, int]
    before: Mapping[TopicPartition, Committed]
    after: Mapping[TopicPartition, int]
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    is_applied: bool = field(default=False, compare=False)
    is_undone: bool = field(default=False, compare=False)

    def is_between(self, current: Mapping[TopicPartition, int]) -> bool:
        """Return whether every partition is at its offset from before or after the apply."""
        return not self.moved(current)

    def moved(self, current: Mapping[TopicPartition, int]) -> list[str]:
        """Return texts for partitions at neither the offset from before nor from after apply."""
        moved = []
        for tp, after in self.after.items():
            before = self.before.get(tp)
            now = current.get(tp)
            if now not in (after, None if before is None else before.offset):
                moved.append(
                    f"{tp} is at {_written(now)}; apply committed {after:,}, before that it was "
                    f"{_written(None if before is None else before.offset)}"
                )
        return moved

    def to_dict(self) -> GroupRecordJson:
        """Return the record as JSON types."""
        return {
            "format_version": FORMAT_VERSION,
            "run": self.run,
            "cluster_id": self.cluster_id,
            "from_group": self.from_group,
            "group": self.group,
            "group_existed": self.group_existed,
            "written_at": self.written_at,
            "sources": [
                {"topic": tp.topic, "partition": tp.partition, "offset": offset}
                for tp, offset in sorted(self.sources.items())
            ],
            "offsets": [self._offset(tp, offset) for tp, offset in sorted(self.after.items())],
        }

    def _offset(self, tp: TopicPartition, offset: int) -> GroupOffsetJson:
        row: GroupOffsetJson = {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": self.before[tp].offset if tp in self.before else None,
            "metadata_before": self.before[tp].metadata if tp in self.before else None,
            "after": offset,
        }
        if tp in self.metadata:
            row["metadata_after"] = self.metadata[tp]
        return row


#: End of a record's name, and what the names of the files beside it have after that.
_TIME, _STATE = r"\d{8}T\d{12}Z", "(?:-applied|-undone)?"

#: Longest group in a name: file systems take names of 255 bytes, and a file that is being written
#: has a longer one. Of a longer group, the beginning, a character that no quoted one has, and a
#: hash.
_LONGEST, _CUT, _DIGITS = 180, "=", 32


def recorded_groups(run_folder: UPath) -> list[str]:
    """Return the groups that a run's folder has records of, sorted."""
    # What became of a record tells of the group, too, if the record itself is missing.
    pattern = re.compile(rf"(.+)-{_TIME}{_STATE}\.json")
    folder = run_folder / "groups"
    named = filter(None, map(pattern.fullmatch, list_folder(folder)))
    files = {found[1]: folder / found[0] for found in named}
    return sorted({_group_in(name, path) for name, path in files.items()})


def _group_in(name: str, path: UPath) -> str:
    """Return the group of a file, given how its name begins."""
    return str(read_document(path, "group")["group"]) if _CUT in name else unquote(name)


def _in_names(group: str) -> str:
    """Return how the names of a group's files begin.

    A group's name may contain anything, including slashes, and have any length.
    """
    quoted = quote(group, safe="")
    if len(quoted) <= _LONGEST:
        return quoted
    digest = hashlib.sha256(group.encode()).hexdigest()[:_DIGITS]
    return f"{quoted[: _LONGEST - len(_CUT) - _DIGITS]}{_CUT}{digest}"


def _written(offset: int | None) -> str:
    return "no offset" if offset is None else f"{offset:,}"


class GroupRecords:
    """The records of one group in a run's folder."""

    def __init__(self, run_folder: UPath, group: str) -> None:
        """Set up access to the records; nothing is read yet.

        Args:
            run_folder: The run's folder.
            group: The group that gets offsets.
        """
        self._folder = run_folder / "groups"
        self._group = group
        self._prefix = _in_names(group) + "-"

    def all(self) -> list[GroupRecord]:
        """Return the records, oldest first.

        Raises:
            ArchiveError: When one can't be read, or is missing beside what became of it.
        """
        names = list_folder(self._folder)
        # Older releases wrote longer names, where there was room for them.
        names_of = {self._prefix, quote(self._group, safe="") + "-"}
        begins = "|".join(map(re.escape, sorted(names_of)))
        pattern = re.compile(rf"((?:{begins}){_TIME}){_STATE}\.json")
        known = {f"{found[1]}.json" for name in names if (found := pattern.fullmatch(name))}
        if lost := known - names.keys():
            raise ArchiveError(
                f"{self._folder / min(lost)} is missing, which says what translate-group committed "
                f"for group {self._group}, and the offsets before; restore it from a copy. Nothing "
                "was changed"
            )
        return [
            replace(
                self._read(name),
                is_applied=_beside(name, "applied") in names,
                is_undone=_beside(name, "undone") in names,
            )
            for name in sorted(known, key=_time_in)
        ]

    def newest_open(self) -> GroupRecord | None:
        """Return the newest record that hasn't been undone."""
        return next((r for r in reversed(self.all()) if not r.is_undone), None)

    def write(
        self,
        plan: TranslationPlan,
        before: Mapping[TopicPartition, Committed],
        *,
        group_existed: bool,
    ) -> GroupRecord:
        """Write the old and new offsets, before anything is changed."""
        while True:
            now = datetime.now(timezone.utc)
            record = GroupRecord(
                path=self._folder / f"{self._prefix}{now:%Y%m%dT%H%M%S%fZ}.json",
                run=plan.run,
                cluster_id=plan.cluster_id,
                from_group=plan.group,
                group=self._group,
                group_existed=group_existed,
                written_at=now.isoformat(timespec="microseconds"),
                sources=plan.committed,
                before=before,
                after=plan.after,
                metadata=plan.metadata,
            )
            # If two records have the same microsecond, the later one tries the next.
            if create_document(record.path, record.to_dict()):
                return record

    def mark_applied(self, record: GroupRecord) -> None:
        """Record that everything in a record was committed."""
        self._mark(record, "applied")

    def mark_undone(self, record: GroupRecord) -> None:
        """Record that everything is as it was before a record."""
        self._mark(record, "undone")

    def _mark(self, record: GroupRecord, word: str) -> None:
        at = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        path = self._folder / _beside(record.path.name, word)
        create_document(path, {"group": record.group, f"{word}_at": at})

    def _read(self, name: str) -> GroupRecord:
        path = self._folder / name
        try:
            document = parse(GroupRecordJson, read_bytes(path))
        except ValueError as error:
            raise ArchiveError(
                f"{path} was changed ({error}), expected what translate-group wrote; restore it "
                "from a copy"
            ) from error
        if document["group"] != self._group:
            raise ArchiveError(
                f"{path} is of group {document['group']!r}, expected {self._group!r}: it was put "
                "in another's place; restore it from a copy. Nothing was changed"
            )
        rows = {TopicPartition(row["topic"], row["partition"]): row for row in document["offsets"]}
        return GroupRecord(
            path=path,
            run=document["run"],
            cluster_id=document["cluster_id"],
            from_group=document["from_group"],
            group=document["group"],
            group_existed=document["group_existed"],
            written_at=document["written_at"],
            sources={
                TopicPartition(row["topic"], row["partition"]): row["offset"]
                for row in document["sources"]
            },
            before={
                tp: Committed(row["before"], row["metadata_before"] or "")
                for tp, row in rows.items()
                if row["before"] is not None
            },
            after={tp: row["after"] for tp, row in rows.items()},
            metadata={
                tp: row["metadata_after"] for tp, row in rows.items() if "metadata_after" in row
            },
        )


def _time_in(name: str) -> str:
    return name.rpartition("-")[2]


def _beside(name: str, word: str) -> str:
    return f"{name.removesuffix('.json')}-{word}.json"
