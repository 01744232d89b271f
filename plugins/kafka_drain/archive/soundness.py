"""Comparison of an archive with its journal: everything sealed must exist, unchanged and once.

Reads the document and the newest receipt of each generation, and plan and receipt of each window;
or only those that match a query, and a few in rotation, where the index says enough of the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from upath import UPath

from kafka_drain.archive import erasures
from kafka_drain.archive.archive import Archive, locks_of_copy
from kafka_drain.archive.documents import ArchiveDocument
from kafka_drain.archive.fold import Partition, held_by
from kafka_drain.archive.format import ERASED_VERSION
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.index import Index, Query, skip, suffices
from kafka_drain.archive.journal.digests import (
    digest_of,
    generation_digest,
    identity_digest,
    plan_digest,
)
from kafka_drain.archive.journal.entries import (
    REMOVED,
    UNREADABLE,
    Journal,
    Noted,
    Tip,
    Verdict,
    given_up,
    judge_document,
    judge_known,
    judge_tip,
)
from kafka_drain.archive.journal.files import read_journal, start_journal_anew
from kafka_drain.archive.journal.identity import (
    ACCEPTED,
    generation_differs,
    identity_differs,
    ids_by_topic,
    note_of_settings,
)
from kafka_drain.archive.receipt_chain import check_figures, check_link, unreadable
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.segment_overlaps import (
    Hole,
    OffsetClaim,
    claims_of,
    drained_of,
    find_early,
    find_holes,
    find_overlaps,
)
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.window import Window
from kafka_drain.archive.window_figures import contradicts_plan
from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import OffsetRange, merge
from kafka_drain.output import say
from kafka_drain.storage.object_retention import can_lock
from kafka_drain.storage.paths import list_folder, read_bytes

# Concurrent runs may seal something, or remove a receipt deliberately, during the check.
ATTEMPTS = 5

#: Prefix, before the topic id, of the journal's entries for accepted holes.
_HOLES = "holes/"

_REASONS = {Verdict.MISSING: Reason.RECEIPT_MISSING, Verdict.CHANGED: Reason.RECEIPT_CHANGED}


@dataclass
class SealedState:
    """The combined state of journal and archive.

    Attributes:
        snapshot: The archive as it was checked.
        findings: Missing, changed and duplicated files.
        warnings: Losses given up for good, and notes of erasures that don't count.
        there: Everything that is sealed.
        known: Highest number of journal entries recorded in a receipt.
        newest: Newest valid receipt of each generation, by its folder.
        last: That of the newest generation that has one.
        windows: Valid receipts of sealed windows.
        claims: Offsets held by the segments.
        holes: Offsets between two generations that are in no segment.
        topic_ids: The ids that archive.json may say of each sealed topic; see `ids_by_topic`.
    """

    snapshot: Snapshot
    journal: Journal
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    there: Noted = field(default_factory=Noted)
    known: int = 0
    newest: dict[str, Receipt] = field(default_factory=dict)
    last: Receipt | None = None
    windows: list[Receipt] = field(default_factory=list)
    claims: list[OffsetClaim] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    topic_ids: Mapping[str, Collection[str]] = field(default_factory=dict)


def check_sealed_state(
    snapshot: Snapshot,
    *,
    windows: bool = True,
    query: Query | None = None,
) -> SealedState:
    """Compare an archive with its journal; changes nothing.

    What doesn't match the query isn't read if the index says enough of it, except for a few in
    rotation; if something is wrong, everything is read.

    Args:
        snapshot: The archive. If something looks wrong, later snapshots are checked: concurrent
            sealing and deliberate removal must not look like damage.
        windows: Whether to check windows, overlaps, and the holes between all generations;
            otherwise only holes before a generation that has drained nothing yet are checked.
        query: The segments that the caller needs; None for all.
    """
    turn = snapshot.journal.newest
    restricted = _restricted(snapshot, query, windows, turn) if query is not None else None
    state = _Look(restricted or snapshot, snapshot.journal).look(windows)
    if restricted is not None and state.findings:
        state = _Look(snapshot, snapshot.journal).look(windows)
    newest = None
    for _ in range(ATTEMPTS):
        if not state.findings or newest == read_journal(snapshot.root).newest:
            break
        snapshot = snapshot.again()
        newest = snapshot.journal.newest
        state = _Look(snapshot, snapshot.journal).look(windows)
    return state


def restricted(snapshot: Snapshot, query: Query) -> Snapshot:
    """Return an archive restricted to a query; the same if nothing can be skipped.

    It isn't checked: for what is read besides a check, or before one.
    """
    return _restricted(snapshot, query, True, None) or snapshot


def _restricted(
    snapshot: Snapshot, query: Query, windows: bool, turn: int | None
) -> Snapshot | None:
    """Return an archive restricted to a query; None if nothing can be skipped."""
    if not windows and snapshot.has_few_generations:
        return None
    index = snapshot.index
    if index is None:
        return None
    if not windows:
        found = skip(index, query, turn)
        return snapshot.without(replace(found, windows=frozenset()))
    if not suffices(index, query):
        return None
    return snapshot.without(skip(index, query, turn, _others(snapshot, index)))


def _others(snapshot: Snapshot, index: Index) -> set[str]:
    """Return the folders of generations and windows that an index doesn't name."""
    there = {generation.name for generation in snapshot.generations}
    there |= {window.name for window in snapshot.folders.values()}
    return there - {row.name for row in index.rows}


