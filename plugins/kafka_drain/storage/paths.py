"""Where an archive lies: on a file system of this machine, mounted ones included, or in a store.

An object store has no folders, no rename and no links; what is written there appears whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError, MachineError, StoreUnavailableError
from kafka_drain.storage.s3 import S3_SCHEMES

__all__ = [
    "hadoop_path",
    "is_local",
    "locate",
    "make_folder",
    "read_bytes",
    "require_reachable",
    "sync_files",
    "sync_folder",
]

#: What fsspec's file systems of the stores are installed with.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs"}

_READ_AHEAD = 8 << 20

#: A disk takes in many files at a time in little more time than one.
_SYNC_LANES = 16

#: What botocore raises when it finds no credentials, or half of them.
_NO_LOGIN = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound")


def locate(path: str | os.PathLike[str] | UPath) -> UPath:
    """Name a place by its path or URL; it need not exist.

    Raises:
        MachineError: When the package for the URL's store isn't installed.
    """
    try:
        if isinstance(path, UPath) or "://" not in str(path):
            found = UPath(path)
        else:
            found = UPath(path, **_options(str(path).partition("://")[0]))
        if is_local(found):
            return found.absolute()
        found.fs  # noqa: B018 - imports the package
    except ImportError as error:
        scheme = str(path).partition("://")[0]
        raise MachineError(
            f"{path} needs the Python package {_PACKAGES.get(scheme, 'for ' + scheme)} ({error}); "
            "install it beside kafka-drain, for S3 as kafka-drain[s3]"
        ) from error
    return found


def _options(scheme: str) -> dict[str, Any]:
    # Others write to the same archive: a listing from a moment ago is wrong.
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in S3_SCHEMES:
        # s3fs would read 50 MiB ahead, of each of the files that are read at a time.
        options["default_block_size"] = _READ_AHEAD
    return options


def is_local(path: UPath) -> bool:
    """Whether a path is one of this machine's file systems, mounted ones included."""
    return path.protocol in ("", "file")


def make_folder(path: UPath, *, durable: bool = False) -> None:
    """Make a folder and those above it; a store needs none, and might make a bucket of it.

    Args:
        path: The folder.
        durable: Whether it has to be there after a power cut, too.
    """
    if not is_local(path):
        return
    missing = [folder for folder in (path, *path.parents) if not folder.exists()] if durable else []
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def sync_folder(path: UPath) -> None:
    """Let the names in a folder of this machine be there after a power cut.

    Raises:
        OSError: When the disk fails.
    """
    opened = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network file systems sync files alone.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def sync_files(root: UPath, paths: Iterable[str]) -> None:
    """Let files that others wrote, and the names that lead to them, be there after a power cut.

    Spark's sink leaves that to the operating system, which takes half a minute. A store has what it
    answered for.

    Args:
        root: The archive's folder.
        paths: The files, relative to it.

    Raises:
        ArchiveError: When a file isn't there, or the disk fails.
    """
    if not is_local(root):
        return
    files = sorted(paths)
    folders = {folder for file in files for folder in _folders_of(file)}

    def sync_file(file: str) -> None:
        opened = os.open(str(root / file), os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    try:
        with ThreadPoolExecutor(_SYNC_LANES) as pool:
            list(pool.map(sync_file, files))
            list(pool.map(lambda folder: sync_folder(root / folder), sorted(folders)))
    except OSError as error:
        raise ArchiveError(
            f"{error.filename or root} can't be written to its disk: {error.strerror or error}; "
            "nothing was sealed. Look at the system's log, then validate again"
        ) from error


def _folders_of(file: str) -> list[str]:
    """Return the folders of a file, from the archive's own: ``, `data` and `data/topic=t`."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts) + 1)]


def read_bytes(path: UPath) -> bytes:
    """Return the whole of a small file, as it was at one moment.

    Of an object that is opened, s3fs asks first and reads then: one that is replaced between the
    two is an error.

    Raises:
        FileNotFoundError: When there is none.
    """
    return bytes(path.read_bytes() if is_local(path) else path.fs.cat_file(path.path))


def hadoop_path(path: UPath) -> str:
    """Return a path as Spark's file systems take it: what others call s3, Hadoop calls s3a."""
    text = str(path)
    return "s3a://" + text.removeprefix("s3://") if text.startswith("s3://") else text


def require_reachable(root: UPath) -> None:
    """Ask an object store for an archive, so that what is wrong with the store is said plainly.

    Raises:
        ArchiveError: When the bucket doesn't exist, or the credentials don't allow it.
        StoreUnavailableError: When the store doesn't answer, or no credentials were found.
    """
    if is_local(root):
        return
    bucket = f"{root.protocol}://{root.path.lstrip('/').partition('/')[0]}"
    try:
        root.fs.ls(root.path, detail=False)
    except FileNotFoundError as error:
        # Nothing lies below the path: a new archive, or no such bucket.
        try:
            if root.fs.exists(bucket):
                return
        except OSError:
            pass
        raise ArchiveError(
            f"{bucket} doesn't exist; make the bucket, or correct the archive's URL"
        ) from error
    except PermissionError as error:
        raise ArchiveError(
            f"{root} can't be listed: {error}; check the credentials (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile or a role), and that they may list and read"
        ) from error
    except Exception as error:
        # Each store has errors of its own: no answer, no such host, no credentials.
        name = type(error).__name__
        if name in _NO_LOGIN:
            raise ArchiveError(
                f"{root} can't be opened: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                "or AWS_PROFILE, give this machine a role, or name an Airflow connection as the "
                "pipeline's archive_conn_id"
            ) from error
        raise StoreUnavailableError(
            f"{root} can't be reached: {name}: {error}; check AWS_ENDPOINT_URL and AWS_REGION, and "
            "that the store runs"
        ) from error
