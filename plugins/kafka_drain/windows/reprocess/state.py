"""The plan and state of a reprocess; `maintenance/reprocess.json` notes an unfinished one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ReprocessDocument
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.clock import now_text
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.lease import wait_for_lease
from kafka_drain.windows.rewrite_groups import FileGroup


@dataclass(frozen=True)
class ReprocessPlan:
    """The plan of a reprocess, started or not.

    Attributes:
        since: Its start, for display.
        closes: Number of the generation that is closed first.
        file_format: Format of the new files.
        compression: Compression of the new files.
        partition_by: Partition columns of the new files' folders.
        topic_ids: Ids of the topics that the offsets refer to.
        groups: The groups to drain again, by the name of their window, in the order of offsets.
        begun: Whether it was started before and is now resumed.
    """

    archive: Archive
    since: str
    closes: int
    file_format: str
    compression: str
    partition_by: list[str]
    topic_ids: dict[str, str]
    groups: dict[str, FileGroup]
    begun: bool = False

    @property
    def waiting(self) -> dict[str, FileGroup]:
        """The groups that aren't sealed yet."""
        return {
            key: group
            for key, group in self.groups.items()
            if not Window(self.archive.root, key).has_receipt()
        }

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name = f"reprocess {self.archive.root}"
        totals = self.to_dict()
        lines = [
            f"{name}: from {self.since}: {totals['offsets']:,} offsets in {len(self.groups):,} "
            f"windows replace {totals['files']:,} files, {totals['bytes']:,} bytes; Kafka holds "
            "all of these offsets, and each record is compared before it is replaced",
            f"{name}: new files are {self.file_format}, by {', '.join(self.partition_by) or '-'}; "
            f"drains continue in generation {self.closes + 1}",
        ]
        if self.begun:
            sealed = len(self.groups) - len(self.waiting)
            lines.append(
                f"{name}: resumes; {sealed:,} of {len(self.groups):,} windows are sealed already"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON types."""
        groups = self.groups.values()
        return {
            "archive": str(self.archive.root),
            "since": self.since,
            "windows": len(self.groups),
            "waiting": len(self.waiting),
            "offsets": sum(group.offsets for group in groups),
            "records": sum(sum(group.records.values()) for group in groups),
            "files": sum(len(group.replaces) for group in groups),
            "bytes": sum(group.bytes for group in groups),
        }

    def document(self) -> ReprocessDocument:
        """Return the content of `maintenance/reprocess.json`."""
        return ReprocessDocument.model_validate(
            {
                "since": self.since,
                "closes": self.closes,
                "format": self.file_format,
                "compression": self.compression,
                "partition_by": self.partition_by,
                "topics": self.topic_ids,
                "opened_at": now_text(),
                "pieces": [
                    {
                        "window": key,
                        "ranges": range_rows(group.ranges),
                        "replaces": group.replaces,
                        "replaced": group.replaced(),
                    }
                    for key, group in self.groups.items()
                ],
            }
        )


def reprocess_path(archive: Archive) -> UPath:
    """Return the path of the document that notes an unfinished reprocess."""
    return archive.root / "maintenance" / "reprocess.json"


def unfinished_reprocess(archive: Archive) -> ReprocessPlan | None:
    """Return the unfinished reprocess; None if there is none."""
    try:
        document = ReprocessDocument.read(reprocess_path(archive))
    except FileNotFoundError:
        return None
    return plan_of(archive, document, begun=True)


def forget_reprocess(plan: ReprocessPlan) -> None:
    """Remove the note of a reprocess, unless it is another one's by now."""
    there = unfinished_reprocess(plan.archive)
    if there is not None and (there.since, there.groups) == (plan.since, plan.groups):
        reprocess_path(plan.archive).unlink(missing_ok=True)


def plan_of(archive: Archive, document: ReprocessDocument, *, begun: bool) -> ReprocessPlan:
    """Return the plan that a document describes; its groups have no receipts."""
    groups = {
        row.window: FileGroup(
            ranges=row.offsets(),
            replaces=row.replaces,
            bytes=row.replaced["bytes"],
            records={
                TopicPartition(r["topic"], r["partition"]): r["records"]
                for r in row.replaced["records"]
            },
        )
        for row in document.pieces
    }
    return ReprocessPlan(
        archive=archive,
        since=document.since,
        closes=document.closes,
        file_format=document.format,
        compression=document.compression,
        partition_by=document.partition_by,
        topic_ids=document.topics,
        groups=groups,
        begun=begun,
    )


def newest_generation(archive: Archive) -> int:
    """Return the generation that a bare batch id refers to, even if a reprocess has closed it."""
    newest, begun = archive.snapshot().open_generation, unfinished_reprocess(archive)
    if begun is not None:
        return begun.closes
    return newest.number if newest else 1


@contextmanager
def sealing_groups(archive: Archive, *, run: str) -> Iterator[None]:
    """Prevent a group from being sealed while its reprocess is abandoned, and vice versa.

    Raises:
        LockedError: When another run is doing one of the two; a retry may help.
    """
    with wait_for_lease(archive.root / "maintenance" / "reprocess", run=run):
        yield
