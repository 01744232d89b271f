"""A generation on disk: its documents, manifest, checkpoint, data files and receipts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from upath import UPath

from kafka_drain.archive.copies import keep_copy
from kafka_drain.archive.documents import GenerationDocument
from kafka_drain.archive.format import FORMAT_VERSION, Sealed
from kafka_drain.archive.generation_summary import Summary, parse_summary
from kafka_drain.archive.receipt_chain import check_link
from kafka_drain.archive.receipts import Receipt, ReceiptError, receipt_at
from kafka_drain.clock import now_text
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log import checkpoint as checkpoint_files
from kafka_drain.metadata_log import manifest as manifest_files
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.metadata_log.crc import crc_name, matches_crc
from kafka_drain.metadata_log.manifest import Manifest, SinkFile
from kafka_drain.offsets import Offsets, TopicPartition, to_spark_json
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.json_files import create_text, write_text
from kafka_drain.storage.paths import exists, is_local, is_of_volume, list_folder, read_bytes

_RECEIPT = re.compile(r"\d{12}\.json")


@dataclass(frozen=True, slots=True)
class LogNames:
    """The files that Spark adds for each batch, with their checksum files.

    Attributes:
        manifest: Names in `data/_spark_metadata`.
        offsets: Names in `checkpoint/offsets`.
        commits: Names in `checkpoint/commits`.
    """

    manifest: frozenset[str]
    offsets: frozenset[str]
    commits: frozenset[str]

    def is_same(self, other: LogNames) -> bool:
        """Return whether no batch was added or removed; a file being written doesn't count."""
        return all(
            _visible(own) == _visible(others)
            for own, others in (
                (self.manifest, other.manifest),
                (self.offsets, other.offsets),
                (self.commits, other.commits),
            )
        )


def _visible(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith(".")}


def number_of(folder: str) -> int | None:
    """Return a generation's number by its folder's name; None for any other folder.

    A copy named `1` or `00001` would be generation 1 a second time.
    """
    number = int(folder) if folder.isascii() and folder.isdigit() else 0
    return number if number and folder == f"{number:04d}" else None