def refuse_unsound(
    snapshot: Snapshot,
    *,
    windows: bool = True,
    filling: bool = False,
    query: Query | None = None,
) -> SealedState:
    """Refuse to act on an archive in which sealed data is missing or changed.

    Args:
        snapshot: The archive.
        windows: Whether to check windows.
        filling: Whether to tolerate offsets that are in no segment, because the caller is about to
            fill them with a window.
        query: The segments that the caller needs; None for all.

    Raises:
        ManifestInvalidError: When something is missing or changed; nothing was changed.
    """
    state = check_sealed_state(snapshot, windows=windows, query=query)
    found = [f for f in state.findings if not (filling and f.reason == Reason.SEGMENT_HOLE)]
    if found:
        shown = "; ".join(map(str, found[:3]))
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise ManifestInvalidError(
            f"{snapshot.root}: {shown}{more}. That means: {found[0].reason.meaning}. "
            f"What to do: {found[0].reason.remedy_of(snapshot.root)}. Nothing was changed"
        )
    return state


def note_of_holes(holes: Iterable[Hole]) -> Noted:
    """Return the journal note for offsets that are in no segment, but whose loss is explained."""
    return Noted(
        documents={
            f"{_HOLES}{hole.topic_id}/{range_name(hole.tp, hole.range)}": ACCEPTED for hole in holes
        }
    )


def accepted_holes(noted: Noted) -> dict[Partition, list[OffsetRange]]:
    """Return the offsets that users have accepted as lost, by partition and topic id."""
    found: dict[Partition, list[OffsetRange]] = {}
    for path in noted.documents:
        if path.startswith(_HOLES):
            # A topic id may contain "/", a topic's name can't.
            topic_id, _, name = path.removeprefix(_HOLES).rpartition("/")
            for tp, ranges in parse_ranges("journal", [name], "").items():
                found.setdefault((tp, topic_id), []).extend(ranges)
    return found


