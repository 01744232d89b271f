"""Remove superseded files, the manifests that list them, and the checkpoints of these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind, owner_of
from kafka_drain.archive.generation import Generation, list_data_files
from kafka_drain.archive.receipts import Receipt, SealedFile
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.clock import utc_now
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.errors import KEY_ERRORS, DataFileError, ManifestInvalidError
from kafka_drain.findings import Finding
from kafka_drain.offsets import OffsetRange, overlapping
from kafka_drain.output import Level, Line, say
from kafka_drain.progress import Progress, Ticker
from kafka_drain.proof.replacement import NAMED, Replacement
from kafka_drain.proof.sealed_files import DEEP
from kafka_drain.proof.window_checks import check_files_of
from kafka_drain.republish.planning.runs import RepublishRun, list_runs
from kafka_drain.storage.immutability import Locked
from kafka_drain.storage.object_retention import StoreLocks, can_lock, locked_in
from kafka_drain.storage.paths import has_folders, is_local


def remove_unsealed(archive: Archive) -> None:
    """Remove maintenance windows that were killed before they were sealed; no reader uses them.

    Raises:
        ManifestInvalidError: When something sealed is missing or changed: a window whose receipt
            was lost must not be mistaken for one that was never sealed.
    """
    for window in refuse_unsound(archive.snapshot()).snapshot.unsealed:
        if window.is_maintained:
            if (locked := locked_in(window.folder)).files:
                say(
                    f"remove {archive.root}: keeping window {window.key}, which was never sealed: "
                    f"{locked}; a later maintenance removes it"
                )
                continue
            # Its name is given again once it is gone, and this process may have been suspended.
            if not window.has_receipt():
                say(f"remove {archive.root}: removing window {window.key}, which was never sealed")
                window.folder.fs.rm(window.folder.path, recursive=True)


def remove_superseded(archive: Archive, locks: StoreLocks | None = None) -> dict[str, int]:
    """Delete the intact files that sealed windows replace; if killed, the next run continues.

    Files that a republish was planned with stay until it has finished or was abandoned, and files
    that the store locks until they are free. No reader gets these files, so that keeping them does
    no harm. So do files that a window of an earlier release has replaced by other records.

    First, every byte of the replacing windows' files is compared with what was sealed; if another
    window replaces these files in turn, its files are checked too. If that is a repair that isn't
    proven to have the same records, the superseded files stay. A closed generation that lost a
    file also loses its manifest and its checkpoint: they would refer to deleted files, and no drain
    continues them. The receipts stay.

    Args:
        locks: The store's locks, if it was asked in this run already.

    Returns:
        removed_files and removed_bytes.

    Raises:
        ManifestInvalidError: When a window's files don't match what was sealed, or something
            sealed is missing or changed; nothing was removed.
    """
    snapshot = refuse_unsound(archive.snapshot()).snapshot
    gone = snapshot.fold.gone
    there = _there(archive, gone)
    locks = locks or StoreLocks(archive.root, f"remove {archive.root}")
    # Before the windows are read: all that stand for locked files would be, each day until then.
    free = there - locks.locked(there).keys()
    has_locked = len(free) < len(there)
    free -= held_back(snapshot, free)
    free -= _kept_for_repairs(snapshot, free)
    relied_on = snapshot.fold.relied_on(free)
    damage = check_files_of(relied_on, deep=DEEP, superseded=snapshot.fold.replaced)
    needed = needed_files(archive) if there else {}
    paths = removable(free, frozenset().union(*needed.values()), damage)
    for run, files_of_run in needed.items():
        kept = len(there & files_of_run)
        if kept:
            say(
                f"remove {archive.root}: keeping {kept:,} files for now: republish {run} still "
                "needs them; if it won't be resumed, end it with "
                f"{RepublishRun(archive.root, run).abandoning}"
            )
    if has_locked:
        say(
            f"remove {archive.root}: keeping {locks.summary(there)}: the store refuses to delete "
            "them before; no reader gets them, and a later maintenance removes them"
        )
    ticker = Ticker(f"remove {archive.root}", Progress("files", len(paths)))
    held = locks.held(paths)
    for number, path in enumerate(held, start=1):
        # A store may have removed it without its answer being heard.
        (archive.root / path).unlink(missing_ok=True)
        ticker.at(number)
    files, size = len(held), sum(each.bytes for each in held.values())
    for generation in snapshot.generations[:-1]:
        if generation.name in snapshot.fold.gone_by_owner:
            _retire(generation)
    say(f"remove {archive.root}: removed {files:,} superseded files, {size:,} bytes")
    return {"removed_files": files, "removed_bytes": size}


def held_back(snapshot: Snapshot, paths: Collection[str]) -> frozenset[str]:
    """Return the replaced files that may be the only copy of their records.

    Releases before this one compared numbers of records only: where the replacing window was sealed
    by one, the records are compared now.

    Args:
        snapshot: The archive.
        paths: Files that windows replace.

    Raises:
        ManifestInvalidError: When a receipt is damaged.
    """
    held: frozenset[str] = frozenset()
    for window, replaced in unproven(snapshot, paths):
        found = _compared_now(snapshot, window, replaced)
        if found is None or not found.is_equal:
            held |= replaced
            where = f" at {', '.join(found.names[:NAMED])}" if found else ""
            text = (
                f"remove {snapshot.root}: WARNING keeping {len(replaced):,} files, such as "
                f"{min(replaced)}: window {window.key}, which an earlier release sealed, isn't "
                f"proven to hold their records{where}. They may be the only copy; no reader gets "
                "them"
            )
            say(Line(text, Level.WARNING))
    return held


def unproven(
    snapshot: Snapshot, paths: Collection[str]
) -> list[tuple[SnapshotWindow, frozenset[str]]]:
    """Return the windows whose records an earlier release didn't compare, with those of some files.

    Args:
        snapshot: The archive.
        paths: Files that windows replace.
    """
    windows = snapshot.fold.of_kind(WindowKind.REPROCESS, WindowKind.BACKFILL)
    found = (
        (window, frozenset(window.receipt.replaces).intersection(paths))
        for window in windows
        if window.receipt.changed is None
    )
    return [(window, replaced) for window, replaced in found if replaced]


def badly_repaired(snapshot: Snapshot, paths: Collection[str]) -> dict[str, frozenset[str]]:
    """Return replaced files whose windows have lost files that a repair may not make good.

    Args:
        snapshot: The archive.
        paths: Files that windows replace.

    Returns:
        The files that stay, by the repair's window.
    """
    # Also those of repairs: one may be damaged and repaired in turn.
    by_folder = {window.name: window.receipt.replaces for window in snapshot.fold.windows}
    files = {file.path: file for receipt in snapshot.fold.receipts for file in receipt.files}
    found = {
        repair.key: held_before(repair.receipt.replaces, by_folder).intersection(paths)
        for repair in snapshot.fold.of_kind(WindowKind.REPAIR)
        if not _makes_good(repair.receipt, files)
    }
    return {key: held for key, held in found.items() if held}


def _kept_for_repairs(snapshot: Snapshot, paths: Collection[str]) -> frozenset[str]:
    """Return the files that stay because of repairs, and say so."""
    found = badly_repaired(snapshot, paths)
    for key, held in found.items():
        text = (
            f"remove {snapshot.root}: WARNING keeping {len(held):,} files, such as "
            f"{min(held)}: what stands for them was damaged, and window {key}, which "
            "stands for that, isn't proven to hold the same records. They may be the only "
            "copy; no reader gets them"
        )
        say(Line(text, Level.WARNING))
    return frozenset[str]().union(*found.values())


def _makes_good(repair: Receipt, files: Mapping[str, SealedFile]) -> bool:
    """Return whether a repair is proven to hold all records of the windows' files that it replaces.

    Args:
        files: The files of windows, by path.
    """
    # Given up, accepted although it differs, or sealed by a release that didn't compare.
    if repair.changed != ():
        return False
    # What Kafka no longer had of a file isn't in its ranges, and wasn't compared.
    accepted = parse_ranges("acknowledged", repair.acknowledged)
    return not any(
        overlapping(accepted.get(content.tp, ()), OffsetRange(content.first, content.last + 1))
        for path in repair.replaces
        if path in files
        for content in files[path].contents
    )


def _compared_now(
    snapshot: Snapshot, window: SnapshotWindow, replaced: Collection[str]
) -> Replacement | None:
    """Compare a sealed window with files that it replaces; None if its own can't be read."""
    # Not at the top: few windows are of an earlier release, and importing pyarrow takes a while.
    from kafka_drain.proof.replaced_files import compare_replaced

    receipt = replace(window.receipt, replaces=tuple(sorted(replaced)))
    erased = snapshot.fold.erased_of(receipt.topics)
    try:
        return compare_replaced(snapshot, receipt, window.plan.format, erased)
    except (DataFileError, *KEY_ERRORS, FileNotFoundError):
        return None


