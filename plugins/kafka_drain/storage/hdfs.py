"""Archives on HDFS: fsspec's interface to it over WebHDFS, and its paths.

A path has the NameNode in it, as an object's path has its bucket: `namenode:8020/archives/orders`.
universal_pathlib's own paths for `hdfs://` lose the NameNode when they are printed, and read with
pyarrow, which needs Java and Hadoop's native library.

What is written appears at once: it is written beside, then renamed by the NameNode, which lets only
one of many create a file.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath
from stat import S_IFDIR, S_IFLNK, S_IFREG
from types import MappingProxyType
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from upath import UPath

from kafka_drain.errors import ConfigError, StoreUnavailableError
from kafka_drain.login_name import hadoop_user
from kafka_drain.storage.hdfs_settings import FILES, is_kerberized, name_nodes, parse_settings
from kafka_drain.storage.webhdfs import WebHdfs

_SCHEME = "hdfs"
#: Folders that are listed at the same moment.
_LANES = 16
_MODES = {"file": S_IFREG, "directory": S_IFDIR, "symlink": S_IFLNK}


def hdfs_files() -> HdfsFileSystem:
    """Return the file system that this process's environment describes.

    `HADOOP_CONF_DIR` names the folder with Hadoop's configuration, and `HADOOP_USER_NAME` the user;
    both are those of Spark's own client.
    """
    return _files(os.environ.get("HADOOP_CONF_DIR", ""), hadoop_user())


@lru_cache
def _files(conf_dir: str, user: str) -> HdfsFileSystem:
    return HdfsFileSystem(conf_dir=conf_dir, user=user)


def read_settings(conf_dir: str) -> dict[str, str]:
    """Return Hadoop's settings in a folder; empty for no folder.

    Raises:
        ConfigError: When a file can't be read, or isn't one of Hadoop's.
    """
    found: dict[str, str] = {}
    for name in FILES if conf_dir else ():
        path = os.path.join(conf_dir, name)
        try:
            with open(path, encoding="utf-8") as file:
                found |= parse_settings(file.read())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}") from error
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} of HADOOP_CONF_DIR {error}") from error
    return found


class HdfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """All HDFS that this machine reaches.

    Args:
        conf_dir: Folder of Hadoop's configuration; empty for none.
        user: Name of the user.
    """

    protocol = _SCHEME
    root_marker = ""
    cachable = False

    def __init__(self, conf_dir: str = "", user: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._settings = read_settings(conf_dir)
        self._user = user
        self._clusters: dict[str, WebHdfs] = {}

    def _at(self, path: str) -> tuple[WebHdfs, str]:
        """Return the HDFS of a path, and the path in it."""
        authority, slash, rest = self._strip_protocol(path).partition("/")
        cluster = self._clusters.get(authority)
        if cluster is None:
            cluster = self._clusters[authority] = WebHdfs(
                f"{_SCHEME}://{authority}",
                name_nodes(authority, self._settings),
                self._user,
                is_kerberized=is_kerberized(self._settings),
            )
        return cluster, slash + rest

    # --- listing ------------------------------------------------------------------------------

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe a file or folder; `mtime` is in seconds since 1970."""
        path = self._strip_protocol(path)
        cluster, where = self._at(path)
        return _described(path, cluster.ask("GET", "GETFILESTATUS", where)["FileStatus"])

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a folder, or describe a file."""
        path = self._strip_protocol(path)
        cluster, where = self._at(path)
        listed = cluster.ask("GET", "LISTSTATUS", where)["FileStatuses"]["FileStatus"]
        found = [_described(_joined(path, each["pathSuffix"]), each) for each in listed]
        return found if detail else [each["name"] for each in found]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **_: Any,
    ) -> Any:
        """Find all files below a folder; one request for each folder, some at the same moment."""
        found: dict[str, dict[str, Any]] = {}
        folders, depth = [self._strip_protocol(path)], 0
        with ThreadPoolExecutor(_LANES) as pool:
            while folders and (maxdepth is None or depth < maxdepth):
                entries = [each for listed in pool.map(self._listed, folders) for each in listed]
                folders = [each["name"] for each in entries if each["type"] == "directory"]
                found |= {e["name"]: e for e in entries if withdirs or e["type"] == "file"}
                depth += 1
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        try:
            return self.ls(folder)
        except FileNotFoundError:
            # Removed since its parent was listed.
            return []

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is a file or folder."""
        return self._type_of(path) != ""

    def isfile(self, path: str) -> bool:
        """Return whether there is a file."""
        return self._type_of(path) == "file"

    def isdir(self, path: str) -> bool:
        """Return whether there is a folder."""
        return self._type_of(path) == "directory"

    def _type_of(self, path: str) -> str:
        # fsspec takes each error for "no".
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return ""

    # --- reading ------------------------------------------------------------------------------

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return a file's content at one point in time, or a part of it."""
        cluster, where = self._at(path)
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"]
            start = start if start is None or start >= 0 else max(0, size + start)
            end = end if end is None or end >= 0 else max(0, size + end)
        if end is None:
            return cluster.read(where, start or 0)
        return cluster.read(where, start or 0, end - (start or 0)) if end > (start or 0) else b""

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if mode in ("wb", "xb"):
            return _Writing(self, path, mode="create" if mode == "xb" else "overwrite")
        kwargs.pop("autocommit", None)
        return _Reading(
            self, path, mode, block_size or "default", cache_options=cache_options, **kwargs
        )

    # --- writing ------------------------------------------------------------------------------

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file; whoever reads sees the old one, if any, or the complete new one.

        Args:
            value: Its content.
            mode: `create` to refuse if there is one, `overwrite` to replace it.

        Raises:
            FileExistsError: When there is one, and it was to be created.
            OSError: When it can't be written.
            StoreUnavailableError: When no NameNode or DataNode answers.
        """
        cluster, where = self._at(path)
        folder, _slash, name = where.rpartition("/")
        beside = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            cluster.write(beside, bytes(value), named=where)
            cluster.rename(beside, where, overwrite=mode != "create")
        except FileNotFoundError:
            # It may have been renamed, and the answer lost.
            if not self._holds(path, value):
                raise
        except (OSError, StoreUnavailableError):
            with suppress(OSError, StoreUnavailableError):
                cluster.ask("DELETE", "DELETE", beside)
            raise

    def _holds(self, path: str, content: bytes) -> bool:
        try:
            return self.cat_file(path) == content
        except FileNotFoundError:
            return False

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Create a folder, and those above it."""
        cluster, where = self._at(path)
        cluster.ask("PUT", "MKDIRS", where)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a folder, and those above it."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, "there is one already", path)
        self.mkdir(path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename a file or folder; refused if there is one of that name."""
        cluster, where = self._at(path1)
        cluster.rename(where, self._at(path2)[1], overwrite=False)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file, all of which has to fit into memory."""
        self.pipe_file(path2, self.cat_file(path1))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, or whole folders."""
        for each in [path] if isinstance(path, str) else path:
            cluster, where = self._at(each)
            recursively = "true" if recursive else "false"
            if not cluster.ask("DELETE", "DELETE", where, recursive=recursively)["boolean"]:
                raise FileNotFoundError(errno.ENOENT, "there is none", f"{_SCHEME}://{each}")

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        self.rm(path)

    def rmdir(self, path: str) -> None:
        """Delete an empty folder."""
        self.rm(path)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if name else folder


def _described(name: str, status: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "size": status["length"],
        "type": status["type"].lower(),
        "mtime": status["modificationTime"] / 1000,
    }


class _Reading(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read in parts."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self.path, start, min(end, self.size))
        return content


class _Writing(io.BytesIO):
    """A file that appears when it is closed; not after an error."""

    def __init__(self, files: HdfsFileSystem, path: str, mode: str) -> None:
        super().__init__()
        self._files, self._path, self._mode = files, path, mode

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._files.pipe_file(self._path, content, mode=self._mode)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            super().close()
        self.close()


class HdfsPath(UPath):
    """A path on HDFS: the methods of a path that an archive's code uses; derived paths keep them.

    Nothing is inherited of what universal_pathlib does with `hdfs://`; its releases differ in how
    they take a path apart.
    """

    __slots__ = ("_hdfs_path",)
    #: For `outages`: an OSError is a refusal, as an outage is a StoreUnavailableError already.
    tells_outages = True
    # universal_pathlib 0.2 warns of a class with its own `__new__` that doesn't say this.
    _protocol_dispatch = False

    def __new__(cls, *args: Any, **options: Any) -> HdfsPath:  # noqa: D102 - as __init__
        return object.__new__(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        first, *more = (str(each) for each in args)
        authority, slash, rest = first.removeprefix(f"{_SCHEME}://").partition("/")
        inside = posixpath.join("/" + rest, *more).rstrip("/") if slash or more else ""
        self._hdfs_path = authority + inside

    def __reduce__(self) -> Any:
        return type(self), (str(self),)

    def __copy__(self) -> HdfsPath:
        return type(self)(str(self))

    def __str__(self) -> str:
        return f"{_SCHEME}://{self._hdfs_path}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def __vfspath__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsPath) and self._hdfs_path == other._hdfs_path

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    # --- taken apart --------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        """The scheme, as fsspec calls it."""
        return _SCHEME

    @property
    def storage_options(self) -> MappingProxyType[str, Any]:
        """Options of the file system; it has none, as the environment says all."""
        return MappingProxyType({})

    @property
    def fs(self) -> HdfsFileSystem:
        """The file system."""
        return hdfs_files()

    @property
    def path(self) -> str:
        """The path for the file system, with the NameNode."""
        return self._hdfs_path

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self._hdfs_path)

    @property
    def name(self) -> str:
        """The last part."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The end of the last part, from its last dot."""
        return self._pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts, first the NameNode."""
        return self._pure.parts

    @property
    def parent(self) -> HdfsPath:
        """The folder; the NameNode's own is itself."""
        above, slash, _ = self._hdfs_path.rpartition("/")
        return type(self)(above) if slash else self

    @property
    def parents(self) -> tuple[HdfsPath, ...]:
        """All folders that it is in, the innermost first."""
        found, last = list[HdfsPath](), self
        while last.parent != last:
            found.append(last := last.parent)
        return tuple(found)

    def __truediv__(self, other: Any) -> HdfsPath:
        return type(self)(self._hdfs_path, other)

    def joinpath(self, *others: Any) -> HdfsPath:
        """Return a path below."""
        return type(self)(self._hdfs_path, *others)

    def with_name(self, name: str) -> HdfsPath:
        """Return a path beside."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> HdfsPath:
        """Return a path beside with another suffix."""
        return self.with_name(self._pure.with_suffix(suffix).name)

    def absolute(self) -> HdfsPath:
        """Return itself: no path on HDFS is relative."""
        return self

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    # --- listing ------------------------------------------------------------------------------

    def exists(self, **_: Any) -> bool:
        """Return whether there is a file or folder."""
        return self.fs.exists(self.path)

    def is_file(self, **_: Any) -> bool:
        """Return whether there is a file."""
        return self.fs.isfile(self.path)

    def is_dir(self, **_: Any) -> bool:
        """Return whether there is a folder."""
        return self.fs.isdir(self.path)

    def stat(self, **_: Any) -> Any:
        """Describe it: size and time of the last write."""
        info = self.fs.info(self.path)
        at = int(info["mtime"])
        return os.stat_result(
            (_MODES[info["type"]], 0, 0, 0, 0, 0, info["size"], at, at, at),
            dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), info["mtime"]),
        )

    def iterdir(self) -> Iterator[HdfsPath]:
        """Yield the paths in a folder."""
        for name in self.fs.ls(self.path, detail=False):
            yield type(self)(name)

    def glob(self, pattern: str, **_: Any) -> Iterator[HdfsPath]:
        """Yield the paths below that match a pattern."""
        for name in self.fs.glob(f"{self.path}/{pattern}"):
            yield type(self)(name)

    def rglob(self, pattern: str, **_: Any) -> Iterator[HdfsPath]:
        """Yield the paths below, at any depth, that match a pattern."""
        return self.glob(f"**/{pattern}")

    # --- reading and writing ------------------------------------------------------------------

    def open(self, mode: str = "r", *args: Any, **options: Any) -> Any:
        """Open a file."""
        return self.fs.open(self.path, mode, **options)

    def read_bytes(self) -> bytes:
        """Return the content."""
        return self.fs.cat_file(self.path)

    def read_text(self, *args: Any, **options: Any) -> str:
        """Return the content, which is UTF-8."""
        return self.read_bytes().decode()

    def write_bytes(self, data: Any) -> int:
        """Write a file at once."""
        self.fs.pipe_file(self.path, bytes(data))
        return len(data)

    def write_text(self, data: str, *args: Any, **options: Any) -> int:
        """Write a file at once, in UTF-8."""
        return self.write_bytes(data.encode())

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a folder, and those above it."""
        self.fs.makedirs(self.path, exist_ok=exist_ok)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file."""
        try:
            self.fs.rm_file(self.path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self, recursive: bool = False) -> None:
        """Delete an empty folder."""
        self.fs.rm(self.path, recursive=recursive)

    def rename(self, target: Any, **_: Any) -> HdfsPath:
        """Rename a file or folder; refused if there is one of that name."""
        to = target if isinstance(target, HdfsPath) else type(self)(str(target))
        self.fs.mv(self.path, to.path)
        return to