@dataclass(frozen=True, slots=True)
class Generation:
    """One incarnation of a streaming query: a sink folder with its manifest and checkpoint."""

    root: UPath
    number: int

    @property
    def name(self) -> str:
        """Folder, relative to the archive."""
        return f"generations/{self.number:04d}"

    @property
    def folder(self) -> UPath:
        """The generation's folder."""
        return self.root / self.name

    @property
    def data_name(self) -> str:
        """Data folder, relative to the archive; `/`-separated, as in the manifest's paths."""
        return f"{self.name}/data"

    @property
    def data(self) -> UPath:
        """Folder that Spark's file sink writes to."""
        return self.folder / "data"

    @property
    def checkpoint(self) -> UPath:
        """Folder of Spark's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def has_begun(self) -> bool:
        """Whether Spark has noted where it starts; a query that failed before hasn't."""
        if list_folder(self.checkpoint / "offsets"):
            return True
        return exists(self.checkpoint / "sources" / "0" / "0")

    def read_document(self) -> GenerationDocument:
        """Read `generation.json`.

        Raises:
            ArchiveError: When it is missing, was changed, or is another generation's.
        """
        path = self.folder / "generation.json"
        try:
            return self.parse_document(path, read_bytes(path))
        except FileNotFoundError as error:
            raise ArchiveError(f"{self.folder} has no generation.json") from error

    def parse_document(self, path: UPath, content: bytes) -> GenerationDocument:
        """Parse the content of `generation.json`, or of its copy.

        Args:
            path: The file, for messages.

        Raises:
            ArchiveError: When it was changed, or is another generation's.
        """
        document = GenerationDocument.parse(path, content)
        if document.generation not in (None, self.number):
            raise ArchiveError(
                f"{path} is of generation {document.generation}, expected {self.number}"
            )
        return document

    def write(
        self,
        *,
        starting_offsets: dict[TopicPartition, int],
        file_format: str,
        partition_by: list[str],
        topic_ids: dict[str, str],
        reason: str,
        values: Mapping[str, Any] | None = None,
        is_new: bool = False,
    ) -> None:
        """Write `generation.json`: the numeric starting offsets, and how files are written.

        One that says the same stays as it is: it may be sealed by now.

        Args:
            is_new: Whether there must be none: another process may have opened it meanwhile.

        Raises:
            LockedError: When one is there that mustn't be.
        """
        path = self.folder / "generation.json"
        known = None if is_new or not exists(path) else self.read_document()
        document = GenerationDocument.model_validate(
            {
                "format_version": FORMAT_VERSION,
                "generation": self.number,
                "opened_at": known.opened_at if known else now_text(),
                "reason": reason,
                "format": file_format,
                "partition_by": partition_by,
                **({"values": values} if values else {}),
                "topics": dict(sorted(topic_ids.items())),
                "starting_offsets": json.loads(to_spark_json(starting_offsets)),
            }
        )
        document.replace(path, known)

    def add_topics(self, topic_ids: dict[str, str]) -> None:
        """Add the ids of topics that are drained from now on."""
        document = self.read_document()
        topics = dict(sorted((topic_ids | document.topics).items()))
        document.model_copy(update={"topics": topics}).write(self.folder / "generation.json")

    def read_manifest(self, listed: LogNames | None = None) -> tuple[Manifest, list[Finding]]:
        """Read `_spark_metadata` and report its problems.

        Args:
            listed: The result of `log_names`; None to list now.
        """
        folder = self.data / "_spark_metadata"
        there = listed.manifest if listed else frozenset(list_folder(folder))
        names, holes = manifest_files.logs_to_read(there)
        where = f"{self.data_name}/_spark_metadata"
        findings = [
            Finding(Reason.MANIFEST_HOLE, where, f"there is no file for batch {batch}")
            for batch in holes
        ]
        logs = []
        for name in names:
            content, found = _read_checked(folder / name, f"{where}/{name}", there)
            findings += found
            log, found = manifest_files.parse_log(name, content, self.data_name)
            findings += found
            batch, compacted = manifest_files.log_name(name) or (0, False)
            # Even an unparsable file still counts as its batch's file.
            logs.append(log or manifest_files.ManifestLog(name, batch, compacted))
        manifest, found = manifest_files.assemble(logs, self.data_name)
        return manifest, findings + found

    def is_as_spark_wrote(self, log: str) -> bool:
        """Return whether a manifest file matches its original `.crc`, so that no line was removed.

        False if there is no `.crc`: object stores have none, and copies often omit it.
        """
        path = self.data / "_spark_metadata" / log
        crc = _crc_of(path)
        return crc is not None and matches_crc(read_bytes(path), crc)

    def manifest_line(self, sink_file: SinkFile) -> int | None:
        """Return the number of the line that lists a file; rereads its manifest file."""
        content = read_bytes(self.data / "_spark_metadata" / sink_file.log)
        return manifest_files.line_of(content, sink_file.path, self.data_name)

    def read_checkpoint(
        self, starting_offsets: Offsets, listed: LogNames | None = None
    ) -> tuple[Checkpoint, list[Finding]]:
        """Read the checkpoint's files and report their problems.

        Args:
            starting_offsets: The generation's starting offsets.
            listed: The result of `log_names`; None to list now.
        """
        listed = listed or self.log_names()
        findings: list[Finding] = []
        ends: dict[int, dict[TopicPartition, int]] = {}
        commits: set[int] = set()
        offsets_name = f"{self.name}/checkpoint/offsets"
        commits_name = f"{self.name}/checkpoint/commits"
        for batch, content, found in self._batches("offsets", listed.offsets):
            findings += found
            end, found = checkpoint_files.parse_offsets(content, f"{offsets_name}/{batch}")
            findings += found
            # Even an unreadable file shows that its batch was planned.
            ends[batch] = end or {}
        ends, found = checkpoint_files.refuse_backward(ends, starting_offsets, offsets_name)
        findings += found
        for batch, content, found in self._batches("commits", listed.commits):
            findings += found
            findings += checkpoint_files.parse_commit(content, f"{commits_name}/{batch}")
            commits.add(batch)
        findings += self._check_beside_batches(starting_offsets, has_begun=bool(ends))
        findings += checkpoint_files.find_holes(ends, offsets_name)
        findings += checkpoint_files.find_holes(commits, commits_name)
        return Checkpoint(ends, frozenset(commits)), findings

    def _check_beside_batches(self, starting_offsets: Offsets, *, has_begun: bool) -> list[Finding]:
        """Check the checkpoint files other than `offsets/` and `commits/` that Spark reads."""
        findings: list[Finding] = []
        for name, check in (
            ("metadata", checkpoint_files.parse_metadata),
            (
                "sources/0/0",
                partial(
                    checkpoint_files.parse_initial_offsets,
                    starting_offsets=starting_offsets,
                ),
            ),
        ):
            where = f"{self.name}/checkpoint/{name}"
            try:
                content, found = _read_checked(self.checkpoint / name, where)
            except (FileNotFoundError, NotADirectoryError):
                # Neither is needed to resume.
                if has_begun and name == "metadata":
                    detail = "is missing, though batches were planned; Spark writes another"
                    findings.append(Finding(Reason.NOTE_UNREADABLE, where, detail))
                continue
            findings += [*found, *check(content, where)]
        return findings

    def log_names(self) -> LogNames:
        """List the manifest and checkpoint files, which change with each batch."""
        return LogNames(
            frozenset(list_folder(self.data / "_spark_metadata")),
            frozenset(list_folder(self.checkpoint / "offsets")),
            frozenset(list_folder(self.checkpoint / "commits")),
        )

    def list_data_files(self) -> dict[str, int]:
        """Return the sizes in bytes of all data files, by path relative to the data folder."""
        return list_data_files(self.data)

    def receipt_names(self) -> list[str]:
        """Return the names of the receipts, oldest first."""
        return sorted(filter(_RECEIPT.fullmatch, list_folder(self.folder / "receipts")))

    def receipt_where(self, name: str) -> str:
        """Return a receipt's path relative to the archive."""
        return f"{self.name}/receipts/{name}"

    def read_receipt(self, name: str) -> Receipt:
        """Read a receipt.

        Raises:
            ReceiptError: When it differs from what was sealed there.
        """
        return receipt_at(read_bytes(self.folder / "receipts" / name), self.receipt_where(name))

    def receipts(self, forgotten: Mapping[str, str] = MappingProxyType({})) -> Iterator[Receipt]:
        """Yield the receipts, oldest first; each must follow the one before it.

        Args:
            forgotten: Lost receipts that were given up, as `check_link` takes them.

        Raises:
            ReceiptError: When one differs from what was sealed.
        """
        before: Receipt | None = None
        for name in self.receipt_names():
            receipt = self.read_receipt(name)
            # What a first receipt names is in another generation.
            previous = before.sha256 if before else receipt.previous
            broken = check_link(receipt, before, previous, self.receipt_where(name), forgotten)
            if broken:
                raise ReceiptError(str(broken[0]))
            yield receipt
            before = receipt

    def last_receipt(self) -> Receipt | None:
        """Return the newest receipt; None if nothing is sealed.

        Raises:
            ReceiptError: When it differs from what was sealed.
        """
        names = self.receipt_names()
        return self.read_receipt(names[-1]) if names else None

    def write_receipt(self, sealed: Sealed[Receipt], retention: Retention | None = None) -> bool:
        """Write a receipt, locked if asked for, and its copy; return False if it exists already."""
        path = self.folder / "receipts" / sealed.value.name
        is_written = create_text(path, sealed.content.decode("utf-8"), retention)
        if is_written:
            # The copy must exist before a later receipt or the journal refers to the receipt.
            keep_copy(self.root, self.receipt_where(sealed.value.name), sealed.content)
        return is_written

    @property
    def summary_where(self) -> str:
        """The summary's path relative to the archive."""
        return f"{self.name}/summary.json"

    def read_summary(self) -> Summary | None:
        """Read the summary; None if there is none.

        Raises:
            SummaryError: When it was changed.
        """
        try:
            return parse_summary(read_bytes(self.root / self.summary_where))
        except FileNotFoundError:
            return None

    def write_summary(self, summary: Summary) -> None:
        """Write the summary, once the generation is closed.

        Raises:
            ArchiveError: When the archive can't be written.
        """
        write_text(self.root / self.summary_where, summary.to_bytes().decode("utf-8"))

    def _batches(
        self, folder_name: str, names: Collection[str]
    ) -> Iterator[tuple[int, bytes, list[Finding]]]:
        for name in sorted(names):
            batch = checkpoint_files.batch_id(name)
            if batch is not None:
                where = f"{self.name}/checkpoint/{folder_name}/{batch}"
                path = self.checkpoint / folder_name / name
                yield batch, *_read_checked(path, where, names)