def still_locked(
    archive: Archive,
    locks: StoreLocks,
    there: Collection[str] | None = None,
    among: Collection[str] | None = None,
) -> Locked:
    """Return the superseded files that the store still keeps, and until when.

    Args:
        locks: The store's locks.
        there: The data files that exist; None to list them.
        among: The files that count; None for all superseded ones.
    """
    if not can_lock(archive.root):
        return Locked()
    asked = archive.snapshot().fold.gone if among is None else among
    return locks.summary(_there(archive, asked) if there is None else {*asked} & {*there})


def _there(archive: Archive, paths: Collection[str]) -> frozenset[str]:
    """Return the given data files that exist."""
    if is_local(archive.root):
        return frozenset(path for path in paths if (archive.root / path).is_file())
        # One listing of an object store, instead of one request for each file that ever existed.
    return frozenset(list_data_files(archive.root).keys() & set(paths))


def needed_files(archive: Archive) -> dict[str, frozenset[str]]:
    """Return the files of unfinished republishes that may still be resumed, by run."""
    now = utc_now()
    plans = {run.key: run.plan() for run in list_runs(archive.root) if run.needs_its_files(now)}
    return {
        key: frozenset(file.path for shard in plan.shards for file in shard.files)
        for key, plan in plans.items()
        if plan is not None
    }


