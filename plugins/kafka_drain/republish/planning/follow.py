"""Following an archive: each run sends what was sealed since the one before. A mirror in steps.

A follower's runs are numbered, `republish/<follower>.000001` and so on; each plan says through
which receipts it goes. The next one begins there, once the one before has its receipt. Of two runs
at once both go on with the same number, and the protocol lets each record count once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, files_of_receipt
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.snapshot import Snapshot, SnapshotWindow
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.offsets import OffsetRange, TopicPartition, count, subtract
from kafka_drain.republish.planning.binding import Binding
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key

__all__ = [
    "asked_before",
    "bound_before",
    "follower_key",
    "followers",
    "has_sent",
    "new_files",
    "next_run",
    "through_now",
]


#: What `run_key` makes of a follower's name.
_FOLLOWER = re.compile(r"follow-.*-[0-9a-f]{12}")
_DIGITS = 6


def follower_key(name: str) -> str:
    """Return what the keys of a follower's runs begin with."""
    return run_key(f"follow {name}")


def next_run(archive: Archive, follower: str) -> tuple[RepublishRun, Mapping[str, Any]]:
    """Return the run to go on with, and what of the archive was sent before it.

    The last run when it hasn't ended, else the one after it.
    """
    runs = [run for run in list_runs(archive.root) if _is_run_of(run.key, follower)]
    since: Mapping[str, Any] = {}
    # The last one may have been killed before it had a plan.
    for run in runs[-2:]:
        receipt = run.receipt()
        if receipt is None:
            return run, since
        since = receipt["through"]
    number = int(runs[-1].key.rpartition(".")[2]) + 1 if runs else 1
    return RepublishRun(archive.root, f"{follower}.{number:0{_DIGITS}d}"), since


def _is_run_of(key: str, follower: str) -> bool:
    before, _, number = key.rpartition(".")
    return before == follower and number.isdecimal()


def asked_before(archive: Archive, follower: str) -> Mapping[str, Any] | None:
    """Return what a follower's last run that has ended was asked for; None when none has."""
    runs = [run for run in list_runs(archive.root) if _is_run_of(run.key, follower)]
    receipts = (run.receipt() for run in reversed(runs[-2:]))
    return next((receipt["request"] for receipt in receipts if receipt is not None), None)


def bound_before(archive: Archive, follower: str, since: Mapping[str, Any]) -> Binding:
    """Return where a follower's runs have sent.

    Args:
        archive: The archive.
        follower: What the keys of its runs begin with.
        since: What it has sent, as its last run that has ended says.
    """
    if "bound" in since:
        return Binding.from_dict(since["bound"])
    # Runs of an older release each tell of their own topics only.
    bound = Binding()
    for run in list_runs(archive.root) if since else ():
        receipt = run.receipt() if _is_run_of(run.key, follower) else None
        bound = bound if receipt is None else bound.plus(Binding.of_receipt(receipt))
    return bound


def has_sent(through: Mapping[str, Any], receipt: Receipt) -> bool:
    """Whether a follower that has sent so much has sent a segment's files."""
    if receipt.generation is None:
        return receipt.window in through.get("windows", [])
    last: str = through.get("generations", {}).get(str(receipt.generation), "")
    return receipt.name <= last


def followers(archive: Archive) -> list[tuple[str, Mapping[str, Any]]]:
    """Return how much each follower has sent: name, and `through` of its last ended run.

    One whose last run hasn't ended is there twice: it may turn out to have sent that as well.
    """
    keys: dict[str, list[RepublishRun]] = {}
    for run in list_runs(archive.root):
        name, _, number = run.key.rpartition(".")
        if _FOLLOWER.fullmatch(name) and _is_run_of(run.key, name) and len(number) == _DIGITS:
            keys.setdefault(name, []).append(run)
    found: list[tuple[str, Mapping[str, Any]]] = []
    for name, runs in keys.items():
        for run in runs[-2:]:
            receipt = run.receipt()
            plan = run.plan() if receipt is None else None
            if receipt is not None:
                found = [(n, through) for n, through in found if n != name]
                found.append((name, receipt["through"]))
            elif plan is not None and plan.through is not None:
                found.append((name, plan.through))
    return found


