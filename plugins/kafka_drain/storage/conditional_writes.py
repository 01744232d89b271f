"""Writes of an object on a condition, as the file system of each store wants them told.

An object's version changes with each write: an ETag, or Google's generation. Imports no store's
package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from upath import UPath

from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.object_retention import creation_options, gcs_retention
from kafka_drain.storage.outages import code_of

#: S3's error codes for a conditional write that failed or conflicted with another write.
_REFUSALS = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409")
#: The same, as status of a response (RFC 9110): a conflict, a condition that isn't met.
_STATUSES = (409, 412)


class _Conditions(NamedTuple):
    """The conditional requests of a store.

    Attributes:
        version: Name of the version in fsspec's description of an object.
        replace: Writes content to a path, if the object there has a version.
    """

    version: str
    replace: Callable[[Any, str, bytes, str], object]


def _replace_on_s3(files: Any, path: str, content: bytes, version: str) -> None:
    # RFC 9110, 13.1.1; supported by S3 since November 2024.
    files.pipe_file(path, content, IfMatch=version)


def _replace_on_azure(files: Any, path: str, content: bytes, version: str) -> None:
    from azure.core import MatchConditions

    condition = MatchConditions.IfNotModified
    files.pipe_file(path, content, etag=version, match_condition=condition)


def _replace_on_gcs(files: Any, path: str, content: bytes, version: str) -> None:
    _insert_on_gcs(files, path, content, version)


def _insert_on_gcs(files: Any, path: str, content: bytes, version: str, **more: Any) -> None:
    # gcsfs has no argument for it: objects.insert of Google's JSON API, with ifGenerationMatch.
    bucket, name, _ = files.split_path(path)
    described = json.dumps({"name": name, **more}).encode()
    files.call(
        "POST",
        files.base.replace("/storage/v1/", f"/upload/storage/v1/b/{quote(bucket)}/o"),
        uploadType="multipart",
        ifGenerationMatch=version,
        headers={"Content-Type": "multipart/related; boundary=part"},
        data=b"--part\nContent-Type: application/json\n\n%b\n"
        b"--part\nContent-Type: application/octet-stream\n\n%b\n--part--" % (described, content),
    )


_S3 = _Conditions("ETag", _replace_on_s3)
_AZURE = _Conditions("etag", _replace_on_azure)
_GCS = _Conditions("generation", _replace_on_gcs)
_STORES = {"s3": _S3, "s3a": _S3, "abfs": _AZURE, "abfss": _AZURE, "gs": _GCS}


def version_of(path: UPath) -> str | None:
    """Return a value that changes with each write of an object; None if there is none.

    A file of this machine has none, nor has an object of a store that doesn't say it.

    Raises:
        FileNotFoundError: When the object doesn't exist.
    """
    if path.protocol not in _STORES:
        return None
    version = path.fs.info(path.path).get(_STORES[path.protocol].version)
    return None if version is None else str(version)


def create_object(path: UPath, content: bytes, retention: Retention | None = None) -> None:
    """Create an object, with the lock that it is to have, in one request.

    Raises:
        Exception: Of the store's package; see `is_refused`.
    """
    if retention is None:
        path.fs.pipe_file(path.path, content, mode="create")
    elif path.protocol == "gs":
        # Generation 0: only if there is no object.
        locked = {"retention": gcs_retention(retention)}
        _insert_on_gcs(path.fs, path.path, content, "0", **locked)
    else:
        options = creation_options(path, retention)
        path.fs.pipe_file(path.path, content, mode="create", **options)


def replace_object(path: UPath, content: bytes, version: str) -> None:
    """Overwrite an object if it has a version.

    Raises:
        Exception: Of the store's package; see `is_refused`.
    """
    _STORES[path.protocol].replace(path.fs, path.path, content, version)


def is_refused(error: Exception) -> bool:
    """Return whether a store refused a conditional write, whatever exception was made of it."""
    # gcsfs makes FileExistsError of each condition that isn't met, adlfs of an object that exists.
    if isinstance(error, FileExistsError):
        return True
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return code_of(error.__cause__) in _REFUSALS or status in _STATUSES