def recreate_journal(archive: Archive, *, dry_run: bool) -> None:
    """Start the journal anew from what exists; what is missing, without a copy, is dropped.

    The caller holds the leases of the archive, of its maintenance and of its windows.

    Args:
        dry_run: Whether to change nothing.

    Raises:
        ManifestInvalidError: When the existing data contradicts itself; nothing was changed.
    """
    state = check_sealed_state(archive.snapshot())
    for finding in state.findings:
        if finding.reason != Reason.SEGMENT_HOLE:
            say(f"journal {archive.root}: drops {finding}")
    before = state.journal.noted
    # A plan may name an erasure that is dropped.
    dropped = Noted(forgotten={**before.forgotten, **given_up(before, state.there)})
    look = _Look(state.snapshot, Journal(noted=dropped)).look(windows=True)
    # What dropped segments held is missing from now on, and drained again.
    kept = (Reason.JOURNAL_DAMAGED, Reason.SEGMENT_HOLE)
    left = [found for found in look.findings if found.reason not in kept]
    lost, broken = _lost_links(state.snapshot, before.forgotten)
    left += [found for found in broken if found not in left]
    if left:
        raise ManifestInvalidError(
            f"{archive.root}: {'; '.join(map(str, left[:3]))}; a journal of this state would "
            f"prove nothing. What to do: {left[0].reason.remedy_of(archive.root)}. Nothing was "
            "changed"
        )
    for where in lost:
        say(f"journal {archive.root}: drops the predecessor of {where}")
    if not dry_run:
        forgotten = {**before.forgotten, **given_up(before, look.there), **lost}
        documents = {p: value for p, value in before.documents.items() if p.startswith(_HOLES)}
        documents |= look.there.documents
        noted = replace(look.there, documents=documents, forgotten=forgotten)
        number = start_journal_anew(archive.root, noted, look.known)
        say(f"journal {archive.root}: entry {number:,} records the current state")


def _lost_links(
    snapshot: Snapshot, forgotten: Mapping[str, str]
) -> tuple[dict[str, str], list[Finding]]:
    """Read all receipts of generations, and find those whose predecessor is gone.

    Returns:
        The hash of each missing predecessor, by the receipt's path; and other chain problems.
    """
    lost: dict[str, str] = {}
    broken: list[Finding] = []
    previous: str | None = None
    for generation in snapshot.generations:
        before: Receipt | None = None
        for name in generation.receipt_names():
            where = generation.receipt_where(name)
            try:
                receipt = generation.read_receipt(name)
            except ReceiptError as error:
                broken.append(unreadable(error, where))
                continue
            found = check_link(receipt, before, previous, where, forgotten)
            # If one between two others was replaced, it's unknown which of them is genuine.
            is_gone = before is None or receipt.first_batch > before.last_batch + 1
            if found and is_gone and receipt.previous is not None:
                lost[where] = receipt.previous
            else:
                broken += found
            before, previous = receipt, receipt.sha256
    return lost, broken


