"""The file sink's manifest, `_spark_metadata`, parsed without Spark. Opens nothing.

The format is Spark's `FileStreamSinkLog` v1 on `CompactibleFileStreamLog`: one file per batch,
named by the batch id, with the line `v1` and then one JSON object for each data file of that batch.
Every tenth batch (`spark.sql.streaming.fileSink.log.compactInterval`) is `<id>.compact` and holds
the lines of all batches so far; the files before it are deleted after some time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from kafka_drain.findings import Finding, Reason

VERSION = "v1"
_NAME = re.compile(r"(\d+)(\.compact)?")
# A line as written by Spark. Any other line is parsed as JSON, which takes four times as long.
_LINE = re.compile(
    r'\{"path":"([^"\\\x00-\x1f]*)","size":(0|[1-9]\d{0,17}),"isDir":(?:true|false),'
    r'"modificationTime":(0|[1-9]\d{0,17}),"blockReplication":(?:0|[1-9]\d{0,17}),'
    r'"blockSize":(?:0|[1-9]\d{0,17}),"action":"(add|delete)"\}',
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SinkFile:
    """One line of the manifest.

    Attributes:
        path: Path relative to the generation's data folder.
        size: Size in bytes.
        modified: Modification time in milliseconds since 1970.
        batch: The batch that wrote the file; None if a compaction of the manifest dropped it.
        log: Name of the manifest file that lists it.
    """

    path: str
    size: int
    modified: int
    batch: int | None
    log: str


@dataclass(frozen=True, slots=True)
class ManifestLog:
    """One manifest file."""

    name: str
    batch: int
    compacted: bool
    added: tuple[SinkFile, ...] = ()
    deleted: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The combined contents of the manifest files.

    Attributes:
        files: The committed data files, by path relative to the data folder.
        last_batch: Highest batch id; None if there is no batch.
        batches: Batch ids whose own manifest file was read, lowest first (compacted ones are
            only in `files`).
        compacted: Last batch of the compacted file that was read; None if there is none.
        roots: The archive folders in the lines' absolute paths; only one, unless it was moved.
    """

    files: dict[str, SinkFile] = field(default_factory=dict)
    last_batch: int | None = None
    batches: tuple[int, ...] = ()
    compacted: int | None = None
    roots: frozenset[str] = frozenset()

    def split(self, last_sealed: int, sealed_files: int) -> tuple[list[SinkFile], list[SinkFile]]:
        """Return the files of sealed batches, and those of later ones.

        A compaction drops the batch of each file, but keeps their order.

        Args:
            last_sealed: Highest batch id that is sealed; -1 for none.
            sealed_files: Number of files that the sealed batches wrote.
        """
        compacted = -1 if self.compacted is None else self.compacted
        sealed: list[SinkFile] = []
        new: list[SinkFile] = []
        for number, sink_file in enumerate(self.files.values()):
            if sink_file.batch is not None:
                is_sealed = sink_file.batch <= last_sealed
            else:
                is_sealed = compacted <= last_sealed or number < sealed_files
            (sealed if is_sealed else new).append(sink_file)
        return sealed, new

    def logs_of(self, first: int, last: int) -> list[str]:
        """Return the names of these batches' manifest files; none if one is missing."""
        compacted = -1 if self.compacted is None else self.compacted
        names = [f"{compacted}.compact"] if first <= compacted else []
        after = range(max(first, compacted + 1), last + 1)
        plain = [str(batch) for batch in self.batches if batch in after]
        return names + plain if len(plain) == len(after) else []


def log_name(name: str) -> tuple[int, bool] | None:
    """Return the batch id and whether it is compacted; None if it isn't a manifest file name."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), bool(match[2])) if match else None


def logs_to_read(names: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return the manifest files in effect, oldest first, and the batch ids missing in between.

    These are the newest compacted file and its successors, or everything from batch 0, as in
    `CompactibleFileStreamLog.allFiles`.
    """
    logs = {parsed: name for name in names if (parsed := log_name(name))}
    if not logs:
        return [], []
    first = max((batch for batch, compacted in logs if compacted), default=0)
    by_batch: dict[int, str] = {}
    for (batch, compacted), name in sorted(logs.items()):
        # A compacted file replaces the plain one of its batch.
        if batch > first or (batch == first and (compacted or batch not in by_batch)):
            by_batch[batch] = name
    last = max(batch for batch, _ in logs)
    holes = [batch for batch in range(first, last + 1) if batch not in by_batch]
    return [by_batch[batch] for batch in sorted(by_batch)], holes


