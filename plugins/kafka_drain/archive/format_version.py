"""The versions of the archive's format that this release writes and reads. Opens nothing.

Keys may be added within a version, and are ignored by older releases of the same version; if the
meaning of a key changes, so does the version (`docs/format.md`).
"""

from __future__ import annotations

from typing import Annotated

from kafka_drain.storage.typed_json import Readable

#: The version that this release writes of all documents, but archives with erased records.
FORMAT_VERSION = 1
#: The version of the archive.json of an archive from which records were erased. Releases that don't
#: know erasures would drain these offsets again; each release refuses an archive.json that it
#: doesn't know before it does anything else.
ERASED_VERSION = 2
#: The versions that it reads: the current one and its predecessor, if any.
READABLE = tuple(version for version in (FORMAT_VERSION - 1, FORMAT_VERSION) if version >= 1)

Version = Annotated[int, Readable(READABLE)]
ArchiveVersion = Annotated[int, Readable((*READABLE, ERASED_VERSION))]