def through_now(snapshot: Snapshot) -> dict[str, Any]:
    """Return how far the archive is sealed: last batch by generation, and windows."""
    return {
        "generations": {
            str(generation.number): names[-1]
            for generation in snapshot.generations
            if (names := generation.receipt_names())
        },
        "windows": [window.key for window in snapshot.sealed],
    }


def new_files(
    snapshot: Snapshot, since: Mapping[str, Any], through: Mapping[str, Any]
) -> list[ArchiveFile]:
    """List the files that are sealed by receipts after `since` and up to `through`.

    Of generations, reads the new receipts only.

    Raises:
        ManifestInvalidError: When a receipt is damaged, or a repaired window holds records beside
            such as were sent before.
    """
    try:
        return _new_files(snapshot, since, through)
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate` to see "
            "which"
        ) from error


def _new_files(
    snapshot: Snapshot, since: Mapping[str, Any], through: Mapping[str, Any]
) -> list[ArchiveFile]:
    windows = [window for window in snapshot.windows if window.key in through["windows"]]
    sent_windows = [window for window in windows if window.key in since.get("windows", [])]
    found: list[ArchiveFile] = []
    for generation in snapshot.generations:
        number = str(generation.number)
        after, until = (at.get("generations", {}).get(number, "") for at in (since, through))
        names = [name for name in generation.receipt_names() if after < name <= until]
        for name in names:
            receipt = generation.read_receipt(name)
            found += files_of_receipt(generation, receipt, generation.document.format)
    new = [window for window in windows if window not in sent_windows]
    wanted = {path for window in new for path in window.receipt.replaces}
    sent = _sent_files(snapshot, since, [window.receipt for window in sent_windows], wanted)
    for window in new:
        files = files_of_receipt(window, window.receipt, window.plan.format)
        before = [sent[path] for path in window.receipt.replaces if path in sent]
        if window.supersedes:
            found += _unsent_superseding(window, files, before)
        else:
            found += _unsent(files, _ranges(before))
    replaced = {path for window in windows for path in window.receipt.replaces}
    return [file for file in found if file.path not in replaced]


Ranges = dict[TopicPartition, list[OffsetRange]]


def _sent_files(
    snapshot: Snapshot,
    since: Mapping[str, Any],
    windows: Iterable[Receipt],
    wanted: Collection[str],
) -> dict[str, SealedFile]:
    """Return those of some files that were sent, by path."""
    receipts = list(windows)
    for generation in snapshot.generations if wanted else ():
        last = since.get("generations", {}).get(str(generation.number), "")
        names = (name for name in generation.receipt_names() if name <= last)
        receipts += map(generation.read_receipt, names)
    files = (file for receipt in receipts for file in receipt.files)
    return {file.path: file for file in files if file.path in wanted}


def _ranges(files: Iterable[SealedFile]) -> Ranges:
    """Return what was sent of files that were damaged later."""
    ranges: Ranges = {}
    for file in files:
        for content in file.contents:
            held = OffsetRange(content.first, content.last + 1)
            ranges.setdefault(content.tp, []).append(held)
    return ranges


def _unsent_superseding(
    window: SnapshotWindow, files: Iterable[ArchiveFile], sent: Sequence[SealedFile]
) -> list[ArchiveFile]:
    """Return the files of a window whose records weren't sent from those that it stands for."""
    receipt = window.receipt
    if not sent or not receipt.files:
        return list(files)
    if len(sent) == len(receipt.replaces):
        return []
    raise ManifestInvalidError(
        f"window {window.key} stands for {len(receipt.replaces):,} files, of which this follower "
        f"has sent {len(sent):,} before; expected all or none. Nothing was sent; follow under "
        "another target topic, and let followers run before a reprocess"
    )


def _unsent(files: Iterable[ArchiveFile], sent: Ranges) -> Iterator[ArchiveFile]:
    """Yield the files of a window whose records weren't sent from the file that it replaces."""
    for file in files:
        contents = file.sealed.contents if file.sealed else ()
        missing = [subtract(OffsetRange(c.first, c.last + 1), sent.get(c.tp, [])) for c in contents]
        new = sum(count(ranges) for ranges in missing)
        if new == sum(c.last + 1 - c.first for c in contents):
            yield file
        elif new:
            raise ManifestInvalidError(
                f"{file.path} was drained in place of a damaged file, and holds records that this "
                "follower has sent before beside others that it hasn't; expected all or none. "
                "Nothing was sent; follow under another target topic"
            )