def parse_log(
    name: str, content: bytes, data_folder: str
) -> tuple[ManifestLog | None, list[Finding]]:
    """Parse one manifest file.

    Args:
        name: The file's name.
        data_folder: The data folder relative to the archive, for example
            `generations/0001/data`. The manifest holds absolute paths; only the part after this
            folder matters, so that an archive can be moved.

    Returns:
        The parsed file, or None if nothing in it is usable, and the problems found.
    """
    where = f"{data_folder}/_spark_metadata/{name}"
    parsed_name = log_name(name)
    if parsed_name is None:
        raise ValueError(f"{name} isn't the name of a manifest file")
    batch, compacted = parsed_name
    if not content.strip(b"\0\r\n "):
        return None, [Finding(Reason.MANIFEST_EMPTY, where, f"{len(content)} bytes, all blank")]
    # Lazily, because a manifest can have a million lines.
    lines = _lines(content)
    first = next(lines)
    if first != VERSION:
        detail = f"starts with {first[:40]!r}, expected {VERSION!r}"
        return None, [Finding(Reason.MANIFEST_CORRUPT, where, detail, line=1)]
    findings: list[Finding] = []
    added: list[SinkFile] = []
    deleted: set[str] = set()
    roots: set[str] = set()
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        try:
            uri, size, modified, action = _parse_line(line)
            root, path = _split_path(uri, data_folder)
        except _LineError as error:
            findings.append(Finding(error.reason, where, str(error), line=number))
            continue
        roots.add(root)
        if action == "delete":
            deleted.add(path)
            continue
        added.append(SinkFile(path, size, modified, None if compacted else batch, name))
    log = ManifestLog(name, batch, compacted, tuple(added), frozenset(deleted), frozenset(roots))
    return log, findings


def line_of(content: bytes, path: str, data_folder: str) -> int | None:
    """Return the number of the last line of a manifest file that names a data file.

    Args:
        content: The manifest file's bytes.
        path: The data file, relative to the data folder.
        data_folder: The data folder relative to the archive.
    """
    found = None
    for number, line in enumerate(_lines(content), start=1):
        try:
            if number > 1 and line and _split_path(_parse_line(line)[0], data_folder)[1] == path:
                found = number
        except _LineError:
            # Reported as a finding when the file is parsed.
            continue
    return found


class _LineError(ValueError):
    """Raised when a line of a manifest file can't be used."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _lines(content: bytes) -> Iterator[str]:
    at = 0
    while (end := content.find(b"\n", at)) >= 0:
        yield content[at:end].decode("utf-8", errors="replace")
        at = end + 1
    yield content[at:].decode("utf-8", errors="replace")


def _parse_line(line: str) -> tuple[str, int, int, str]:
    """Return the path as written, the size, the modification time and the action."""
    match = _LINE.fullmatch(line)
    if match:
        return match[1], int(match[2]), int(match[3]), match[4]
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _LineError(Reason.MANIFEST_CORRUPT, f"not JSON ({error}): {line[:80]!r}") from error
    expected = {"path": str, "size": int, "modificationTime": int, "action": str}
    for key, kind in expected.items():
        if not isinstance(entry, dict) or not isinstance(entry.get(key), kind):
            raise _LineError(Reason.MANIFEST_CORRUPT, f"no {kind.__name__} {key!r}: {line[:80]!r}")
    if entry["action"] not in ("add", "delete"):
        raise _LineError(Reason.MANIFEST_CORRUPT, f"unknown action {entry['action']!r}")
    return entry["path"], entry["size"], entry["modificationTime"], entry["action"]


def _split_path(uri: str, data_folder: str) -> tuple[str, str]:
    """Return the archive folder in a path, and the part after the data folder."""
    # Spark writes the path as a URI: `file:///a%20b`.
    root, found, path = unquote(uri).rpartition(f"/{data_folder}/")
    if not found:
        raise _LineError(Reason.FILE_OUTSIDE, f"{uri} isn't under {data_folder}")
    return root, path


@dataclass(frozen=True)
class KnownDamage:
    """Manifest files that already have findings.

    Attributes:
        suspects: Files that don't match their checksum; they may have lost lines.
        damaged: Files that have another, more specific finding.
    """

    suspects: frozenset[str]
    damaged: frozenset[str]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> KnownDamage:
        """Collect the manifest files named in some findings."""
        by_checksum: dict[bool, set[str]] = {True: set(), False: set()}
        for finding in findings:
            if isinstance(finding.subject, str):
                by_checksum[finding.reason == Reason.CHECKSUM_MISMATCH].add(finding.subject)
        return cls(frozenset(by_checksum[True]), frozenset(by_checksum[False]))

    def blame(self, logs: Iterable[str], folder: str) -> str:
        """Return the only file that can have lost lines; the folder if that is ambiguous."""
        logs = set(logs)
        changed = logs & self.suspects or logs
        return min(changed) if len(changed) == 1 else folder


def assemble(logs: Iterable[ManifestLog], data_folder: str) -> tuple[Manifest, list[Finding]]:
    """Combine parsed manifest files, oldest first."""
    files: dict[str, SinkFile] = {}
    findings: list[Finding] = []
    batches: list[int] = []
    last: int | None = None
    compacted: int | None = None
    roots: set[str] = set()
    for log in logs:
        roots |= log.roots
        for sink_file in log.added:
            if sink_file.path in files:
                where = f"{data_folder}/_spark_metadata/{log.name}"
                detail = f"{sink_file.path} is already listed in {files[sink_file.path].log}"
                findings.append(Finding(Reason.MANIFEST_DUPLICATE, where, detail))
            files[sink_file.path] = sink_file
        for path in log.deleted:
            files.pop(path, None)
        if log.compacted:
            compacted = log.batch
        else:
            batches.append(log.batch)
        last = log.batch
    return Manifest(files, last, tuple(batches), compacted, frozenset(roots)), findings
