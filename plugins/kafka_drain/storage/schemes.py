"""Schemes of an archive's URL: which stores there are. Opens nothing."""

from __future__ import annotations

import difflib

from kafka_drain.errors import ConfigError

#: Packages that provide fsspec's file systems for the stores.
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs"}

#: Without exclusive creation and replacement, and read by no Python without Java.
HDFS = ("hdfs", "webhdfs", "swebhdfs", "viewfs")


def normalised(location: str) -> str:
    """Return an archive's path or URL as it is written everywhere: a file's URL as its path.

    Raises:
        ConfigError: When the URL's store isn't supported.
    """
    if location.startswith("file:///"):
        location = location.removeprefix("file://")
    scheme, found, _ = location.partition("://")
    if not found or scheme in PACKAGES:
        return location if location.endswith("://") else location.rstrip("/") or "/"
    if scheme in HDFS:
        raise ConfigError(
            f"{location} is in an HDFS, where an archive's documents can't be created exclusively "
            "or replaced if unchanged; use a folder that all machines share, or an object store "
            "(Apache Ozone has an S3 gateway). YARN itself may use HDFS"
        )
    near = difflib.get_close_matches(scheme, [*PACKAGES, "file"], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}://?" if near else ""
    raise ConfigError(
        f"{location} is in no store that is supported{hint}; accepted: an absolute path, "
        f"file:///…, {', '.join(f'{name}://…' for name in PACKAGES)}"
    )
