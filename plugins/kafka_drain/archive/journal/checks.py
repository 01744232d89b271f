"""An archive against its journal: is everything there that was sealed, as it was, and once?

Reads, of each generation, its document and the newest receipt, and of each window both of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import GenerationDocument
from kafka_drain.archive.generation import Generation
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
    judge_document,
    judge_known,
    judge_tip,
)
from kafka_drain.archive.journal.files import read_journal, start_journal_anew
from kafka_drain.archive.receipt_chain import check_link
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.segment_overlaps import (
    Claim,
    Hole,
    Partition,
    claims_of,
    drained_of,
    find_holes,
    find_overlaps,
    held_by_windows,
)
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import OffsetRange, merge

__all__ = [
    "SealedState",
    "check_sealed_state",
    "generation_differs",
    "note_of_holes",
    "note_of_segment",
    "note_of_window",
    "recreate_journal",
    "refuse_unsound",
]

# Something is sealed, and a receipt removed on purpose, while it is looked at.
ATTEMPTS = 5

#: So the journal names offsets that nobody holds, before the topic's id.
_HOLES = "holes/"

_REASONS = {Verdict.MISSING: Reason.RECEIPT_MISSING, Verdict.CHANGED: Reason.RECEIPT_CHANGED}


@dataclass
class SealedState:
    """What the journal and the archive say together.

    Attributes:
        snapshot: The archive as it was looked at.
        journal: The journal.
        findings: What is missing, changed, or there twice.
        warnings: What was given up for good.
        there: All that is sealed.
        known: How many entries a receipt, at least, was sealed after.
        newest: The newest receipt of each generation that is in order, by its folder.
        windows: The receipts of sealed windows that are in order.
        claims: Which offsets the segments hold.
        holes: Offsets between two generations that no segment holds.
    """

    snapshot: Snapshot
    journal: Journal
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    there: Noted = field(default_factory=Noted)
    known: int = 0
    newest: dict[str, Receipt] = field(default_factory=dict)
    windows: list[Receipt] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)


def check_sealed_state(
    snapshot: Snapshot, *, windows: bool = True, chain_is_read: bool = False
) -> SealedState:
    """Compare an archive with its journal; changes nothing.

    Args:
        snapshot: The archive. Where something looks wrong, a later one is looked at: what is noted
            meanwhile, and removed on purpose, mustn't look like damage.
        windows: Whether windows are looked at, overlaps looked for, and holes between any two
            generations: else only before one that has drained nothing yet.
        chain_is_read: Whether the caller checks every receipt of each generation itself.
    """
    state = _Look(snapshot, snapshot.journal, chain_is_read).look(windows)
    newest = None
    for _ in range(ATTEMPTS):
        if not state.findings or newest == read_journal(snapshot.root).newest:
            break
        snapshot = snapshot.again()
        newest = snapshot.journal.newest
        state = _Look(snapshot, snapshot.journal, chain_is_read).look(windows)
    return state


def refuse_unsound(
    snapshot: Snapshot, *, windows: bool = True, filling: bool = False
) -> SealedState:
    """Refuse to decide by an archive of which something sealed is missing or changed.

    Args:
        snapshot: The archive.
        windows: Whether windows are looked at.
        filling: Whether offsets that no segment holds are no reason: a window is to hold some.

    Raises:
        ManifestInvalidError: Names it; nothing was changed.
    """
    state = check_sealed_state(snapshot, windows=windows)
    found = [f for f in state.findings if not (filling and f.reason == Reason.SEGMENT_HOLE)]
    if found:
        shown = "; ".join(map(str, found[:3]))
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise ManifestInvalidError(
            f"{snapshot.root}: {shown}{more}. That means: {found[0].reason.meaning}. "
            f"What to do: {found[0].reason.remedy}. Nothing was changed"
        )
    return state


def note_of_holes(holes: Iterable[Hole]) -> Noted:
    """Return what is noted of offsets that nobody holds, and whose loss is explained."""
    return Noted(
        documents={
            f"{_HOLES}{hole.topic_id}/{range_name(hole.tp, hole.range)}": "accepted"
            for hole in holes
        }
    )


def _accepted_holes(noted: Noted) -> dict[Partition, list[OffsetRange]]:
    found: dict[Partition, list[OffsetRange]] = {}
    for path in noted.documents:
        if path.startswith(_HOLES):
            topic_id, _, name = path.removeprefix(_HOLES).partition("/")
            for tp, ranges in parse_ranges("journal", [name], "").items():
                found.setdefault((tp, topic_id), []).extend(ranges)
    return found


def recreate_journal(archive: Archive, say: Callable[[str], None], *, dry_run: bool) -> None:
    """Let what is there be what was sealed: what is missing, and has no copy, is forgotten.

    The caller holds the leases of the archive, of its maintenance and of its windows.

    Args:
        archive: The archive.
        say: Takes what is forgotten, and the new entry's number.
        dry_run: Whether nothing is changed.

    Raises:
        ManifestInvalidError: When what is there contradicts itself; nothing was changed.
    """
    state = check_sealed_state(archive.snapshot())
    for finding in state.findings:
        if finding.reason != Reason.SEGMENT_HOLE:
            say(f"journal {archive.root}: forgets {finding}")
    look = _Look(state.snapshot, Journal(), chain_is_read=False).look(windows=True)
    # What forgotten segments held is missed from then on, and drained again.
    kept = (Reason.JOURNAL_DAMAGED, Reason.SEGMENT_HOLE)
    left = [found for found in look.findings if found.reason not in kept]
    before = state.journal.noted
    lost, broken = _lost_links(state.snapshot, before.forgotten)
    left += [found for found in broken if found not in left]
    if left:
        raise ManifestInvalidError(
            f"{archive.root}: {'; '.join(map(str, left[:3]))}; a journal of that would be no "
            f"proof. What to do: {left[0].reason.remedy}. Nothing was changed"
        )
    for where in lost:
        say(f"journal {archive.root}: forgets what {where} was sealed after")
    if not dry_run:
        forgotten = {**before.forgotten, **_given_up(before, look.there), **lost}
        holes = {p: value for p, value in before.documents.items() if p.startswith(_HOLES)}
        noted = replace(
            look.there, documents={**holes, **look.there.documents}, forgotten=forgotten
        )
        number = start_journal_anew(archive.root, noted, look.known)
        say(f"journal {archive.root}: entry {number:,} holds what is there now")


def _given_up(noted: Noted, there: Noted) -> dict[str, str]:
    """Return what was noted and isn't there as it was: its hash by its path."""
    lost = {}
    for folder, tip in noted.tips.items():
        left = there.tips.get(folder)
        if left is None or left.name < tip.name or (left.name == tip.name and left != tip):
            lost[f"{folder}/receipts/{tip.name}"] = tip.sha256
    for path, value in noted.documents.items():
        if value not in (REMOVED, there.documents.get(path)) and not path.startswith(_HOLES):
            lost[path] = value
    return lost


