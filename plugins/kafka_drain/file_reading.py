"""One file that the manifest commits: is it there, whole, and what does it hold?

Also Spark's executors read files so; of local ones they need no fsspec.
"""

from __future__ import annotations

import hashlib

from kafka_drain.contents import CommittedFile
from kafka_drain.data_files import DataFileError, read_offsets, topic_of
from kafka_drain.data_files.records import DataPath, path_of
from kafka_drain.findings import Finding, Reason
from kafka_drain.manifest import SinkFile
from kafka_drain.store_errors import naming_outages

__all__ = ["file_sha256", "read_file"]

_CHUNK = 1 << 20


def read_file(
    root: str, data_name: str, sink_file: SinkFile, file_format: str
) -> CommittedFile | Finding:
    """Read one committed file, or say what is wrong with it.

    Args:
        root: The archive's folder.
        data_name: The data folder, relative to it.
        sink_file: What the manifest says of the file.
        file_format: Its format.

    Raises:
        StoreUnavailableError: When the archive's store doesn't answer.
    """
    where = f"{data_name}/{sink_file.path}"
    path = path_of(root, where)
    try:
        with naming_outages(path):
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
    except OSError as error:
        # A disk that can't read it, or no right to.
        return Finding(Reason.FILE_CORRUPT, where, f"can't be read: {error}")


def file_sha256(path: DataPath) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: When the file can't be read.
        StoreUnavailableError: When its store doesn't answer.
    """
    hashed = hashlib.sha256()
    with naming_outages(path), path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
