"""Follow an archive: each run sends what was sealed since the previous one, a stepwise mirror.

A follower's runs are numbered, `republish/<follower>.000001` and so on, and each plan records the
last receipts that it includes. The next run starts after these, once the previous one has its
receipt. Two concurrent runs both continue with the same number, and the protocol ensures that each
record counts once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import TopologicalSorter
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, files_of_receipt, files_of_windows
from kafka_drain.archive.fold import Fold, Partition, WindowKind, held_by, owner_of
from kafka_drain.archive.index import IndexedGeneration, Query
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.offsets import OffsetRange, TopicPartition, count, subtract, without
from kafka_drain.republish.planning.binding import Binding
from kafka_drain.republish.planning.documents import ChangeReceiptJson, ReceiptJson, ThroughJson
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key
from kafka_drain.storage.paths import quoted

#: The state of a follower before its first run.
NOTHING: ThroughJson = {"generations": {}, "windows": []}

#: The form of the key that `run_key` returns for a follower's name.
_FOLLOWER = re.compile(r"follow-.*-[0-9a-f]{12}")
_DIGITS = 6


def follower_key(name: str) -> str:
    """Return the prefix of the keys of a follower's runs."""
    return run_key(f"follow {name}")


def runs_of(archive: Archive, follower: str) -> list[RepublishRun]:
    """Return a follower's runs, oldest first.

    Args:
        follower: The prefix of the keys of its runs.
    """
    return [run for run in list_runs(archive.state) if _is_run_of(run.key, follower)]


def next_run(archive: Archive, follower: str) -> tuple[RepublishRun, ThroughJson]:
    """Return the run to execute next, and how much of the archive was sent before it.

    This is the one after the last run that has finished: only then does the next one begin, and its
    receipt covers all runs before it.
    """
    runs = runs_of(archive, follower)
    since, unfinished = NOTHING, list[RepublishRun]()
    for run in reversed(runs):
        receipt = run.receipt()
        if receipt is not None:
            since = _through(run, receipt)
            break
        unfinished.append(run)
    if unfinished:
        return unfinished[-1], since
    number = int(runs[-1].key.rpartition(".")[2]) + 1 if runs else 1
    return RepublishRun(archive.state, f"{follower}.{number:0{_DIGITS}d}"), since


def _through(run: RepublishRun, receipt: ReceiptJson) -> ThroughJson:
    through = receipt["through"]
    if through is None:
        raise ArchiveError(
            f"{run.folder / 'receipt.json'} doesn't say how much of the archive was sent, expected "
            "a follower's receipt; restore it from a copy. Nothing was sent"
        )
    return through


def _is_run_of(key: str, follower: str) -> bool:
    before, _, number = key.rpartition(".")
    return before == follower and number.isdecimal()


def previous_request(archive: Archive, follower: str) -> dict[str, Any] | None:
    """Return the request of a follower's last finished run; None when no run has finished."""
    runs = runs_of(archive, follower)
    receipts = (run.receipt() for run in reversed(runs))
    return next((receipt["request"] for receipt in receipts if receipt is not None), None)


def previous_change(archive: Archive, follower: str) -> ChangeReceiptJson | None:
    """Return the `change` of a follower's last receipt; None if there is none."""
    receipts = (run.receipt() for run in reversed(runs_of(archive, follower)))
    last = next((receipt for receipt in receipts if receipt is not None), None)
    return None if last is None else last.get("change")


def previous_binding(archive: Archive, follower: str, since: ThroughJson) -> Binding:
    """Return the binding of a follower's runs.

    Args:
        follower: The prefix of the keys of its runs.
        since: The part that it has sent, according to its last finished run.
    """
    if "bound" in since:
        return Binding.from_dict(since["bound"])
    # Runs of an older release record only their own topics.
    bound = Binding()
    for run in list_runs(archive.state):
        receipt = run.receipt() if _is_run_of(run.key, follower) else None
        bound = bound if receipt is None else bound.plus(Binding.of_receipt(receipt))
    return bound


def has_sent(through: ThroughJson, receipt: Receipt) -> bool:
    """Return whether a follower that got as far as `through` has sent a segment's files."""
    if receipt.generation is None:
        # One that has only replaced windows that were sent holds nothing else.
        before = {owner_of(path).removeprefix("windows/") for path in receipt.replaces}
        is_again = bool(before) and before.issubset(through["windows"])
        return is_again or receipt.window in through["windows"]
    last = through["generations"].get(str(receipt.generation), "")
    return receipt.name <= last