class _Look:
    """A single check of an archive."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._state = SealedState(snapshot, journal)
        self._tips: dict[str, Tip] = {}
        self._documents: dict[str, str] = {}
        self._receipts: list[Receipt] = []
        self._drained: list[tuple[str, Mapping[Partition, OffsetRange] | None]] = []
        self._fresh: set[str] = set()

    def look(self, windows: bool) -> SealedState:
        """Run the check and return the result."""
        state, journal = self._state, self._journal
        state.findings += [
            Finding(Reason.JOURNAL_DAMAGED, where, what) for where, what in journal.problems
        ]
        alone = journal.noted.generations ^ set(journal.noted.tips)
        if alone:
            detail = f"names only the document of {min(alone)}, or only its receipts"
            self._find(Reason.JOURNAL_DAMAGED, "journal", detail)
        forgotten = sorted(journal.noted.forgotten)
        if forgotten:
            more = f" and {len(forgotten) - 3:,} more" if len(forgotten) > 3 else ""
            detail = f"the journal was started anew without {', '.join(forgotten[:3])}{more}"
            state.warnings.append(Finding(Reason.RECEIPT_FORGOTTEN, "journal", detail))
        newest = self._look_at_generations()
        held = self._look_at_windows() if windows else []
        self._look_at_identity([*newest, *held])
        if windows:
            self._look_at_erasures(held)
            state.windows = held
            state.claims = claims_of(newest, held)
            state.findings += find_overlaps(state.claims)
        self._look_for_holes(held, windows)
        state.known = max((receipt.journal for receipt in self._receipts), default=0)
        cut = judge_known(journal.newest, state.known)
        if cut and not journal.problems:
            state.findings.append(Finding(Reason.JOURNAL_DAMAGED, "journal", cut))
        state.there = Noted(self._tips, self._documents)
        return state

    def _look_at_generations(self) -> list[Receipt]:
        """Return the newest receipt of each generation."""
        noted = self._journal.noted.tips
        there = {generation.name: generation for generation in self._snapshot.generations}
        newest = []
        left, rechecked = self._names_left_out()
        index = self._snapshot.skipped.index if self._snapshot.skipped else None
        if index is not None and index.generations:
            self._drained.append((index.generations[-1].name, index.drained))
        for name in sorted({*there, *noted} - left | rechecked):
            generation = there.get(name) or SnapshotGeneration(
                self._snapshot.root, int(name.rpartition("/")[2])
            )
            receipt = self._look_at_receipts(generation, noted.get(name))
            if receipt is not None:
                self._look_at_generation(generation, receipt)
                self._state.last = receipt
            if name in rechecked:
                continue
            if receipt is not None:
                self._state.newest[name] = receipt
                newest.append(receipt)
            if index is not None and generation.number <= index.last:
                # The index says where they all end; there were no holes when it was written.
                continue
            if receipt is not None:
                self._drained.append((name, drained_of(receipt)))
            else:
                starts = self._starts(generation, noted.get(name))
                self._drained.append((name, starts))
                self._fresh |= {name} if starts is not None else set()
        return newest

    def _names_left_out(self) -> tuple[set[str], set[str]]:
        """Return the generations that are left out, and those of them that are looked at in turn.

        What is looked at in turn is only compared with the journal.
        """
        found = self._snapshot.skipped
        if found is None:
            return set(), set()
        rows = found.index.generations
        left = {row.name for row in rows if row.generation in found.generations}
        return left, {row.name for row in rows if row.generation in found.rechecked}

    def _starts(
        self, generation: SnapshotGeneration, noted: Tip | None
    ) -> dict[Partition, OffsetRange] | None:
        """Return the start of a generation that has drained nothing yet; None for others."""
        if noted is not None or generation.receipt_names():
            return None
        try:
            topic_ids = self._snapshot.topic_ids(generation)
            starts = generation.starting_offsets
        except ArchiveError:
            damage = unreadable_document(generation)
            self._state.findings += [damage] if damage is not None else []
            return None
        return {
            (tp, topic_ids.get(tp.topic, "")): OffsetRange(start, start)
            for tp, start in starts.items()
        }

    def _look_for_holes(self, held: Iterable[Receipt], windows: bool) -> None:
        """Compare where generations start with what is archived.

        Finds offsets between two generations that are in no segment and weren't accepted, and
        offsets that a generation would archive again.
        """
        self._state.findings += find_early(self._drained, self._fresh)
        accounted = accepted_holes(self._journal.noted)
        looked_at = {name for name, _ in self._drained}
        if not windows:
            looked_at -= self._state.newest.keys()
            if not any(hole.owner in looked_at for hole in find_holes(self._drained, accounted)):
                return
            # Unreadable ones get their own finding when windows are checked.
            held = self._snapshot.readable_fold.receipts
        for key, ranges in held_by(held).items():
            accounted[key] = merge([*accounted.get(key, []), *ranges])
        self._state.holes = [
            hole for hole in find_holes(self._drained, accounted) if hole.owner in looked_at
        ]
        self._state.findings += [hole.finding() for hole in self._state.holes]

    def _look_at_receipts(self, generation: Generation, noted: Tip | None) -> Receipt | None:
        """Return the newest receipt if the generation's receipts are valid."""
        names, forgotten = generation.receipt_names(), self._journal.noted.forgotten
        name = noted.name if noted else names[-1] if names else ""
        receipt, seen = None, None
        if name in names:
            receipt = self._read(generation, name)
            seen = receipt.sha256 if receipt else UNREADABLE
        before = sum(other <= name for other in names)
        verdict = judge_tip(noted, names, seen)
        where = generation.receipt_where(name)
        if verdict == Verdict.MISSING and seen is None:
            self._find(Reason.RECEIPT_MISSING, where, "was sealed, but is missing")
        elif verdict in _REASONS and noted:
            folder = generation.receipt_where("").rstrip("/")
            if seen == noted.sha256:
                where, detail = folder, f"{before:,} receipts up to {name}; expected "
                self._find(_REASONS[verdict], where, f"{detail}{noted.receipts:,}")
            else:
                detail = f"has SHA-256 {str(seen)[:12]}, but was sealed with {noted.sha256[:12]}"
                self._find(Reason.RECEIPT_CHANGED, where, detail)
        if receipt is None or verdict not in (Verdict.SOUND, Verdict.NEW):
            return None
        for later in names[before:]:
            where = generation.receipt_where(later)
            following = self._read(generation, later, receipt)
            if following is None:
                return None
            broken = check_link(following, receipt, receipt.sha256, where, forgotten)
            if broken:
                self._state.findings += broken
                return None
            receipt = following
        self._tips[generation.name] = Tip(receipt.name, len(names), receipt.sha256)
        return receipt

    def _look_at_generation(self, generation: SnapshotGeneration, receipt: Receipt) -> None:
        """Compare generation.json with the journal, and with the newest receipt."""
        path = f"{generation.name}/generation.json"
        damage = unreadable_document(generation)
        if damage is not None:
            self._state.findings.append(damage)
            return
        document = generation.document
        if generation.damage:
            detail = _without(generation.damage, self._snapshot.root / path)
            self._find(Reason.DOCUMENT_CHANGED, path, detail)
            return
        differs = generation_differs(
            document.generation, document.known_topics, document.first_offsets(), receipt
        )
        if differs:
            self._find(Reason.DOCUMENT_CHANGED, path, differs)
            return
        self._look_at_document(path, generation_digest(document.content()))

    def _look_at_windows(self) -> list[Receipt]:
        """Return the valid receipts of the sealed windows."""
        noted = self._journal.noted.documents
        there = self._snapshot.folders
        receipts = []
        left = self._snapshot.skipped.windows if self._snapshot.skipped else frozenset()
        for key in sorted(self._journal.noted.windows.union(there) - left):
            window, folder = there.get(key), f"windows/{key}"
            path = f"{folder}/receipt.json"
            receipt, seen = None, None
            if window is not None and window.is_sealed:
                receipt = self._receipt_of(window)
                seen = receipt.sha256 if receipt else UNREADABLE
            verdict = judge_document(noted.get(path), seen)
            if verdict in _REASONS:
                detail = "was sealed, but is missing"
                if verdict == Verdict.CHANGED:
                    detail = f"has SHA-256 {str(seen)[:12]}, but was sealed with {noted[path][:12]}"
                self._find(_REASONS[verdict], path, detail)
                continue
            if receipt is not None or noted.get(f"{folder}/plan.json", REMOVED) != REMOVED:
                plan = _plan_digest(window) if window is not None else None
                if wrong := _wrong_plan(window, plan, receipt):
                    self._find(Reason.DOCUMENT_CHANGED, f"{folder}/plan.json", wrong)
                else:
                    self._look_at_document(f"{folder}/plan.json", plan)
            if receipt is not None:
                if path in noted and f"{folder}/plan.json" not in noted:
                    self._find(Reason.JOURNAL_DAMAGED, "journal", f"names {path} without its plan")
                self._documents[path] = receipt.sha256
                receipts.append(receipt)
        return receipts

    def _look_at_erasures(self, held: Iterable[Receipt]) -> None:
        """Compare the requests to erase records, and that they were lifted, with the journal.

        Args:
            held: The valid receipts of the sealed windows.
        """
        root = self._snapshot.root
        noted = {
            path for path in self._journal.noted.documents if path.startswith(f"{erasures.FOLDER}/")
        }
        carrying = (self._snapshot.folders[receipt.window] for receipt in held)
        planned = {
            erasures.path_of(row["erasure"]): f"{window.name}/plan.json"
            for window in carrying
            # A plan that can't be read has a finding of its own.
            if window.has_plan
            for row in window.plan.erasures or ()
        }
        if not noted and not planned and self._journal.newest:
            # Who accepts an erasure notes it: most archives have none, and a listing takes time.
            return
        names = list_folder(root / erasures.FOLDER)
        # One that is noted, and lost, has a finding of its own.
        lost = {path for path in noted if self._journal.noted.documents[path] != REMOVED}
        known = {*erasures.noted_paths(names), *lost, *self._journal.noted.forgotten}
        for path in sorted(planned.keys() - known):
            self._find(Reason.DOCUMENT_CHANGED, planned[path], f"names {path}, which isn't there")
        self._state.warnings += erasures.changed_done(root, names)
        paths = sorted(noted.union(erasures.noted_paths(names)))
        version = self._snapshot.document.format_version
        if version < ERASED_VERSION and any(not path.endswith(".lifted.json") for path in paths):
            # An older release would drain the erased records again.
            detail = f"has format_version {version}, but there are erasures"
            self._find(Reason.DOCUMENT_CHANGED, "archive.json", detail)
        for path in paths:
            seen = None
            with suppress(FileNotFoundError, NotADirectoryError):
                try:
                    content = read_bytes(root / path)
                    erasures.parse_noted(root, path, content)
                    seen = digest_of(path, content)
                except ArchiveError as error:
                    self._find(Reason.DOCUMENT_CHANGED, path, _without(error, root / path))
                    continue
            self._look_at_document(path, seen)

    def _look_at_identity(self, receipts: list[Receipt]) -> None:
        """Compare the identity in archive.json with the journal, and with the receipts."""
        document = self._snapshot.document
        if self._snapshot.damage:
            root = self._snapshot.root
            detail = _without(self._snapshot.damage, root / "archive.json")
            self._find(Reason.DOCUMENT_CHANGED, "archive.json", detail)
        left = self._snapshot.skipped
        known = left.index.ids if left is not None else {}
        self._state.topic_ids = ids_by_topic(self._topic_ids(), known)
        own = document.pipeline, document.cluster_id
        others = {(receipt.pipeline, receipt.cluster_id) for receipt in receipts} - {own}
        if others:
            pipeline, cluster_id = min(others)
            detail = (
                f"says pipeline {own[0]!r} and cluster {own[1]!r}, but receipts were sealed for "
                f"pipeline {pipeline!r} and cluster {cluster_id!r}"
            )
            self._find(Reason.DOCUMENT_CHANGED, "archive.json", detail)
            return
        differs = settings_differ(
            self._snapshot.root, document, self._journal.noted.documents, self._state.topic_ids
        )
        if differs:
            self._find(Reason.DOCUMENT_CHANGED, "archive.json", differs)
        elif receipts:
            self._look_at_document("archive.json", identity_digest(document.content()))
            self._documents |= note_of_settings(*document.settings)

    def _topic_ids(self) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
        """Yield the topic ids in newest receipt and document of each generation after the index."""
        left = self._snapshot.skipped
        last = left.index.last if left is not None else 0
        for generation in self._snapshot.generations:
            if generation.number <= last:
                continue
            receipt = self._state.newest.get(generation.name)
            try:
                opened = generation.document.topics
            except ArchiveError:
                # Gets its own finding.
                opened = {}
            yield receipt.topics if receipt else {}, opened

    def _look_at_document(self, path: str, seen: str | None) -> None:
        noted = self._journal.noted.documents.get(path)
        verdict = judge_document(noted, seen)
        if verdict == Verdict.MISSING:
            self._find(Reason.DOCUMENT_CHANGED, path, "is missing")
        elif verdict == Verdict.CHANGED:
            detail = f"has digest {str(seen)[:12]}, but {str(noted)[:12]} when it was sealed"
            self._find(Reason.DOCUMENT_CHANGED, path, detail)
        elif seen is not None:
            self._documents[path] = seen

    def _read(
        self, generation: Generation, name: str, before: Receipt | None = None
    ) -> Receipt | None:
        """Read a generation's receipt; None, with a finding, if it is damaged.

        Args:
            name: The receipt.
            before: The receipt that it should follow; None if that isn't known.

        Raises:
            FileNotFoundError: When it doesn't exist.
        """
        try:
            receipt = generation.read_receipt(name)
        except ReceiptError as error:
            self._state.findings.append(unreadable(error, generation.receipt_where(name)))
            return None
        self._receipts.append(receipt)
        self._state.findings += check_figures(receipt, before, generation.receipt_where(name))
        return receipt

    def _receipt_of(self, window: SnapshotWindow) -> Receipt | None:
        """Return a sealed window's receipt; None, with a finding, if it is damaged."""
        try:
            receipt = window.receipt
        except ReceiptError as error:
            self._state.findings.append(unreadable(error, f"{window.name}/receipt.json"))
            return None
        self._receipts.append(receipt)
        self._state.findings += check_figures(receipt, None, receipt.where)
        return receipt

    def _find(self, reason: Reason, where: str, detail: str) -> None:
        self._state.findings.append(Finding(reason, where, detail))


