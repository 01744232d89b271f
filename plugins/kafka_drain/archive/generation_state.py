"""Manifest, checkpoint and receipts of a generation, read together and compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kafka_drain.archive.generation import Generation, LogNames
from kafka_drain.archive.receipt_chain import unreadable
from kafka_drain.archive.receipts import FileSet, Receipt, ReceiptError, SealedFile
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.findings import Finding, Reason, without_echoes
from kafka_drain.metadata_log import checkpoint as checkpoint_files
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.metadata_log.manifest import KnownDamage, Manifest, SinkFile
from kafka_drain.offsets import TopicPartition

# A concurrent drain adds files and removes old ones.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class GenerationState:
    """The state of a generation according to its own files.

    Attributes:
        manifest: The sink's manifest.
        checkpoint: Spark's checkpoint.
        receipt: The newest receipt; None if nothing is sealed.
        sealed: The manifest's files of sealed batches.
        new: The manifest's files of later batches.
        findings: Problems in these files and contradictions between them.
    """

    generation: SnapshotGeneration
    manifest: Manifest
    checkpoint: Checkpoint
    receipt: Receipt | None
    sealed: list[SinkFile]
    new: list[SinkFile]
    findings: list[Finding]

    @property
    def last_sealed(self) -> int:
        """Highest batch id that is sealed; -1 for none."""
        return self.receipt.last_batch if self.receipt else -1

    @property
    def last_committed(self) -> int:
        """Highest batch id committed according to manifest or checkpoint; -1 for none."""
        known = (self.manifest.last_batch, self.checkpoint.last_commit, self.last_sealed)
        return max(batch for batch in known if batch is not None)

    @property
    def sealed_ends(self) -> Mapping[TopicPartition, int]:
        """End offsets of the sealed batches; the generation's starting offsets without any."""
        return self.receipt.ends if self.receipt else self.generation.starting_offsets

    @property
    def cursor(self) -> Mapping[TopicPartition, int]:
        """Starting offsets of the next batch."""
        ends = self.checkpoint.ends
        if self.last_committed <= self.last_sealed or not ends.get(self.last_committed):
            return self.sealed_ends
        found = dict(self.sealed_ends)
        # A batch doesn't name a topic that was deleted just before; an earlier one may.
        for batch in range(self.last_sealed + 1, self.last_committed + 1):
            found |= ends.get(batch, {})
        return found


def read_state(snapshot: Snapshot, generation: SnapshotGeneration) -> GenerationState:
    """Read and compare manifest, checkpoint and newest receipt.

    Reads again if a drain has changed them in the meantime: a compaction of the manifest, or a
    batch that was committed between two reads, must not look like damage.

    Args:
        snapshot: The archive.
        generation: One of its generations.
    """
    for _ in range(ATTEMPTS):
        listed = generation.log_names()
        try:
            state = _read_once(snapshot, generation, listed)
        except FileNotFoundError:
            continue
        if generation.log_names().is_same(listed):
            break
    else:
        state = _read_once(snapshot, generation, generation.log_names())
    return state


def _read_once(
    snapshot: Snapshot, generation: SnapshotGeneration, listed: LogNames
) -> GenerationState:
    manifest, findings = generation.read_manifest(listed)
    checkpoint, found = generation.read_checkpoint(generation.starting_offsets, listed)
    findings += found
    receipt, found = _newest_receipt(generation)
    findings += found
    findings += checkpoint_files.compare_with_manifest(
        checkpoint, manifest.last_batch, f"{generation.name}/checkpoint"
    )
    last_sealed = receipt.last_batch if receipt else -1
    so_far = receipt.files_so_far if receipt else FileSet()
    sealed, new = manifest.split(last_sealed, so_far.files)
    if receipt is not None:
        findings += _compare_with_receipt(generation, manifest, checkpoint, receipt, findings)
        if _listed(generation, sealed) != so_far:
            repaired = _repaired(snapshot, generation, manifest, last_sealed)
            sealed, new = _without(manifest, repaired).split(last_sealed, so_far.files)
            if _listed(generation, sealed) != so_far:
                sealed, new, found = _compare_files(
                    snapshot, generation, manifest, receipt, findings, repaired
                )
                findings += found
    return GenerationState(
        generation, manifest, checkpoint, receipt, sealed, new, without_echoes(findings)
    )


