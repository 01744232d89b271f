"""The index of an archive on disk: extended by new segments, compared, and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_drain.archive.fold import Partition
from kafka_drain.archive.generation_summary import summarized
from kafka_drain.archive.index import (
    Index,
    IndexedGeneration,
    IndexedWindow,
    IndexFileError,
    NewGeneration,
    NewWindow,
    OtherIndexError,
    bounds_of,
    is_skippable,
    parse_index,
    replacing_twice,
)
from kafka_drain.archive.journal.digests import generation_digest, plan_digest
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.snapshot import INDEX, Snapshot, SnapshotWindow
from kafka_drain.archive.summary_files import sound_summary
from kafka_drain.archive.window import Window
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import read_bytes


def make_index(snapshot: Snapshot, base: Index, *, whole: bool = True) -> Index:
    """Return an index with everything that an archive has closed.

    Args:
        snapshot: The archive, of which at least what isn't in `base` is read.
        base: The known index; an empty one to read everything.
        whole: Whether to read all receipts of a generation without a summary; otherwise the index
            ends before it, until maintenance has written one.

    Raises:
        ArchiveError: When a generation's document is damaged.
        ReceiptError: When a generation's receipt is damaged.
    """
    found = base.plus(_generations(snapshot, base, whole=whole))
    return found.plus((), _windows(snapshot, found))


def check_index(snapshot: Snapshot, made: Index) -> list[Finding]:
    """Compare an archive's index with its receipts.

    One that is missing, older than what was sealed, or of another release, is no damage.
    """
    try:
        found = parse_index(read_bytes(snapshot.root / INDEX))
    except (FileNotFoundError, OtherIndexError):
        return []
    except IndexFileError as error:
        return [Finding(Reason.NOTE_UNREADABLE, INDEX, str(error))]
    if name := found.contradicts(made):
        detail = f"says something else of {name} than the receipts themselves"
        return [Finding(Reason.SUMMARY_CHANGED, INDEX, detail)]
    return []


def write_index(snapshot: Snapshot, made: Index) -> bool:
    """Write an index, unless it is there; return whether it was written.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    content = made.to_bytes()
    try:
        if read_bytes(snapshot.root / INDEX) == content:
            return False
    except FileNotFoundError:
        pass
    write_text(snapshot.root / INDEX, content.decode("utf-8"))
    return True


def _generations(snapshot: Snapshot, base: Index, *, whole: bool) -> Iterator[NewGeneration]:
    """Yield the closed generations that aren't in an index."""
    for generation in snapshot.generations[:-1]:
        names = generation.receipt_names()
        if generation.number <= base.last or not names:
            continue
        newest = generation.read_receipt(names[-1])
        if not generation.starting_offsets.keys() <= newest.ends.keys():
            # Of a partition that it never drained, only its own document says where it stands.
            return
        summary = sound_summary(generation, newest.sha256)
        if summary is None and not whole:
            return
        summary = summary or summarized(
            generation.number, generation.receipts(snapshot.journal.noted.forgotten)
        )
        document = generation_digest(generation.document.content())
        row = IndexedGeneration.of(len(names), newest, document, summary.receipts)
        yield NewGeneration(row, newest, generation.document.topics)


def _windows(snapshot: Snapshot, index: Index) -> Iterator[NewWindow]:
    """Yield the settled windows that aren't in an index."""
    bounds = _bounds(snapshot, index)
    known = {row.window for row in index.windows}
    read = [w for w in snapshot.folders.values() if w.key not in known and w.is_readable]
    found = [new for window in read if (new := _new_window(window, bounds)) is not None]
    owners = {owner for new in found for owner in new.row.replaces}
    others = {row.window for row in index.windows if not owners.isdisjoint(row.replaces)}
    own = {new.row.window for new in found}
    left = replacing_twice(
        (new.receipt for new in found),
        [
            *(window.receipt for window in read if window.key not in own),
            *(snapshot.any_window(key).receipt for key in sorted(others)),
        ],
    )
    yield from (new for new in found if new.row.window not in left)


def _bounds(snapshot: Snapshot, index: Index) -> dict[Partition, int]:
    """Return the offsets before which no generation outside of an index may hold any."""
    later = (
        (each.document.topics or snapshot.topic_ids(each), each.starting_offsets)
        for each in snapshot.generations
        if each.number > index.last
    )
    return bounds_of(index.drained, later)


def _new_window(window: SnapshotWindow, bounds: Mapping[Partition, int]) -> NewWindow | None:
    """Return a window that is settled; None for another one, or if its plan is damaged."""
    receipt = window.receipt
    try:
        plan, kind = window.plan, window.kind
    except ArchiveError:
        # A finding of its own.
        return None
    if not is_skippable(receipt, kind, plan.replaced, bounds):
        return None
    size = len(window.plan_bytes or b"") + len(receipt.to_bytes())
    row = IndexedWindow.of(receipt, kind, plan_digest(plan.content()), size)
    return NewWindow(row, receipt, plan.replaced)


def index_to_write(snapshot: Snapshot, *, whole: bool) -> Index | None:
    """Return the index that an archive should have; None if it needs none, or can't have one.

    Args:
        snapshot: The archive.
        whole: Whether to read everything again; otherwise what a sound index says is taken from it.
    """
    if snapshot.is_small:
        return None
    base = None if whole else snapshot.index
    try:
        return make_index(snapshot, base or Index(), whole=whole)
    except (ArchiveError, ReceiptError):
        # A finding of its own.
        return None


def add_to_index(snapshot: Snapshot, window: Window, receipt: Receipt) -> None:
    """Add a window that was just proven, sealed and noted, so that the next one needn't read it.

    Nothing else is added: of that, a validation has to say first that it is intact.

    Args:
        snapshot: The archive as it was checked before.
        window: The window, which replaces nothing.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    if snapshot.is_small or receipt.replaces:
        return
    base = snapshot.index or Index()
    if window.key in {row.window for row in base.windows}:
        return
    new = _new_window(SnapshotWindow(window.root, window.key), _bounds(snapshot, base))
    if new is not None:
        write_index(snapshot, base.plus((), [new]))