def followers(archive: Archive) -> list[tuple[str, ThroughJson]]:
    """Return each follower's name, and `through` of its last finished run.

    A follower whose last run hasn't finished is listed twice: that run may turn out to have sent
    its records as well. One whose last run was abandoned isn't listed: it sends nothing more.
    """
    keys: dict[str, list[RepublishRun]] = {}
    for run in list_runs(archive.root):
        name, _, number = run.key.rpartition(".")
        if _FOLLOWER.fullmatch(name) and _is_run_of(run.key, name) and len(number) == _DIGITS:
            keys.setdefault(name, []).append(run)
    found: list[tuple[str, ThroughJson]] = []
    for name, runs in keys.items():
        if runs[-1].is_abandoned and not runs[-1].has_ended:
            continue
        for run in runs[-2:]:
            receipt = run.receipt()
            plan = run.plan() if receipt is None else None
            if receipt is not None:
                found = [(n, through) for n, through in found if n != name]
                found.append((name, _through(run, receipt)))
            elif plan is not None and plan.through is not None:
                found.append((name, plan.through))
    return found


def unsent_segments(snapshot: Snapshot, since: ThroughJson) -> Query:
    """Return the segments that a follower must read, beside those that aren't in the index.

    These are all from the first closed generation with something new, as each is compared with what
    was sent of it; new windows; and what these replace, which may have been sent.

    Args:
        since: The part that was sent before.
    """
    index = snapshot.index
    if index is None:
        return Query()
    last = since["generations"]
    changed = (each for each in index.generations if last.get(str(each.generation)) != each.newest)
    first = next((row.generation for row in changed), index.last + 1)
    sent = frozenset(since["windows"])
    rows = {row.window: row for row in index.windows}
    names = {row.name for row in index.generations if row.generation >= first}
    for key in snapshot.window_names - sent:
        window, row = snapshot.any_window(key), rows.get(key)
        names.add(window.name)
        if row is not None:
            names |= row.replaces.keys()
        elif window.is_readable:
            names |= {owner_of(path) for path in window.receipt.replaces}
    return Query(names=frozenset(names))


def through_now(snapshot: Snapshot, since: ThroughJson = NOTHING) -> ThroughJson:
    """Return the sealed part of the archive: the last batch by generation, and the windows.

    Args:
        snapshot: The archive, which may be without the segments that needn't be read.
        since: The part that was sent before; its receipts aren't read again.

    Raises:
        ManifestInvalidError: When a receipt is damaged.
    """
    with _damage_explained(snapshot):
        return _through_now(snapshot, since)


def _through_now(snapshot: Snapshot, since: ThroughJson) -> ThroughJson:
    last, files = dict[str, str](), dict[str, str]()
    newest = {row.generation: row.newest for row in _skipped_generations(snapshot, since)}
    for generation in snapshot.generations:
        if names := generation.receipt_names():
            newest[generation.number] = names[-1]
    for generation_number, name in sorted(newest.items()):
        number = str(generation_number)
        last[number] = name
        if since["generations"].get(number) != name:
            receipt = snapshot.generation(generation_number).read_receipt(name)
            files[number] = _digest(receipt)
        elif number in since.get("files", {}):
            files[number] = since["files"][number]
    return {
        "generations": last,
        "files": files,
        "windows": sorted({*snapshot.fold.keys, *_skipped_windows(snapshot)}),
    }


def _skipped_generations(snapshot: Snapshot, since: ThroughJson) -> list[IndexedGeneration]:
    """Return the rows of the generations that aren't read: all of them were sent before."""
    if snapshot.skipped is None:
        return []
    rows = snapshot.skipped.index.generations
    skipped = [row for row in rows if row.generation in snapshot.skipped.generations]
    assert all(since["generations"].get(str(row.generation)) == row.newest for row in skipped)
    return skipped


