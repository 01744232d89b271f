"""The files that an archive's readers use: all generations and windows, each offset once.

For a closed generation or a window, these are the files that receipts seal; for the open
generation, also those that its manifest has committed since. A damaged file whose records are in a
window is never among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from kafka_drain.archive.fold import Partition
from kafka_drain.archive.generation import Generation, list_data_files
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.generation_summary import SummaryRow
from kafka_drain.archive.index import Query
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.archive.receipt_chain import check_figures
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.soundness import SealedState, refuse_unsound
from kafka_drain.archive.summary_files import receipts_between
from kafka_drain.archive.window import Window
from kafka_drain.archive.window_figures import Accounts
from kafka_drain.errors import DataFileError, ManifestInvalidError
from kafka_drain.findings import Finding, Reason, errors
from kafka_drain.intervals import TimeRange
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping
from kafka_drain.storage.paths import is_local, quoted, size_of

# A concurrent run may seal something that replaces files while they are listed.
ATTEMPTS = 5

#: Number of objects that a store lists in one request.
LISTED_AT_ONCE = 1_000

#: Spark's folder name for rows with a null in the partition column.
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file that readers use.

    Attributes:
        path: Path relative to the archive.
        bytes: Size in bytes.
        owner: The generation or window that it belongs to.
        topic_ids: Ids of its topics; with another id, the same offset is another record.
        sealed: Its entry in the receipt; None if it isn't sealed yet.
        listed: Its entry in the manifest; None if it is sealed.
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
        """Number of records according to its receipt; None if it isn't sealed yet."""
        if self.sealed is None:
            return None
        return sum(content.records for content in self.sealed.contents)

    @property
    def own_topic_ids(self) -> dict[str, str]:
        """Ids of the topics that it has records of, as far as its receipt says; else of all.

        A window may stand for segments of several generations, with a file for each topic.
        """
        names = {content.tp.topic for content in self.sealed.contents} if self.sealed else set()
        if not names:
            return self.topic_ids
        return {name: id_ for name, id_ in self.topic_ids.items() if name in names}

    @property
    def folder_values(self) -> dict[str, str | None]:
        """The columns named by its folders, such as `topic=flights`, as strings."""
        folders = self.path.removeprefix(f"{self.owner.data_name}/").split("/")[:-1]
        named = (folder.partition("=") for folder in folders)
        return {
            name: None if value == _NULL else unquote(value)
            for name, equals, value in named
            if equals
        }


def archive_files(
    snapshot: Snapshot,
    times: TimeRange | None = None,
    offsets: Mapping[TopicPartition, Sequence[OffsetRange]] | None = None,
) -> list[ArchiveFile]:
    """List the files that readers use: generations by number, then windows.

    Receipts of closed generations aren't read if windows have replaced all their files, or if the
    generation's summary rules them out. Of an archive with an index, only generations and windows
    are read that may have the times and offsets, and those that replace files of theirs.

    Args:
        snapshot: The archive.
        times: Leave out sealed segments that have no records in this range; None for all.
        offsets: Leave out generations and windows that have none of these offsets, sorted and
            disjoint for each partition, as far as the index says so; None for all.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ManifestInvalidError: When manifest or receipts are damaged, sealed data is missing or
            changed, or a file has another size than its receipt says: the list would be wrong.
    """
    for _ in range(ATTEMPTS):
        state, files = _list(snapshot, times, offsets)
        wrong = find_wrong_size(state, files)
        # A window that was sealed meanwhile may have superseded it, so that it was removed.
        if wrong is None or read_journal(snapshot.root).newest == state.journal.newest:
            break
        snapshot = snapshot.again()
    if wrong is not None:
        raise ManifestInvalidError(_refusal(snapshot, wrong))
    return files


def _refusal(snapshot: Snapshot, wrong: Finding) -> str:
    return (
        f"{snapshot.root}: {wrong}. That means: {wrong.reason.meaning}. What to do: "
        f"{wrong.reason.remedy_of(snapshot.root)}"
    )