def _retire(generation: Generation) -> None:
    for folder in (generation.data / "_spark_metadata", generation.checkpoint):
        if folder.is_dir():
            folder.fs.rm(folder.path, recursive=True)
    if has_folders(generation.data):
        _remove_empty(generation.data)


def _remove_empty(folder: UPath) -> bool:
    """Remove empty folders below a folder; return whether the folder itself is empty now."""
    is_empty = True
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        # Hadoop keeps a checksum file beside each data file.
        if entry.is_dir() and _remove_empty(entry):
            entry.rmdir()
        elif entry.name.endswith(".crc") and not entry.with_name(entry.name[1:-4]).is_file():
            entry.unlink()
        else:
            is_empty = False
    return is_empty


def removable(
    free: Collection[str], needed: Collection[str], damage: Mapping[str, Sequence[Finding]]
) -> list[str]:
    """Return the superseded files that may be removed.

    Args:
        free: The superseded files that exist and that their store doesn't lock.
        needed: Files of republishes that may be resumed; these stay for now.
        damage: By window that readers depend on, how its files differ from what was sealed.

    Raises:
        ManifestInvalidError: When a window's files don't match what was sealed: the superseded
            files may be the only copy.
    """
    for key, found in damage.items():
        if found:
            raise ManifestInvalidError(
                f"window {key} differs from what was sealed: {'; '.join(map(str, found[:5]))}; "
                "nothing was removed"
            )
    return sorted(set(free) - set(needed))


def held_before(paths: Collection[str], replaced: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return files, and all files that held their records before and that their windows replaced.

    Args:
        paths: The files.
        replaced: By the folder of a window, the files that it replaces.
    """
    found: set[str] = set()
    asked = set(paths)
    while asked:
        found |= asked
        owners = {owner_of(path) for path in asked}
        asked = {path for owner in owners for path in replaced.get(owner, ())} - found
    return frozenset(found)
