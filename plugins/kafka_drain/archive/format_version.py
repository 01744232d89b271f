"""The versions of the archive's format that this release writes and reads. Opens nothing.

Keys may be added within a version, and are ignored by older releases of the same version; if the
meaning of a key changes, so does the version (`docs/format.md`).
"""

from __future__ import annotations

#: The version that this release writes.
FORMAT_VERSION = 1
#: The versions that it reads: the current one and its predecessor, if any.
READABLE = tuple(version for version in (FORMAT_VERSION - 1, FORMAT_VERSION) if version >= 1)