def _listed(generation: Generation, files: Iterable[SinkFile]) -> FileSet:
    prefix = f"{generation.data_name}/"
    return FileSet().plus((prefix + file.path, file.size) for file in files)


def _repaired(
    snapshot: Snapshot, generation: Generation, manifest: Manifest, last_sealed: int
) -> frozenset[str]:
    """Return listed files, relative to the data folder, that windows replace.

    A file that was lost before its batch was sealed is in no receipt, but the manifest still lists
    it. Files of later batches are not included.
    """
    # A damaged receipt gets its own finding when the windows are checked.
    replaced = snapshot.readable_fold.replaced
    return frozenset(
        file.path
        for file in manifest.files.values()
        if f"{generation.data_name}/{file.path}" in replaced
        and (file.batch is None or file.batch <= last_sealed)
    )


def _without(manifest: Manifest, paths: Collection[str]) -> Manifest:
    files = {path: file for path, file in manifest.files.items() if path not in paths}
    return replace(manifest, files=files)


def _newest_receipt(generation: Generation) -> tuple[Receipt | None, list[Finding]]:
    """Return the newest readable receipt, and findings for unreadable ones."""
    findings: list[Finding] = []
    for name in reversed(generation.receipt_names()):
        try:
            return generation.read_receipt(name), findings
        except ReceiptError as error:
            findings.append(unreadable(error, generation.receipt_where(name)))
    return None, findings


def _readable(generation: Generation, names: Iterable[str]) -> Iterator[Receipt]:
    for name in names:
        try:
            yield generation.read_receipt(name)
        except ReceiptError:
            # Has its own finding; what it sealed is unknown.
            continue


def _compare_with_receipt(
    generation: Generation,
    manifest: Manifest,
    checkpoint: Checkpoint,
    receipt: Receipt,
    known: Iterable[Finding],
) -> list[Finding]:
    """Find a checkpoint or manifest that ends before the receipts, or differs from them."""
    reasons = {finding.reason for finding in known}
    findings = []
    folder = f"{generation.name}/checkpoint"
    sealed = f"but the receipts seal up to batch {receipt.last_batch}"
    if checkpoint.last_offsets is None:
        if Reason.CHECKPOINT_MISSING not in reasons:
            detail = f"there are no offsets, {sealed}"
            findings.append(Finding(Reason.CHECKPOINT_MISSING, folder, detail))
    elif checkpoint.last_offsets < receipt.last_batch:
        detail = f"ends with batch {checkpoint.last_offsets}, {sealed}"
        findings.append(Finding(Reason.CHECKPOINT_BEHIND, folder, detail))
    else:
        # Spark reads the newest two; validation compares the others when it reads the receipts.
        newest = _readable(generation, generation.receipt_names()[-2:])
        ends = {found.last_batch: found.ends for found in newest}
        findings += checkpoint_files.compare_with_receipts(checkpoint, ends, folder)
    folder = f"{generation.data_name}/_spark_metadata"
    if manifest.last_batch is None:
        if Reason.MANIFEST_MISSING not in reasons:
            findings.append(Finding(Reason.MANIFEST_MISSING, folder, f"no file, {sealed}"))
    elif manifest.last_batch < receipt.last_batch and Reason.MANIFEST_BEHIND not in reasons:
        detail = f"ends with batch {manifest.last_batch}, {sealed}"
        findings.append(Finding(Reason.MANIFEST_BEHIND, folder, detail))
    return findings