def _skipped_windows(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the windows that aren't read: all of them are sealed."""
    return snapshot.skipped.windows if snapshot.skipped else frozenset()


def _digest(receipt: Receipt) -> str:
    """Return the digest of a generation's files up to a receipt; sealing again keeps it."""
    return f"{receipt.files_so_far.digest:032x}"


def new_files(snapshot: Snapshot, since: ThroughJson, through: ThroughJson) -> list[ArchiveFile]:
    """List the files that are sealed by receipts after `since` and up to `through`.

    For generations, reads only the new receipts, and the last one before them.

    Args:
        snapshot: The archive, which may be restricted to the result of `unsent_segments`.

    Raises:
        ManifestInvalidError: When a receipt is damaged, a window mixes new records with records
            that were already sent, or something that was sent isn't sealed any more.
    """
    with _damage_explained(snapshot):
        return _new_files(snapshot, since, through)


@contextmanager
def _damage_explained(snapshot: Snapshot) -> Iterator[None]:
    try:
        yield
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(snapshot.root)}` to find out which one"
        ) from error


def _new_files(snapshot: Snapshot, since: ThroughJson, through: ThroughJson) -> list[ArchiveFile]:
    # A window without its receipt, which a forced backfill has replaced since, raises.
    fold = Fold(snapshot.windows).only(through["windows"])
    before, new = fold.only(since["windows"]), fold.but(since["windows"])
    found: list[ArchiveFile] = []
    _refuse_gone(snapshot, since)
    has_grown = False
    for generation in snapshot.generations:
        number = str(generation.number)
        after, last = (at["generations"].get(number, "") for at in (since, through))
        sealed = generation.receipt_names()
        if after and after not in sealed:
            raise ManifestInvalidError(
                f"{generation.receipt_where(after)}, up to which this follower has sent, doesn't "
                "exist any more, and its records may be sealed elsewhere. Nothing was sent; run "
                f"`kafka-drain validate {quoted(snapshot.root)}`, which seals its batch again; "
                "otherwise follow with another target topic"
            )
        names = [name for name in sealed if after < name <= last]
        # What is new in an earlier generation may be what this one held when it was sent.
        has_grown = has_grown or bool(names)
        digest = since.get("files", {}).get(number)
        if has_grown and digest and digest != _digest(generation.read_receipt(after)):
            raise ManifestInvalidError(
                f"{generation.receipt_where(after)}, up to which this follower has sent, has "
                "other files now: the archive was restored from an older copy and drained again. "
                "Records would be left out or sent twice. Nothing was sent; follow with another "
                "target topic"
            )
        for name in names:
            receipt = generation.read_receipt(name)
            found += files_of_receipt(generation, receipt, generation.document.format)
    sent = _sent_files(snapshot, since, before.receipts, new.replaced)
    removed = _removed(snapshot, since, new)
    for window in _replacing_last(new.windows):
        files = files_of_windows([window])
        sent_before = [sent[path] for path in window.receipt.replaces if path in sent]
        if window.supersedes:
            unsent = _unsent_superseding(window, files, sent_before)
        else:
            unsent = list(_unsent(files, _ranges(sent_before)))
            # What a removed window had was sent from it.
            unsent = [f for one in unsent for f in _unsent([one], _of_topics(one, removed))]
        found += unsent
        # What another window has replaced again counts as sent if this one's records do.
        sent |= {file.path: file for file in window.receipt.files}
        for file in unsent:
            del sent[file.path]
    return [
        file for live in fold.live(found) for file in _unsent([live], _of_topics(live, removed))
    ]


def _refuse_gone(snapshot: Snapshot, since: ThroughJson) -> None:
    """Refuse an archive without a generation that was sent: its records are drained again.

    Raises:
        ManifestInvalidError: Names the generation.
    """
    there = {str(row.generation) for row in _skipped_generations(snapshot, since)}
    there |= {str(generation.number) for generation in snapshot.generations}
    gone = sorted(since["generations"].keys() - there, key=int)
    if gone:
        raise ManifestInvalidError(
            f"{snapshot.root} has no generation {gone[0]}, which this follower has sent: the "
            "archive was restored from an older copy. What it drains again would be sent twice. "
            "Nothing was sent; restore a newer copy, or follow with another target topic"
        )


def _replacing_last(windows: Sequence[SnapshotWindow]) -> list[SnapshotWindow]:
    """Return windows in an order in which each follows those whose files it replaces."""
    by_key = {window.key: window for window in windows}
    owners = {file.path: window.key for window in windows for file in window.receipt.files}
    order = TopologicalSorter(
        {w.key: [owners[path] for path in w.receipt.replaces if path in owners] for w in windows}
    )
    return [by_key[key] for key in order.static_order()]


Ranges = dict[TopicPartition, list[OffsetRange]]


def _removed(
    snapshot: Snapshot, since: ThroughJson, new: Fold[SnapshotWindow]
) -> dict[Partition, list[OffsetRange]]:
    """Return the offsets of windows that were sent and then removed, because of a later drain.

    Their receipts, which say what was sent, are gone; the plan of a backfill stays. It also has
    offsets that others held or were to drain: what was sent is what new backfills hold of it.

    Args:
        new: The windows that were sealed since.

    Raises:
        ManifestInvalidError: When a window's plan is gone as well: a roll has removed a repair.
    """
    removed: dict[Partition, list[OffsetRange]] = {}
    skipped = _skipped_windows(snapshot)
    held = held_by(window.receipt for window in new.of_kind(WindowKind.BACKFILL))
    for key in since["windows"]:
        if key in skipped or snapshot.is_sealed(key):
            continue
        window = snapshot.folders.get(key)
        topics = _topics_of(snapshot, window)
        if window is None or not topics:
            raise ManifestInvalidError(
                f"window {key}, which this follower has sent, was removed because its records are "
                "drained again; they would be sent twice. Nothing was sent; follow with another "
                "target topic"
            )
        for tp, ranges in window.plan.offsets().items():
            partition = tp, topics.get(tp.topic, "")
            elsewhere = without(ranges, held.get(partition, []))
            removed.setdefault(partition, []).extend(without(ranges, elsewhere))
    return removed


def _topics_of(snapshot: Snapshot, window: SnapshotWindow | None) -> Mapping[str, str]:
    """Return the topic ids of a removed window; a repair's are those of the windows it repaired.

    Empty if they aren't known: a window's plan is gone, or a repair was one of a generation.
    """
    if window is None or window.plan_bytes is None:
        return {}
    if window.plan.topics:
        return window.plan.topics
    found: dict[str, str] = {}
    for owner in sorted({*map(owner_of, window.plan.replaces)}):
        before = _topics_of(snapshot, snapshot.folders.get(owner.removeprefix("windows/")))
        if not before:
            return {}
        found |= before
    return found


def _of_topics(file: ArchiveFile, held: Mapping[Partition, list[OffsetRange]]) -> Ranges:
    """Return the ranges of the topics, by id, that a file's records belong to."""
    return {
        tp: rs for (tp, topic_id), rs in held.items() if file.topic_ids.get(tp.topic) == topic_id
    }


def _sent_files(
    snapshot: Snapshot,
    since: ThroughJson,
    windows: Iterable[Receipt],
    wanted: Collection[str],
) -> dict[str, SealedFile]:
    """Return the files in `wanted` that were sent, by path."""
    receipts = list(windows)
    for generation in snapshot.generations if wanted else ():
        last = since["generations"].get(str(generation.number), "")
        names = (name for name in generation.receipt_names() if name <= last)
        receipts += map(generation.read_receipt, names)
    files = (file for receipt in receipts for file in receipt.files)
    return {file.path: file for file in files if file.path in wanted}


def _ranges(files: Iterable[SealedFile]) -> Ranges:
    """Return the offset ranges that were sent from files that were damaged later."""
    ranges: Ranges = {}
    for file in files:
        for content in file.contents:
            held = OffsetRange(content.first, content.last + 1)
            ranges.setdefault(content.tp, []).append(held)
    return ranges


def _unsent_superseding(
    window: SnapshotWindow, files: Iterable[ArchiveFile], sent: Sequence[SealedFile]
) -> list[ArchiveFile]:
    """Return the files of a window whose records weren't sent from the files it supersedes."""
    receipt = window.receipt
    if not sent or not receipt.files:
        return list(files)
    if len(sent) == len(receipt.replaces):
        return []
    raise ManifestInvalidError(
        f"window {window.key} supersedes {len(receipt.replaces):,} files, of which this follower "
        f"has already sent {len(sent):,}; expected all or none. Nothing was sent; follow with "
        "another target topic, and let followers run before you reprocess"
    )


def _unsent(files: Iterable[ArchiveFile], sent: Ranges) -> Iterator[ArchiveFile]:
    """Yield the files whose records weren't sent from others, which they replace."""
    for file in files:
        contents = file.sealed.contents if file.sealed else ()
        missing = [subtract(OffsetRange(c.first, c.last + 1), sent.get(c.tp, [])) for c in contents]
        new = sum(count(ranges) for ranges in missing)
        if new == sum(c.last + 1 - c.first for c in contents):
            yield file
        elif new:
            raise ManifestInvalidError(
                f"{file.path} holds records that this follower has already sent, next to others "
                "that it hasn't; expected all or none. Nothing was sent; follow with another "
                "target topic"
            )
