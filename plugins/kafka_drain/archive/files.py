"""The files that readers of an archive take: all generations and windows, each offset once.

Of a closed generation and of a window, what receipts seal. Of the open generation also what its
manifest commits since. Never a damaged file whose records a window holds instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.journal.checks import refuse_unsound
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.segment_overlaps import Partition, held_by_windows
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.window import Window
from kafka_drain.data_files.reader import DataFileError, read_offsets, topic_of
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import errors
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping

__all__ = ["ArchiveFile", "archive_files", "columns_of", "files_of_receipt"]

#: What Spark calls the folder of rows that have no value in its column.
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file that readers take.

    Attributes:
        path: Path relative to the archive.
        bytes: Size.
        file_format: Format.
        owner: The generation or window that it belongs to.
        topic_ids: Ids of its topics; with another id, an offset is another record.
        sealed: What its receipt says; None when it isn't sealed yet.
        listed: What the manifest says; None when it is sealed.
    """

    path: str
    bytes: int
    file_format: str
    owner: Generation | Window
    topic_ids: dict[str, str]
    sealed: SealedFile | None = None
    listed: SinkFile | None = None

    @property
    def records(self) -> int | None:
        """How many records its receipt says it holds; None when it isn't sealed yet."""
        if self.sealed is None:
            return None
        return sum(content.records for content in self.sealed.contents)

    @property
    def folder_values(self) -> dict[str, str | None]:
        """The columns that its folders name, as `topic=flights` does, as text."""
        folders = self.path.removeprefix(f"{self.owner.data_name}/").split("/")[:-1]
        named = (folder.partition("=") for folder in folders)
        return {
            name: None if value == _NULL else unquote(value)
            for name, equals, value in named
            if equals
        }


def archive_files(snapshot: Snapshot) -> list[ArchiveFile]:
    """List the files that readers take: generations by number, then windows.

    Raises:
        ArchiveError: When the folder is no archive.
        ManifestInvalidError: When manifest or receipts are damaged, or something that was sealed is
            missing or changed: the list would not be whole.
    """
    state = refuse_unsound(snapshot)
    snapshot, held = state.snapshot, held_by_windows(state.windows)
    try:
        files: list[ArchiveFile] = []
        for generation in snapshot.generations:
            files += _sealed_files(generation)
            if generation is snapshot.open_generation:
                files += _new_files(snapshot, generation, held)
        for window in snapshot.sealed:
            files += files_of_receipt(window, window.receipt, window.plan.format)
        return [file for file in files if file.path not in snapshot.replaced]
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate` to see "
            "which"
        ) from error


def _sealed_files(generation: SnapshotGeneration) -> Iterator[ArchiveFile]:
    for receipt in generation.receipts():
        yield from files_of_receipt(generation, receipt, generation.document.format)


def files_of_receipt(
    owner: Generation | Window, receipt: Receipt, file_format: str
) -> Iterator[ArchiveFile]:
    """Yield the files that a receipt seals."""
    for file in receipt.files:
        yield ArchiveFile(
            path=file.path,
            bytes=file.bytes,
            file_format=file_format,
            owner=owner,
            topic_ids=dict(receipt.topics),
            sealed=file,
        )


def _new_files(
    snapshot: Snapshot,
    generation: SnapshotGeneration,
    held: Mapping[Partition, Sequence[OffsetRange]],
) -> list[ArchiveFile]:
    """Return the files that aren't sealed, but for those that windows replace."""
    state = read_state(snapshot, generation)
    bad = errors(state.findings)
    if bad:
        raise ManifestInvalidError(f"{bad[0]}; run `kafka-drain validate` to see all of it")
    topic_ids = snapshot.topic_ids(generation)
    new = [
        ArchiveFile(
            path=f"{generation.data_name}/{sink_file.path}",
            bytes=sink_file.size,
            file_format=generation.document.format,
            owner=generation,
            topic_ids=topic_ids,
            listed=sink_file,
        )
        for sink_file in state.new
        if f"{generation.data_name}/{sink_file.path}" not in snapshot.replaced
    ]
    _refuse_twice(state, new, topic_ids, held)
    return new


def _refuse_twice(
    state: GenerationState,
    new: Sequence[ArchiveFile],
    topic_ids: Mapping[str, str],
    held: Mapping[Partition, Sequence[OffsetRange]],
) -> None:
    """Refuse files that aren't sealed and hold what a window holds: readers would get both.

    Their offsets are read only where windows reach beyond what is sealed: a repair may have drained
    what such a file had lost.
    """
    generation, ends = state.generation, state.sealed_ends if new else {}
    beyond = {
        tp: ranges
        for (tp, topic_id), ranges in held.items()
        if topic_id == topic_ids.get(tp.topic) and ranges[-1].end > ends.get(tp, 0)
    }
    for file in new if beyond else ():
        twice = _first_within(generation, file, beyond)
        if twice:
            raise ManifestInvalidError(
                f"{file.path}, which isn't sealed, and a window both hold some of {twice}: readers "
                f"would get it twice. `kafka-drain roll {generation.root} --leave-unsealed` lets "
                "the next generation drain it"
            )


def _first_within(
    generation: Generation,
    file: ArchiveFile,
    held: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> str:
    """Name the first offsets of a file of which some are held elsewhere; empty for none."""
    try:
        found = read_offsets(generation.root / file.path, file.file_format, topic_of(file.path))
    except (DataFileError, FileNotFoundError):
        # A finding of validation; nobody gets anything of it twice.
        return ""
    ranges = ((content.tp, r) for content in found for r in content.ranges)
    return next((f"{tp} {r}" for tp, r in ranges if overlapping(held.get(tp, []), r)), "")


def columns_of(files: Iterable[ArchiveFile]) -> list[str]:
    """Return the columns that the folders of any of some files name, in their order."""
    return list(dict.fromkeys(name for file in files for name in file.folder_values))