def _list(
    snapshot: Snapshot,
    times: TimeRange | None,
    offsets: Mapping[TopicPartition, Sequence[OffsetRange]] | None,
) -> tuple[SealedState, list[ArchiveFile]]:
    """List the files from the documents that name them."""
    is_all = times is None and offsets is None
    state = refuse_unsound(snapshot, query=None if is_all else Query(times, offsets))
    snapshot = state.snapshot
    try:
        fold = snapshot.fold
        files, wrong = list[ArchiveFile](), list[Finding]()
        forgotten = state.journal.noted.forgotten
        accounts, gone = Accounts(fold.windows), set(state.journal.noted.gone)
        for generation in snapshot.generations:
            newest = state.newest.get(generation.name)
            if newest is not None and not (fold.has_all_of(newest) and fold.covers(newest)):
                before = None
                for receipt in receipts_between(generation, newest.sha256, times, forgotten):
                    wrong += check_figures(receipt, before, receipt.where)
                    before = receipt
                    accounts.look(receipt)
                    files += files_of_receipt(generation, receipt, generation.document.format)
            else:
                gone.add(generation.name)
            if generation is snapshot.open_generation:
                files += _new_files(snapshot, generation)
        windows = []
        for window in fold.windows:
            accounts.look(window.receipt)
            if times is None or SummaryRow.of(window.receipt).may_hold(times):
                windows.append(window)
        said = [*accounts.not_covered(), *(accounts.unaccounted(gone) if is_all else ())]
        wrong += [Finding(Reason.RECEIPT_CONTRADICTS, *each) for each in said]
        if wrong:
            raise ManifestInvalidError(_refusal(snapshot, wrong[0]))
        return state, fold.live([*files, *files_of_windows(windows)])
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(snapshot.root)}` to see which"
        ) from error


def find_wrong_size(state: SealedState, files: Sequence[ArchiveFile]) -> Finding | None:
    """Describe the first file that is missing or has another size; None if there is none.

    Takes a look at each file, and in a store a listing of those of a generation or window, unless
    asking for single files takes fewer requests.

    Args:
        state: The archive compared with its journal.
    """
    root = state.snapshot.root
    by_owner: dict[str, list[ArchiveFile]] = {}
    for file in files:
        by_owner.setdefault(file.owner.name, []).append(file)
    for owner, own in by_owner.items():
        newest = state.newest.get(owner)
        total = newest.files_so_far.files if newest is not None else len(own)
        sizes = _sizes(own, is_listed=len(own) * LISTED_AT_ONCE >= total and not is_local(root))
        for file in own:
            size = sizes[file.path]
            if size == file.bytes:
                continue
            if size is None:
                return Finding(Reason.FILE_MISSING, file.path, "doesn't exist")
            says = "its receipt" if file.sealed is not None else "the manifest"
            detail = f"{size:,} bytes; {says} says {file.bytes:,}"
            return Finding(Reason.FILE_SIZE, file.path, detail)
    return None


def _sizes(files: Sequence[ArchiveFile], *, is_listed: bool) -> dict[str, int | None]:
    """Return the sizes of some files of an owner in bytes; None for one that doesn't exist."""
    owner = files[0].owner
    if is_listed:
        prefix = f"{owner.data_name}/"
        listing = list_data_files(owner.data)
        return {file.path: listing.get(file.path.removeprefix(prefix)) for file in files}
    return {file.path: size_of(owner.root, file.path) for file in files}


def files_of_receipt(
    owner: Generation | Window, receipt: Receipt, file_format: str
) -> Iterator[ArchiveFile]:
    """Yield the files in a receipt."""
    for file in receipt.files:
        yield ArchiveFile(
            path=file.path,
            bytes=file.bytes,
            file_format=file_format,
            owner=owner,
            topic_ids=dict(receipt.topics),
            sealed=file,
        )


def files_of_windows(windows: Iterable[SnapshotWindow]) -> Iterator[ArchiveFile]:
    """Yield the files in the receipts of sealed windows, live or not."""
    for window in windows:
        yield from files_of_receipt(window, window.receipt, window.plan.format)


def _new_files(snapshot: Snapshot, generation: SnapshotGeneration) -> list[ArchiveFile]:
    """Return the unsealed files, except those that windows replace."""
    state = read_state(snapshot, generation)
    bad = errors(state.findings)
    if bad:
        raise ManifestInvalidError(
            f"{bad[0]}; run `kafka-drain validate {quoted(snapshot.root)}` to see all findings"
        )
    live = snapshot.fold.live(files_of_manifest(snapshot, generation, state.new))
    _refuse_twice(state, live, snapshot.topic_ids(generation), snapshot.fold.held)
    return live


def files_of_manifest(
    snapshot: Snapshot, generation: SnapshotGeneration, listed: Iterable[SinkFile]
) -> list[ArchiveFile]:
    """Return files that a generation's manifest lists, and that aren't sealed yet."""
    topic_ids = snapshot.topic_ids(generation)
    return [
        ArchiveFile(
            path=f"{generation.data_name}/{sink_file.path}",
            bytes=sink_file.size,
            file_format=generation.document.format,
            owner=generation,
            topic_ids=topic_ids,
            listed=sink_file,
        )
        for sink_file in listed
    ]


def _refuse_twice(
    state: GenerationState,
    new: Sequence[ArchiveFile],
    topic_ids: Mapping[str, str],
    held: Mapping[Partition, Sequence[OffsetRange]],
) -> None:
    """Refuse unsealed files whose records are also in a window: readers would get both.

    The files are read only if a window extends beyond the sealed offsets: a repair may have drained
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
                f"would get them twice. `kafka-drain roll {quoted(generation.root)} "
                "--leave-unsealed` lets the next generation drain them"
            )


def _first_within(
    generation: Generation,
    file: ArchiveFile,
    held: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> str:
    """Return the first offsets of a file that are also held elsewhere; empty if there are none."""
    # Not at the top: pyarrow takes longer to import than most archives take to list.
    from kafka_drain.data_files.reader import read_offsets, topic_of

    try:
        found = read_offsets(generation.root / file.path, file.file_format, topic_of(file.path))
    except (DataFileError, FileNotFoundError):
        # Reported by validation; no reader gets anything twice from an unreadable file.
        return ""
    ranges = ((content.tp, r) for content in found for r in content.ranges)
    return next((f"{tp} {r}" for tp, r in ranges if overlapping(held.get(tp, []), r)), "")


def columns_of(files: Iterable[ArchiveFile]) -> list[str]:
    """Return all columns named by the folders of some files, in their order."""
    return list(dict.fromkeys(name for file in files for name in file.folder_values))
