"""The files that the manifest commits, read for what they hold. Readers ignore all others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from upath import UPath

from kafka_drain.contents import CommittedFile
from kafka_drain.data_files import DataFileError, read_offsets, topic_of
from kafka_drain.findings import Finding, Reason
from kafka_drain.locations import is_local
from kafka_drain.manifest import SinkFile
from kafka_drain.progress import Progress, Ticker

if TYPE_CHECKING:
    from kafka_drain.generation import Generation
    from kafka_drain.window import Window

__all__ = ["FilesRead", "ReadFiles", "file_sha256", "read_committed_files", "read_file"]

#: What the readable files hold, and what is wrong with the others.
FilesRead: TypeAlias = "tuple[list[CommittedFile], list[Finding]]"
#: Reads the files of an owner, in a format; takes lines of progress, as `read_committed_files`.
ReadFiles: TypeAlias = (
    "Callable[[Generation | Window, Collection[SinkFile], str, Callable[[str], None]], FilesRead]"
)

_CHUNK = 1 << 20
#: So many files are read at once: on a disk the processor is what counts, in a store the requests.
_LANES_ON_DISK, _LANES_IN_STORE = 1, 16


def read_committed_files(
    owner: Generation | Window,
    sink_files: Collection[SinkFile],
    file_format: str,
    say: Callable[[str], None],
) -> FilesRead:
    """Look at each committed file: is it there, has it its size, which offsets does it hold?

    Args:
        owner: Whose files.
        sink_files: Which files.
        file_format: Their format.
        say: Takes a line of progress every two seconds.

    Returns:
        What the readable files hold, and what is wrong with the others.
    """
    files: list[CommittedFile] = []
    findings: list[Finding] = []
    ticker = Ticker("validate", Progress("files", len(sink_files)), say)
    data, name = owner.data, owner.data_name

    def read(sink_file: SinkFile) -> CommittedFile | Finding:
        return read_file(data, name, sink_file, file_format)

    with ThreadPoolExecutor(_LANES_ON_DISK if is_local(data) else _LANES_IN_STORE) as pool:
        for number, found in enumerate(pool.map(read, sink_files), start=1):
            if isinstance(found, Finding):
                findings.append(found)
            else:
                files.append(found)
            ticker.at(number)
    return files, findings


def read_file(
    data: UPath, data_name: str, sink_file: SinkFile, file_format: str
) -> CommittedFile | Finding:
    """Read one committed file, or say what is wrong with it.

    Args:
        data: The data folder.
        data_name: The same, relative to the archive.
        sink_file: What the manifest says of the file.
        file_format: Its format.
    """
    where = f"{data_name}/{sink_file.path}"
    path = data / sink_file.path
    try:
        size = path.stat().st_size
        if size != sink_file.size:
            detail = f"{size:,} bytes, the manifest says {sink_file.size:,}"
            return Finding(Reason.FILE_SIZE, where, detail)
        return CommittedFile(
            path=where,
            bytes=size,
            sha256=file_sha256(path),
            contents=tuple(read_offsets(path, file_format, topic_of(sink_file.path))),
            batch=sink_file.batch,
        )
    except FileNotFoundError:
        return Finding(Reason.FILE_MISSING, where, f"listed in manifest file {sink_file.log}")
    except DataFileError as error:
        return Finding(Reason.FILE_CORRUPT, where, str(error))


def file_sha256(path: UPath) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    hashed = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