def settings_differ(
    root: UPath,
    document: ArchiveDocument,
    noted: Collection[str],
    ids: Mapping[str, Collection[str]],
) -> str:
    """Return the contradiction between archive.json and the sealed segments; empty for none.

    In a copy on a disk, where nothing can be locked, it may say so, as `retain` asks for; the
    archive's own copy has the locks of the original.

    Args:
        document: The content of archive.json.
        noted: Documents noted in the journal.
        ids: The result of `ids_by_topic`.
    """
    level, retention, locks = document.settings
    differs = identity_differs((level, retention, locks), document.topics, noted, ids)
    if differs and locks is None and not can_lock(root):
        before = locks_of_copy(root)
        return identity_differs((level, retention, before), document.topics, noted, ids)
    return differs


def note_of_segment(snapshot: Snapshot, generation: SnapshotGeneration, receipt: Receipt) -> Noted:
    """Return the journal note for a generation whose newest receipt was just written."""
    # The snapshot's generation was listed before.
    there = Generation(generation.root, generation.number).receipt_names()
    names = [name for name in there if name <= receipt.name]
    return Noted(
        {generation.name: Tip(receipt.name, len(names), receipt.sha256)},
        {
            **_note_of_identity(snapshot),
            f"{generation.name}/generation.json": generation_digest(generation.document.content()),
        },
    )


