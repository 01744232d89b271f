"""Read the files that the manifest commits. Readers ignore all other files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Finding
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.progress import Progress, Ticker
from kafka_drain.storage.paths import is_local

if TYPE_CHECKING:
    from kafka_drain.archive.generation import Generation
    from kafka_drain.archive.window import Window

#: The contents of the readable files, and the findings for the others.
FilesRead: TypeAlias = "tuple[list[CommittedFile], list[Finding]]"
#: Reads the files of an owner in a format and reports progress, like `read_committed_files`.
ReadFiles: TypeAlias = "Callable[[Generation | Window, Collection[SinkFile], str], FilesRead]"

#: Number of files read at once: on a disk, one file is decoded while the records of another are
#: hashed; in an object store, the latency of requests dominates.
_LANES_ON_DISK, _LANES_IN_STORE = 2, 16


def read_committed_files(
    owner: Generation | Window, sink_files: Collection[SinkFile], file_format: str
) -> FilesRead:
    """Read each committed file: check that it exists with its size, and collect its offsets.

    Args:
        owner: The generation or window that owns the files.

    Returns:
        The contents of the readable files, and the findings for the others.
    """
    if not sink_files:
        return [], []
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.proof.committed_file import read_file

    files: list[CommittedFile] = []
    findings: list[Finding] = []
    ticker = Ticker("validate", Progress("files", len(sink_files)))
    root, data_name = str(owner.root), owner.data_name

    def read(sink_file: SinkFile) -> CommittedFile | Finding:
        return read_file(root, data_name, sink_file, file_format)

    with ThreadPoolExecutor(_LANES_ON_DISK if is_local(owner.root) else _LANES_IN_STORE) as pool:
        for number, found in enumerate(pool.map(read, sink_files), start=1):
            if isinstance(found, Finding):
                findings.append(found)
            else:
                files.append(found)
            ticker.at(number)
    return files, findings
