"""The files that readers of an archive take: all generations and windows, each offset once.

Of a closed generation and of a window, what receipts seal. Of the open generation also what its
manifest commits since. Never a damaged file whose records a window holds instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from kafka_drain.archive import Archive
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import errors
from kafka_drain.generation import Generation
from kafka_drain.generation_state import read_state
from kafka_drain.journal_checks import refuse_unsound
from kafka_drain.manifest import SinkFile
from kafka_drain.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.window import Window

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
    refuse_unsound(archive)
    windows = [window for window in archive.windows() if window.is_sealed]
    try:
        receipts = [(window, window.receipt()) for window in windows]
        replaced = {path for _, receipt in receipts for path in receipt.replaces}
        files: list[ArchiveFile] = []
        generations = archive.generations()
        for number, generation in enumerate(generations):
            files += _sealed_files(generation)
            if number == len(generations) - 1:
                files += _new_files(archive, generation)
        for window, receipt in receipts:
            files += files_of_receipt(window, receipt, window.plan()["format"])
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{archive.root}: a receipt is damaged ({error}); run `kafka-drain validate` to see "
            "which"
        ) from error
    return [file for file in files if file.path not in replaced]


def _sealed_files(generation: Generation) -> Iterator[ArchiveFile]:
    file_format = generation.document()["format"]
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
            file_format=document["format"],
            owner=generation,
            topic_ids=topic_ids,
            listed=sink_file,
        )


def columns_of(files: Iterable[ArchiveFile]) -> list[str]:
    """Return the columns that the folders of any of some files name, in their order."""
    return list(dict.fromkeys(name for file in files for name in file.folder_values))