def _lost_links(
    snapshot: Snapshot, forgotten: Mapping[str, str]
) -> tuple[dict[str, str], list[Finding]]:
    """Read all receipts of generations; find those whose predecessor is gone.

    Returns:
        The hash of each predecessor, by the receipt's path; and what else is wrong with the chain.
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
                broken.append(Finding(Reason.RECEIPT_CORRUPT, where, str(error)))
                continue
            found = check_link(receipt, before, previous, where, forgotten)
            # One that was replaced between two others: which of them is genuine, nobody can say.
            is_gone = before is None or receipt.first_batch > before.last_batch + 1
            if found and is_gone and receipt.previous is not None:
                lost[where] = receipt.previous
            else:
                broken += found
            before, previous = receipt, receipt.sha256
    return lost, broken


class _Look:
    """One look at an archive."""

    def __init__(self, snapshot: Snapshot, journal: Journal, chain_is_read: bool) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._chain_is_read = chain_is_read
        self._state = SealedState(snapshot, journal)
        self._tips: dict[str, Tip] = {}
        self._documents: dict[str, str] = {}
        self._receipts: list[Receipt] = []
        self._drained: list[tuple[str, Mapping[Partition, OffsetRange] | None]] = []

    def look(self, windows: bool) -> SealedState:
        """Return what was found."""
        state, journal = self._state, self._journal
        state.findings += [
            Finding(Reason.JOURNAL_DAMAGED, where, what) for where, what in journal.problems
        ]
        forgotten = sorted(journal.noted.forgotten)
        if forgotten:
            more = f" and {len(forgotten) - 3:,} more" if len(forgotten) > 3 else ""
            detail = f"the journal was begun anew without {', '.join(forgotten[:3])}{more}"
            state.warnings.append(Finding(Reason.RECEIPT_FORGOTTEN, "journal", detail))
        newest = self._look_at_generations()
        held = self._look_at_windows() if windows else []
        self._look_at_identity([*newest, *held])
        if windows:
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
        for name in sorted({*there, *noted}):
            generation = there.get(name) or SnapshotGeneration(
                self._snapshot.root, int(name.rpartition("/")[2])
            )
            receipt = self._look_at_receipts(generation, noted.get(name))
            if receipt is not None:
                self._look_at_generation(generation, receipt)
                self._state.newest[name] = receipt
                newest.append(receipt)
                self._drained.append((name, drained_of(receipt)))
            else:
                self._drained.append((name, self._starts(generation, noted.get(name))))
        return newest

    def _starts(
        self, generation: SnapshotGeneration, noted: Tip | None
    ) -> dict[Partition, OffsetRange] | None:
        """Return where a generation starts that has drained nothing yet; None for another one."""
        if noted is not None or generation.receipt_names():
            return None
        try:
            topic_ids = self._snapshot.topic_ids(generation)
            starts = generation.starting_offsets
        except ArchiveError:
            # A finding of its own, where it is drained to.
            return None
        return {
            (tp, topic_ids.get(tp.topic, "")): OffsetRange(start, start)
            for tp, start in starts.items()
        }

    def _look_for_holes(self, held: Iterable[Receipt], windows: bool) -> None:
        """Find offsets between two generations that no segment holds, and nobody has accepted."""
        accounted = _accepted_holes(self._journal.noted)
        looked_at = {name for name, _ in self._drained}
        if not windows:
            looked_at -= self._state.newest.keys()
            if not any(hole.owner in looked_at for hole in find_holes(self._drained, accounted)):
                return
            # One that can't be read is a finding of its own, where windows are looked at.
            held = [window.receipt for window in self._snapshot.readable]
        for key, ranges in held_by_windows(held).items():
            accounted[key] = merge([*accounted.get(key, []), *ranges])
        self._state.holes = [
            hole for hole in find_holes(self._drained, accounted) if hole.owner in looked_at
        ]
        self._state.findings += [hole.finding() for hole in self._state.holes]

    def _look_at_receipts(self, generation: Generation, noted: Tip | None) -> Receipt | None:
        """Return the newest receipt, where it is in order."""
        names, forgotten = generation.receipt_names(), self._journal.noted.forgotten
        name = noted.name if noted else names[-1] if names else ""
        receipt, seen = None, None
        if name in names:
            receipt = self._read(generation, name)
            seen = receipt.sha256 if receipt else UNREADABLE
        before = sum(other <= name for other in names)
        if noted and self._chain_is_read and seen is not None:
            noted = replace(noted, receipts=before)
        verdict = judge_tip(noted, names, seen)
        where = generation.receipt_where(name)
        if verdict == Verdict.MISSING and seen is None:
            self._find(Reason.RECEIPT_MISSING, where, "was sealed, and isn't there")
        elif verdict in _REASONS and noted:
            folder = generation.receipt_where("").rstrip("/")
            if seen == noted.sha256:
                where, detail = folder, f"{before:,} receipts up to {name}; sealed: "
                self._find(_REASONS[verdict], where, f"{detail}{noted.receipts:,}")
            else:
                detail = f"has SHA-256 {str(seen)[:12]}, sealed was {noted.sha256[:12]}"
                self._find(Reason.RECEIPT_CHANGED, where, detail)
        if receipt is None or verdict not in (Verdict.SOUND, Verdict.NEW):
            return None
        for later in names[before:]:
            where = generation.receipt_where(later)
            following = self._read(generation, later)
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
        """Compare generation.json with what was noted, and with the newest receipt."""
        path = f"{generation.name}/generation.json"
        try:
            document = generation.document
        except ArchiveError as error:
            self._find(Reason.DOCUMENT_CHANGED, path, str(error))
            return
        differs = generation_differs(document, receipt)
        if differs:
            self._find(Reason.DOCUMENT_CHANGED, path, differs)
            return
        self._look_at_document(path, generation_digest(document.content()))

    def _look_at_windows(self) -> list[Receipt]:
        """Return the receipts of the sealed windows, where they are in order."""
        noted = self._journal.noted.documents
        folders = {"/".join(path.split("/")[:2]) for path in noted if path.startswith("windows/")}
        there = {window.name: window for window in self._snapshot.folders.values()}
        receipts = []
        for folder in sorted({*there, *folders}):
            window = there.get(folder)
            path = f"{folder}/receipt.json"
            receipt, seen = None, None
            if window is not None and window.is_sealed:
                receipt = self._receipt_of(window)
                seen = receipt.sha256 if receipt else UNREADABLE
            verdict = judge_document(noted.get(path), seen)
            if verdict in _REASONS:
                detail = "was sealed, and isn't there"
                if verdict == Verdict.CHANGED:
                    detail = f"has SHA-256 {str(seen)[:12]}, sealed was {noted[path][:12]}"
                self._find(_REASONS[verdict], path, detail)
                continue
            if receipt is not None or noted.get(f"{folder}/plan.json", REMOVED) != REMOVED:
                plan = _plan_digest(window) if window is not None else None
                if plan in (None, UNREADABLE):
                    detail = "isn't JSON" if plan else "isn't there"
                    self._find(Reason.DOCUMENT_CHANGED, f"{folder}/plan.json", detail)
                else:
                    self._look_at_document(f"{folder}/plan.json", plan)
            if receipt is not None:
                self._documents[path] = receipt.sha256
                receipts.append(receipt)
        return receipts

    def _look_at_identity(self, receipts: list[Receipt]) -> None:
        """Compare whose archive.json says it is with what was noted, and with the receipts."""
        document = self._snapshot.document
        own = document.pipeline, document.cluster_id
        others = {(receipt.pipeline, receipt.cluster_id) for receipt in receipts} - {own}
        if others:
            pipeline, cluster_id = min(others)
            detail = (
                f"says pipeline {own[0]!r} and cluster {own[1]!r}; receipts were sealed of "
                f"pipeline {pipeline!r} and cluster {cluster_id!r}"
            )
            self._find(Reason.DOCUMENT_CHANGED, "archive.json", detail)
        elif receipts:
            self._look_at_document("archive.json", identity_digest(document.content()))

    def _look_at_document(self, path: str, seen: str | None) -> None:
        noted = self._journal.noted.documents.get(path)
        verdict = judge_document(noted, seen)
        if verdict == Verdict.MISSING:
            self._find(Reason.DOCUMENT_CHANGED, path, "isn't there")
        elif verdict == Verdict.CHANGED:
            detail = f"has digest {str(seen)[:12]}, {str(noted)[:12]} when it was sealed"
            self._find(Reason.DOCUMENT_CHANGED, path, detail)
        elif seen is not None:
            self._documents[path] = seen

    def _read(self, generation: Generation, name: str) -> Receipt | None:
        """Read a generation's receipt; None, and a finding, where it is damaged.

        Raises:
            FileNotFoundError: When there is none.
        """
        try:
            receipt = generation.read_receipt(name)
        except ReceiptError as error:
            self._find(Reason.RECEIPT_CORRUPT, generation.receipt_where(name), str(error))
            return None
        self._receipts.append(receipt)
        return receipt

    def _receipt_of(self, window: SnapshotWindow) -> Receipt | None:
        """Return a sealed window's receipt; None, and a finding, where it is damaged."""
        try:
            receipt = window.receipt
        except ReceiptError as error:
            self._find(Reason.RECEIPT_CORRUPT, f"{window.name}/receipt.json", str(error))
            return None
        self._receipts.append(receipt)
        return receipt

    def _find(self, reason: Reason, where: str, detail: str) -> None:
        self._state.findings.append(Finding(reason, where, detail))


