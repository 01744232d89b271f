"""Locations of archives: on a local file system, including mounted ones, HDFS, or an object store.

An object store has no folders, renames or links; what is written there, or to HDFS, appears all at
once.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError, MachineError, StoreUnavailableError
from kafka_drain.storage.gcs import EMULATOR, GCS_SCHEMES
from kafka_drain.storage.outages import naming_outages, naming_silence, remedy_of
from kafka_drain.storage.s3 import S3_SCHEMES
from kafka_drain.storage.schemes import ALIASES, HDFS, PACKAGES, normalised, refuse_login

_READ_AHEAD = 8 << 20

#: A disk syncs many files concurrently in little more time than one.
_SYNC_LANES = 16

#: Names that file systems and NAS devices keep in the root of a volume, or in each folder.
_OF_VOLUMES = frozenset(
    {
        *("lost+found", ".snapshot", ".snapshots", ".zfs", "@eaDir", "#snapshot", "#recycle"),
        *(".DS_Store", ".Trashes", ".fseventsd", ".Spotlight-V100", ".TemporaryItems"),
        *("System Volume Information", "$RECYCLE.BIN", "Thumbs.db", "desktop.ini"),
    }
)
_OF_VOLUMES_BEGIN = (".Trash-", ".nfs", "._")

#: Releases from which on packages pass on the condition of a write (If-None-Match, If-Match).
_LOWEST = {"s3fs": (2024, 12), "aiobotocore": (2, 16), "gcsfs": (2024, 12), "adlfs": (2024, 12)}

#: botocore's exceptions for missing or incomplete credentials.
_NO_LOGIN = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound")


def quoted(path: object) -> str:
    """Return a path as one word of a shell, for commands in messages."""
    return shlex.quote(str(path))


def locate(path: str | os.PathLike[str] | UPath, access: Mapping[str, Any] | None = None) -> UPath:
    """Return a location by its path or URL; it need not exist.

    Args:
        path: The path or URL.
        access: fsspec's options for the URL's store; None for those of the environment.

    Raises:
        ConfigError: When the URL's store isn't supported, or the URL has a login in it.
        MachineError: When the package for the URL's store isn't installed.
    """
    if not isinstance(path, UPath) and (not str(path) or str(path).startswith(("file:", "//"))):
        path = normalised(str(path))
    scheme = "" if str(path).startswith("/") else str(path).partition("://")[0]
    refuse_login(str(path))
    if scheme in (HDFS, *ALIASES):
        path = normalised(str(path))
    try:
        if scheme == HDFS:
            from kafka_drain.storage.hdfs import HdfsPath

            return HdfsPath(path)
        if isinstance(path, UPath):
            found = path
        elif str(path).startswith("/") or "://" not in str(path):
            # Java takes `..` out by its name, which is another folder behind a symbolic link.
            found = UPath(os.path.realpath(path) if ".." in Path(path).parts else path)
        else:
            found = UPath(path, **_options(scheme), **(access or {}))
        if is_local(found):
            return found.absolute()
        found.fs  # noqa: B018 - imports the package
        _require_conditions(scheme)
    except ImportError as error:
        raise MachineError(
            f"{path} needs the Python package {PACKAGES.get(scheme, 'for ' + scheme)} ({error}); "
            "install it alongside kafka-drain, as kafka-drain[s3], [gcs] or [azure]"
        ) from error
    except ValueError:
        # fsspec doesn't know the scheme: say which ones there are.
        normalised(str(path))
        raise
    return found


@cache
def _require_conditions(scheme: str) -> None:
    needed = [PACKAGES[scheme]] if scheme in PACKAGES else []
    for name in [*needed, *(["aiobotocore"] if scheme in S3_SCHEMES else [])]:
        try:
            lowest, found = _LOWEST[name], version(name)
        except PackageNotFoundError:
            # It was imported, but doesn't say its release, as in a zip for executors.
            continue
        if tuple(map(int, re.findall(r"\d+", found)[:2])) < lowest:
            raise MachineError(
                f"{name} {found} leaves out the condition of a write, so that two drains could "
                f"hold one lease; install {name}>={'.'.join(map(str, lowest))}"
            )


def _options(scheme: str) -> dict[str, Any]:
    # Other processes write to the same archive, so a cached listing may be stale.
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in S3_SCHEMES:
        # By default, s3fs would read 50 MiB ahead in each open file.
        options["default_block_size"] = _READ_AHEAD
        # By default, s3fs asks for the size of each object that it reads as a whole.
        options["max_concurrency"] = 1
    if scheme in GCS_SCHEMES and os.environ.get(EMULATOR):
        # A stand-in has no logins; gcsfs would look for one, on the network too.
        options["token"] = "anon"
    return options


def is_local(path: UPath) -> bool:
    """Return whether a path is on a file system of this machine, including mounted ones."""
    return path.protocol in ("", "file")


def has_folders(path: UPath) -> bool:
    """Return whether empty folders stay where a path is, unlike in an object store."""
    return is_local(path) or path.protocol == HDFS


def make_folder(path: UPath, *, durable: bool = False) -> None:
    """Create a folder and its parents; does nothing in a store, which makes them as it needs them.

    Args:
        path: The folder.
        durable: Whether it must survive a power cut.
    """
    if not is_local(path):
        return
    missing = [folder for folder in (path, *path.parents) if not folder.exists()] if durable else []
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def sync_folder(path: UPath) -> None:
    """Make the directory entries of a local folder survive a power cut.

    Raises:
        OSError: When the disk fails.
    """
    opened = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network file systems sync only files.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def sync_files(root: UPath, paths: Iterable[str]) -> None:
    """Make files written by others, and the folders that lead to them, survive a power cut.

    Spark's sink leaves syncing to the operating system, which takes half a minute. In an object
    store, an acknowledged write is already durable; an HDFS syncs if its DataNodes are set to.

    Args:
        paths: The files, relative to it.

    Raises:
        ArchiveError: When a file is missing, or the disk fails.
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
            "nothing was sealed. Check the system log, then validate again"
        ) from error


