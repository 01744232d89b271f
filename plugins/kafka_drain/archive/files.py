"""The files that readers of an archive take: all generations and windows, each offset once.

Of a closed generation and of a window, what receipts seal. Of the open generation also what its
manifest commits since. Never a damaged file whose records a window holds instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.journal.checks import refuse_unsound
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.segment_overlaps import Partition, held_by_windows
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


def archive_files(archive: Archive) -> list[ArchiveFile]:
    """List the files that readers take: generations by number, then windows.

    Raises:
        ArchiveError: When the folder is no archive.
        ManifestInvalidError: When manifest or receipts are damaged, or something that was sealed is
            missing or changed: the list would not be whole.
    """
    held = held_by_windows(refuse_unsound(archive).windows)
    windows = [window for window in archive.windows() if window.is_sealed]
    try:
        receipts = [(window, window.receipt()) for window in windows]
        replaced = {path for _, receipt in receipts for path in receipt.replaces}
        files: list[ArchiveFile] = []
        generations = archive.generations()
        for number, generation in enumerate(generations):
            files += _sealed_files(generation)
            if number == len(generations) - 1:
                new = [f for f in _new_files(archive, generation) if f.path not in replaced]
                _refuse_twice(generation, new, held)
                files += new
        for window, receipt in receipts:
            files += files_of_receipt(window, receipt, window.plan().format)
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{archive.root}: a receipt is damaged ({error}); run `kafka-drain validate` to see "
            "which"
        ) from error
    return [file for file in files if file.path not in replaced]


def _sealed_files(generation: Generation) -> Iterator[ArchiveFile]:
    file_format = generation.document().format
    for receipt in generation.receipts():
        yield from files_of_receipt(generation, receipt, file_format)


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


def _new_files(archive: Archive, generation: Generation) -> Iterator[ArchiveFile]:
    state = read_state(generation)
    bad = errors(state.findings)
    if bad:
        raise ManifestInvalidError(f"{bad[0]}; run `kafka-drain validate` to see all of it")
    document, topic_ids = generation.document(), archive.topic_ids(generation)
    for sink_file in state.new:
        yield ArchiveFile(
            path=f"{generation.data_name}/{sink_file.path}",
            bytes=sink_file.size,
            file_format=document.format,
            owner=generation,
            topic_ids=topic_ids,
            listed=sink_file,
        )


def _refuse_twice(
    generation: Generation,
    new: Sequence[ArchiveFile],
    held: Mapping[Partition, Sequence[OffsetRange]],
) -> None:
    """Refuse files that aren't sealed and hold what a window holds: readers would get both.

    Their offsets are read only where windows reach beyond what is sealed: a repair may have drained
    what such a file had lost.
    """
    ends = read_state(generation).sealed_ends if new else {}
    topic_ids = new[0].topic_ids if new else {}
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