def generation_differs(document: GenerationDocument, receipt: Receipt) -> str:
    """Say in what `generation.json` contradicts the generation's newest receipt; empty if nowhere.

    An archive that no journal was kept of yet has only this.
    """
    number = document.generation
    if number not in (None, receipt.generation):
        return f"says it is generation {number!r}, its receipts are of {receipt.generation}"
    for topic, topic_id in receipt.topics.items():
        said = document.topics.get(topic, topic_id)
        if said != topic_id:
            return f"says topic {topic} has id {said!r}, its receipts {topic_id!r}"
    starts = document.first_offsets()
    for part in receipt.partitions:
        start = starts.get(part.tp, part.start_so_far)
        if start != part.start_so_far:
            return f"starts {part.tp} at {start:,}, its receipts at {part.start_so_far:,}"
    return ""


def note_of_segment(snapshot: Snapshot, generation: SnapshotGeneration, receipt: Receipt) -> Noted:
    """Return what is noted of a generation whose newest receipt was just written."""
    names = [name for name in generation.receipt_names() if name <= receipt.name]
    return Noted(
        {generation.name: Tip(receipt.name, len(names), receipt.sha256)},
        {
            "archive.json": identity_digest(snapshot.document.content()),
            f"{generation.name}/generation.json": generation_digest(generation.document.content()),
        },
    )


def note_of_window(snapshot: Snapshot, window: Window, receipt: Receipt) -> Noted:
    """Return what is noted of a window whose receipt was just written."""
    documents = {
        "archive.json": identity_digest(snapshot.document.content()),
        f"{window.name}/receipt.json": receipt.sha256,
        f"{window.name}/plan.json": plan_digest(window.read_plan().content()),
    }
    return Noted(documents=documents)


def _plan_digest(window: SnapshotWindow) -> str | None:
    if window.plan_bytes is None:
        return None
    try:
        return digest_of("plan.json", window.plan_bytes)
    except ValueError:
        return UNREADABLE