def _folders_of(file: str) -> list[str]:
    """Return all folders of a file, starting with the archive: ``, `data` and `data/topic=t`."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts) + 1)]


def read_bytes(path: UPath) -> bytes:
    """Return the content of a small file at one point in time, with one request in a store.

    Opening an object with s3fs takes two requests, info and read, and fails if the object is
    replaced between them.

    Raises:
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't answer.
    """
    if is_local(path):
        return path.read_bytes()
    with naming_silence(path):
        # Otherwise gcsfs asks for the size first, and cuts what is replaced meanwhile.
        options = {"concurrency": 1} if path.protocol in GCS_SCHEMES else {}
        return bytes(path.fs.cat_file(path.path, **options))


def read_if_there(path: UPath) -> bytes | None:
    """Return the content of a small file as `read_bytes` does; None if it doesn't exist."""
    try:
        return read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_file(path: UPath) -> bool:
    """Return whether there is a file.

    fsspec's own `isfile` takes each error for "no": a request that is refused or isn't answered
    would hide a receipt.

    Raises:
        OSError: When a file system of this machine doesn't say.
        StoreUnavailableError: When a store doesn't say.
    """
    return path.is_file() if is_local(path) else _type_in_store(path) == "file"


def exists(path: UPath) -> bool:
    """Return whether there is a file or folder; raises like `is_file`."""
    return path.exists() if is_local(path) else _type_in_store(path) != ""


def _type_in_store(path: UPath) -> str:
    try:
        with naming_outages(path):
            return str(path.fs.info(path.path)["type"])
    except (FileNotFoundError, NotADirectoryError):
        return ""


def is_of_volume(name: str) -> bool:
    """Return whether a file system or a NAS keeps something of this name in its folders.

    It belongs to no archive, and may be readable to nobody but root.
    """
    return name in _OF_VOLUMES or name.startswith(_OF_VOLUMES_BEGIN)