def _read_checked(
    path: UPath, where: str, names: Collection[str] | None = None
) -> tuple[bytes, list[Finding]]:
    """Read a file that Spark wrote through Hadoop, and verify its `.crc`.

    Args:
        where: Its path relative to the archive.
        names: The names in its folder; None to try for a `.crc`.
    """
    has_crc = names is None or crc_name(path.name) in names
    content, crc = read_bytes(path), _crc_of(path) if has_crc else None
    # A missing `.crc` is fine for Hadoop, too.
    if crc is None or matches_crc(content, crc):
        return content, []
    detail = f"doesn't match its checksum in {crc_name(path.name)}"
    return content, [Finding(Reason.CHECKSUM_MISMATCH, where, detail)]


def _crc_of(path: UPath) -> bytes | None:
    """Return a file's `.crc`; None if the store has none, or a copy omitted it."""
    try:
        return read_bytes(path.with_name(crc_name(path.name)))
    except FileNotFoundError:
        return None


def list_data_files(folder: UPath) -> dict[str, int]:
    """Return the sizes in bytes of all data files below a folder, by relative path."""
    if is_local(folder):
        return dict(_walk(str(folder), ""))
    try:
        found = folder.fs.find(folder.path, detail=True)
    except FileNotFoundError:
        return {}
    prefix = folder.path.rstrip("/") + "/"
    listed = {path.removeprefix(prefix): int(info["size"]) for path, info in found.items()}
    return {
        path: size for path, size in listed.items() if path.rpartition("/")[2].startswith("part-")
    }


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    # Three times as fast as pathlib, which matters with 100,000 files.
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        # Removed after its parent folder was listed.
        return
    with entries:
        for entry in entries:
            if entry.name.startswith("part-"):
                try:
                    yield prefix + entry.name, entry.stat().st_size
                except FileNotFoundError:
                    # Just removed, or a dangling link: readers find no file either.
                    continue
            elif is_of_volume(entry.name):
                # Perhaps readable to nobody but root; none of it is the archive's.
                continue
            elif entry.is_dir() and not entry.name.startswith(("_", ".")):
                # Skips `_spark_metadata`, and the `_temporary` of a killed batch write.
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