def _compare_files(
    snapshot: Snapshot,
    generation: Generation,
    manifest: Manifest,
    newest: Receipt,
    known: Iterable[Finding],
    repaired: Collection[str],
) -> tuple[list[SinkFile], list[SinkFile], list[Finding]]:
    """Find the differences between manifest and receipts; reads all receipts."""
    receipts = list(_readable(generation, generation.receipt_names()))
    sizes = {file.path: file.bytes for receipt in receipts for file in receipt.files}
    prefix = f"{generation.data_name}/"
    sealed, new = [], []
    findings: list[Finding] = []
    folder = f"{generation.data_name}/_spark_metadata"
    for sink_file in manifest.files.values():
        path = prefix + sink_file.path
        if path in sizes:
            sealed.append(sink_file)
            if sizes[path] != sink_file.size:
                detail = (
                    f"{path} has {sink_file.size:,} bytes, but its receipt says {sizes[path]:,}"
                )
                findings.append(
                    Finding(Reason.MANIFEST_CHANGED, f"{folder}/{sink_file.log}", detail)
                )
        elif sink_file.path in repaired:
            continue
        elif is_of_sealed_batch(sink_file, manifest.compacted, newest.last_batch):
            sealing = (
                f"the receipts of batches up to {manifest.compacted} don't"
                if sink_file.batch is None
                else f"the receipt of batch {sink_file.batch} doesn't"
            )
            line = generation.manifest_line(sink_file)
            detail = f"lists {path}, which {sealing}"
            findings.append(
                Finding(Reason.MANIFEST_CHANGED, f"{folder}/{sink_file.log}", detail, line=line)
            )
        else:
            new.append(sink_file)
    listed = {prefix + path for path in manifest.files}
    gone = {path for path in sizes if path not in listed}
    if gone and not _hidden_by_retention(snapshot, manifest, gone, receipts):
        findings += _unlisted(gone, receipts, manifest, folder, known)
    return sealed, new, findings


def is_of_sealed_batch(sink_file: SinkFile, compacted: int | None, last_sealed: int) -> bool:
    """Return whether a line of the manifest belongs to a sealed batch.

    Args:
        sink_file: The line; without a batch if a compaction dropped it.
        compacted: The batch up to which the manifest is compacted; None if it isn't.
        last_sealed: Highest batch id that is sealed.
    """
    latest = sink_file.batch if sink_file.batch is not None else compacted
    return latest is not None and latest <= last_sealed


def _hidden_by_retention(
    snapshot: Snapshot, manifest: Manifest, gone: set[str], receipts: Iterable[Receipt]
) -> bool:
    """Return whether Spark's `retention` explains missing files: a compaction drops the oldest."""
    if manifest.compacted is None or not snapshot.document.retention:
        return False
    any_kept = False
    for receipt in receipts:
        hidden = [file for file in receipt.files if file.path in gone]
        kept = [file for file in receipt.files if file.path not in gone]
        if hidden and (any_kept or receipt.first_batch > manifest.compacted):
            return False
        # Within one batch, any file may be the older one.
        if receipt.first_batch < receipt.last_batch and not _are_before(hidden, kept):
            return False
        any_kept = any_kept or bool(kept)
    return True


def _are_before(hidden: Iterable[SealedFile], kept: Iterable[SealedFile]) -> bool:
    """Return whether some files hold lower offsets than others in each partition."""
    first_kept: dict[TopicPartition, int] = {}
    for file in kept:
        for content in file.contents:
            first_kept[content.tp] = min(content.first, first_kept.get(content.tp, content.first))
    return all(
        content.first < first_kept.get(content.tp, content.first + 1)
        for file in hidden
        for content in file.contents
    )


def _unlisted(
    gone: set[str],
    receipts: Iterable[Receipt],
    manifest: Manifest,
    folder: str,
    known: Iterable[Finding],
) -> list[Finding]:
    """Report the manifest files that no longer list sealed files, once for each manifest file."""
    damage = KnownDamage.of(known)
    unlisted: dict[str, list[str]] = {}
    for receipt in receipts:
        paths = [file.path for file in receipt.files if file.path in gone]
        names = manifest.logs_of(receipt.first_batch, receipt.last_batch)
        logs = {f"{folder}/{name}" for name in names}
        if paths and logs and not logs & damage.damaged:
            # With several batches in a receipt, it's unknown which of their files lost the line.
            unlisted.setdefault(damage.blame(logs, folder), []).extend(paths)
    return [
        Finding(
            Reason.MANIFEST_TRUNCATED,
            where,
            f"doesn't list {len(paths)} files that its receipts seal, such as {paths[0]}",
        )
        for where, paths in unlisted.items()
    ]