def list_folder(folder: UPath) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a folder; one request in a store.

    Empty if the folder doesn't exist. Without what file systems keep in it.
    """
    try:
        if is_local(folder):
            with os.scandir(str(folder)) as entries:
                return {e.name: _is_folder(e) for e in entries if not is_of_volume(e.name)}
        with naming_silence(folder):
            listed = folder.fs.ls(folder.path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    prefix = folder.path.strip("/") + "/"
    paths = {info["name"].strip("/"): info["type"] == "directory" for info in listed}
    # A store may list the folder itself, as an empty object.
    return {
        path.removeprefix(prefix): is_folder
        for path, is_folder in paths.items()
        if path.startswith(prefix)
    }


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads to itself is no reason not to list what is beside it.
        return False


def size_of(root: UPath, where: str) -> int | None:
    """Return the size in bytes of a file below a folder; None if it doesn't exist."""
    try:
        if is_local(root):
            # Several times as fast as a path's own method, which matters with 100,000 files.
            return os.stat(f"{root}/{where}").st_size
        path = root / where
        with naming_silence(path):
            return int(path.fs.info(path.path)["size"])
    except (FileNotFoundError, NotADirectoryError):
        return None


def hadoop_path(path: UPath) -> str:
    """Return a path in Hadoop's form: s3 URLs become s3a."""
    text = str(path)
    return "s3a://" + text.removeprefix("s3://") if text.startswith("s3://") else text


def why_not_writable(folder: UPath) -> str:
    """Return why this user can't write to an existing folder; empty if nothing is known.

    Only a file system of this machine tells before something is written.
    """
    if not is_local(folder) or not folder.is_dir():
        return ""
    effective = os.access in os.supports_effective_ids
    if os.access(str(folder), os.W_OK | os.X_OK, effective_ids=effective):
        return ""
    if os.statvfs(str(folder)).f_flag & os.ST_RDONLY:
        return "its file system is read-only"
    return f"this user may not write to {folder}"


def require_reachable(root: UPath) -> None:
    """Check that an archive's object store can be reached, so that errors name the cause.

    Raises:
        ArchiveError: When the bucket doesn't exist, or the credentials don't allow access.
        StoreUnavailableError: When the store doesn't respond.
    """
    if is_local(root):
        _require_open(root)
        return
    if root.protocol == HDFS:
        _require_hdfs(root)
        return
    bucket = f"{root.protocol}://{root.path.lstrip('/').partition('/')[0]}"
    try:
        root.fs.ls(root.path, detail=False)
    except FileNotFoundError as error:
        # Nothing below the path: either a new archive, or no such bucket.
        if _has_bucket(root, bucket):
            return
        raise ArchiveError(
            f"{bucket} doesn't exist; create the bucket, or correct the archive's URL"
        ) from error
    except PermissionError as error:
        login = (
            "check the credentials (key, profile or role), and that they allow listing and reads"
        )
        why = remedy_of(error) or login
        raise ArchiveError(f"{root} can't be listed: {error}; {why}") from error
    except Exception as error:
        # Each store has its own exceptions: no response, no such host, no credentials.
        name = type(error).__name__
        if name in _NO_LOGIN:
            raise ArchiveError(
                f"{root} can't be opened: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                "or AWS_PROFILE, give this machine a role, or set an Airflow connection as the "
                "pipeline's archive_conn_id"
            ) from error
        raise StoreUnavailableError(
            f"{root} can't be reached: {name}: {error}; check AWS_ENDPOINT_URL and AWS_REGION, and "
            "that the store is running"
        ) from error


def _require_open(folder: UPath) -> None:
    try:
        folder.stat()
        # Not by `/`, which leaves the dot out.
        os.stat(f"{folder}/.")
    except PermissionError as error:
        raise ArchiveError(
            f"{folder} can't be opened: this user may not enter it, or a folder above it; allow "
            f"that (`namei -l {quoted(folder)}` shows who may), or choose another archive"
        ) from error
    except OSError:
        # Not there yet, or something that is told by whoever reads it.
        return


def _has_bucket(root: UPath, bucket: str) -> bool:
    try:
        return bool(root.fs.exists(bucket))
    except FileNotFoundError:
        return False
    except OSError:
        # Not everyone who may list objects may ask for their bucket (Google: storage.buckets.get).
        try:
            root.fs.ls(bucket, detail=False)
        except OSError:
            return False
        return True


def _require_hdfs(root: UPath) -> None:
    try:
        root.fs.exists(root.path)
    except PermissionError as error:
        raise ArchiveError(
            f"{root} can't be read: {error.strerror or error}; give this user access to its "
            "folders, or set HADOOP_USER_NAME to one who has it"
        ) from error