def note_of_window(snapshot: Snapshot, window: Window, receipt: Receipt) -> Noted:
    """Return the journal note for a window whose receipt was just written."""
    documents = {
        **_note_of_identity(snapshot),
        f"{window.name}/receipt.json": receipt.sha256,
        f"{window.name}/plan.json": plan_digest(window.read_plan().content()),
    }
    return Noted(documents=documents)


def note_of_erasures(root: UPath) -> Noted:
    """Return the journal note for the requests to erase records, and that they were lifted."""
    paths = erasures.noted_paths(list_folder(root / erasures.FOLDER))
    return Noted(documents={path: digest_of(path, read_bytes(root / path)) for path in paths})


def _note_of_identity(snapshot: Snapshot) -> dict[str, str]:
    document = snapshot.document
    return {
        "archive.json": identity_digest(document.content()),
        **note_of_settings(*document.settings),
    }


def unreadable_document(generation: SnapshotGeneration) -> Finding | None:
    """Return the finding for a generation.json that can't be read; None if it can be."""
    path = f"{generation.name}/generation.json"
    try:
        generation.document  # noqa: B018 - read now
    except ArchiveError as error:
        detail = _without(error, generation.root / path)
        return Finding(Reason.DOCUMENT_CHANGED, path, detail)
    return None


def _without(error: ArchiveError | str, path: UPath) -> str:
    """Return an error's text without the path that it begins with."""
    return str(error).removeprefix(f"{path} ")


def _wrong_plan(window: SnapshotWindow | None, digest: str | None, receipt: Receipt | None) -> str:
    """Return the damage to a sealed window's plan; empty if it agrees with its receipt.

    Args:
        receipt: The window's receipt; None if it can't be read.
    """
    if window is None or digest is None:
        return "is missing"
    if digest == UNREADABLE:
        return "isn't JSON"
    try:
        # As readers do: a copy doesn't stand in for it here.
        plan = window.parse_plan(window.plan_bytes)
        return contradicts_plan(receipt, plan, window.kind) if receipt is not None else ""
    except ArchiveError as error:
        return _without(error, window.folder / "plan.json")


def _plan_digest(window: SnapshotWindow) -> str | None:
    if window.plan_bytes is None:
        return None
    try:
        return digest_of("plan.json", window.plan_bytes)
    except ValueError:
        return UNREADABLE
