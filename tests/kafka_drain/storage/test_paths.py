"""A place is named the same way on a disk and in a store."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from kafka_drain.archive.window import Window
from kafka_drain.errors import ArchiveError, ConfigError, MachineError, StoreUnavailableError
from kafka_drain.storage import paths
from kafka_drain.storage.paths import (
    exists,
    hadoop_path,
    has_folders,
    is_file,
    is_local,
    is_of_volume,
    list_folder,
    locate,
    make_folder,
    read_bytes,
    require_reachable,
    size_of,
    sync_files,
    sync_folder,
    why_not_writable,
)
from kafka_drain.storage.schemes import normalised
from tests.kafka_drain.unsure_store import unsure_store
from tests.tables import each_of


def test_locate_relative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative path is one of this folder."""
    monkeypatch.chdir(tmp_path)

    assert locate("archive") == UPath(tmp_path / "archive")
    assert is_local(locate("archive"))


def test_locate_in_store() -> None:
    """A store's path keeps its URL, and looks anew each time."""
    path = locate("memory://folder/archive")

    assert str(path) == "memory://folder/archive"
    assert not is_local(path)
    assert path.storage_options == {"use_listings_cache": False}
    assert (path / "a").storage_options == path.storage_options


def test_locate_on_s3() -> None:
    """Many files are read at a time: each may take a little memory only, and one request."""
    path = locate("s3://bucket/archive")

    assert (path / "a").fs.default_block_size == 8 << 20
    assert path.storage_options["max_concurrency"] == 1
    assert not (path / "a").fs.dircache.use_listings_cache


@pytest.mark.parametrize("is_in_store", [False, True])
def test_list_folder(is_in_store: bool, tmp_path: Path, bucket: str) -> None:
    """A folder's names, each with whether it is one; there is no folder where nothing is."""
    root = locate(bucket if is_in_store else str(tmp_path)) / "archive"
    for name in ("a.json", ".b.json.crc", "c/d.json"):
        make_folder((root / name).parent)
        (root / name).write_text("{}")
    if is_in_store:
        # What some programs write to make an empty folder show up.
        root.fs.pipe_file(f"{root.path}/", b"")

    assert list_folder(root) == {"a.json": False, ".b.json.crc": False, "c": True}
    assert list_folder(root / "c") == {"d.json": False}
    assert list_folder(root / "e") == {}
    assert list_folder(root / "a.json") == {}


@pytest.mark.parametrize("scheme", ["webhdfs", "swebhdfs", "viewfs"])
def test_locate_hdfs_otherwise(scheme: str) -> None:
    """Another way to an HDFS is refused, with the one that there is."""
    with pytest.raises(ConfigError, match=f"{scheme}://n:8020/a can't be an archive's URL: .*hdfs"):
        locate(f"{scheme}://n:8020/a")


def test_locate_hdfs() -> None:
    """A path on HDFS has its own class, with the NameNode in it; none is asked yet."""
    found = locate("hdfs://n:8020/a/")

    assert (str(found), found.protocol, found.path) == ("hdfs://n:8020/a", "hdfs", "n:8020/a")
    assert locate(found) == found
    assert has_folders(found)
    assert not is_local(found)


def test_has_folders(tmp_path: Path) -> None:
    """An object store has no empty folders."""
    assert has_folders(UPath(tmp_path))
    assert not has_folders(UPath("memory://bucket/a"))


def test_locate_without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that is missing is named."""
    monkeypatch.setitem(sys.modules, "gcsfs", None)

    with pytest.raises(MachineError, match="gs://bucket/a needs the Python package gcsfs"):
        locate("gs://bucket/a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/archives/a b", "/archives/a b"),
        ("s3://bucket/a", "s3a://bucket/a"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("memory://folder/a", "memory://folder/a"),
    ],
)
def test_hadoop_path(path: str, expected: str) -> None:
    """Only S3 has another name in Hadoop."""
    assert hadoop_path(locate(path)) == expected


def test_make_folder_in_store() -> None:
    """A store has none: nothing is written."""
    path = locate("memory://nothing/here")

    make_folder(path)

    assert not path.exists()


def test_sync_files_with_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each file its bytes and all names that lead to it: once, however many files."""
    for name in ("a", "b"):
        (tmp_path / "data" / f"topic={name}").mkdir(parents=True)
        (tmp_path / "data" / f"topic={name}" / "1.parquet").touch()
    synced: list[str] = []
    fsync = os.fsync

    def follow(opened: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{opened}"), tmp_path))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", follow)

    sync_files(UPath(tmp_path), ["data/topic=a/1.parquet", "data/topic=b/1.parquet"])

    files = {"data/topic=a/1.parquet", "data/topic=b/1.parquet"}
    assert set(synced[:2]) == files
    assert sorted(synced[2:]) == [".", "data", "data/topic=a", "data/topic=b"]


def test_sync_files_gone(tmp_path: Path) -> None:
    """What has gone since it was read isn't there after a power cut either."""
    with pytest.raises(ArchiveError, match=r"gone\.parquet can't be .+; nothing was sealed"):
        sync_files(UPath(tmp_path), ["gone.parquet"])


def test_sync_files_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that can't write is no reason to seal."""

    def fail(opened: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "a").touch()
    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(ArchiveError, match="Input/output error"):
        sync_files(UPath(tmp_path), ["a"])


def test_sync_files_in_store() -> None:
    """A store has what it answered for."""
    sync_files(locate("memory://folder/archive"), ["a"])


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Forbidden"),
        OSError(errno.EBUSY, "SlowDown"),
        TimeoutError("no answer"),
        type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_is_file_store_unsure(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A store that refuses, or doesn't answer, doesn't say that there is no file."""
    root = unsure_store(monkeypatch, "/receipt.json", error)
    (root / "receipt.json").write_text("{}")

    assert not (root / "receipt.json").is_file()
    for ask in (is_file, exists):
        with pytest.raises(StoreUnavailableError, match=r"receipt\.json can't be read"):
            ask(root / "receipt.json")
        assert not ask(root / "other.json")


def test_is_file_in_store() -> None:
    """A folder is there, and is no file."""
    root = locate("memory://asked/archive")
    (root / "windows" / "receipt.json").write_text("{}")

    assert is_file(root / "windows" / "receipt.json")
    assert (exists(root / "windows"), is_file(root / "windows")) == (True, False)
    assert not exists(root / "windows" / "receipt.json" / "below")


def test_window_has_receipt_store_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who removes windows that were never sealed doesn't take a sealed one for such."""
    root = unsure_store(monkeypatch, "/receipt.json", OSError(errno.EBUSY, "SlowDown"))
    window = Window(root, "compact_0002")
    (window.folder / "receipt.json").write_text("{}")

    with pytest.raises(StoreUnavailableError):
        window.has_receipt()


def test_read_store_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store's package raises when nobody answers is named, and isn't shown as a trace."""
    silent = type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})

    def fail(*_: object, **options: object) -> None:
        raise silent("no endpoint")

    for name in ("cat_file", "ls", "info"):
        monkeypatch.setattr(MemoryFileSystem, name, fail)
    root = locate("memory://silent/archive")

    with pytest.raises(StoreUnavailableError, match="doesn't answer"):
        read_bytes(root / "archive.json")
    with pytest.raises(StoreUnavailableError, match="doesn't answer"):
        list_folder(root)
    with pytest.raises(StoreUnavailableError, match="doesn't answer"):
        size_of(root, "a")


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:topsecret@bucket/a",
        "s3a://AKIA:to/psecret@b/a",
        "gs://me:topsecret@b/a",
        # As older clients of Hadoop took it, and otherwise misspelt.
        "s3n://AKIA:topsecret@b/a",
        "S3://AKIA:topsecret@b/a",
        " s3://AKIA:topsecret@b/a",
        "gcs://me:topsecret@b/a",
    ],
)
def test_login_in_url(url: str) -> None:
    """A login isn't kept in a pipeline's archive, nor repeated by messages about it."""
    for refused in (locate, normalised):
        with pytest.raises(ConfigError, match="has a login in it") as error:
            refused(url)
        assert "secret" not in str(error.value)
        assert "AKIA" not in str(error.value)


def test_list_folder_with_links(tmp_path: Path) -> None:
    """A link that leads nowhere, or to itself, hides nothing that is beside it."""
    for name in ("a", "loop"):
        (tmp_path / name).symlink_to("nowhere" if name == "a" else "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")

    found = list_folder(UPath(tmp_path))

    assert found == {"a": False, "loop": False, "folder": True, "link": True}


@each_of(
    "name, expected",
    [
        *((name, True) for name in ("lost+found", ".snapshot", ".snapshots", ".zfs")),
        *((name, True) for name in ("@eaDir", "#snapshot", "#recycle", ".DS_Store", ".Trashes")),
        *((name, True) for name in (".fseventsd", ".Spotlight-V100", ".TemporaryItems")),
        *((name, True) for name in ("System Volume Information", "$RECYCLE.BIN")),
        *((name, True) for name in ("Thumbs.db", "desktop.ini", ".Trash-1000", ".nfs0001", "._a")),
        *((name, False) for name in ("archive.json", "generations", ".lock", ".a.json.tmp", "")),
    ],
)
def test_is_of_volume(name: str, expected: bool) -> None:
    """What file systems and NAS devices keep beside an archive isn't taken for a part of it."""
    assert is_of_volume(name) is expected


class Root:
    """An archive's folder in a store that answers with an error.

    Args:
        error: What it says when the folder is listed; None for nothing.
        has_bucket: Whether there is the bucket; an exception for "it doesn't say".
        lists_bucket: Whether the bucket itself can be listed.
    """

    path = "bucket/some/archive"

    def __init__(
        self,
        error: Exception | None,
        has_bucket: bool | Exception = True,
        protocol: str = "s3",
        *,
        lists_bucket: bool = False,
    ) -> None:
        self.lists_bucket = lists_bucket
        self.error, self.has_bucket, self.protocol = error, has_bucket, protocol
        self.fs, self.asked = self, list[str]()

    def __str__(self) -> str:
        return f"{self.protocol}://{self.path}"

    def ls(self, path: str, detail: bool) -> list[str]:
        """List the folder, or the bucket."""
        self.asked.append(path)
        is_listed = self.lists_bucket and path != self.path
        if self.error is not None and not is_listed:
            raise self.error
        return []

    def exists(self, path: str) -> bool:
        """Return whether there is the bucket; on HDFS, the folder."""
        self.asked.append(path)
        if self.protocol == "hdfs" and self.error is not None:
            raise self.error
        if isinstance(self.has_bucket, Exception):
            raise self.has_bucket
        return self.has_bucket


def named(name: str) -> Exception:
    """Return an exception of a store's package."""
    error: Exception = type(name, (Exception,), {})("it says so")
    return error


@pytest.mark.parametrize(
    "root",
    [
        Root(None),
        Root(FileNotFoundError("none")),
        Root(FileNotFoundError("none"), OSError("Forbidden"), "gs", lists_bucket=True),
        Root(None, protocol="hdfs"),
    ],
    ids=["answers", "nothing there", "bucket may only be listed", "hdfs"],
)
def test_require_reachable(root: Root) -> None:
    """A store that answers, and has the bucket, may hold an archive that isn't there yet."""
    require_reachable(root)  # type: ignore[arg-type]

    assert root.asked


@pytest.mark.parametrize(
    ("root", "kind", "says"),
    [
        (Root(FileNotFoundError("none"), False), ArchiveError, "^s3://bucket doesn't exist; creat"),
        (Root(FileNotFoundError("none"), PermissionError("no")), ArchiveError, "bucket doesn't"),
        (Root(PermissionError("no")), ArchiveError, "can't be listed: no; check the credentials"),
        *(
            (Root(named(name)), ArchiveError, "can't be opened: it says so; set AWS_ACCESS_KEY_ID")
            for name in ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound")
        ),
        (Root(named("EndpointConnectionError")), StoreUnavailableError, "Endpoint.*: it says so"),
        (Root(OSError("no route")), StoreUnavailableError, "can't be reached: OSError: no route"),
        (Root(PermissionError(13, "denied"), protocol="hdfs"), ArchiveError, "read: denied; give"),
    ],
    ids=str,
)
def test_require_reachable_refused(root: Root, kind: type[Exception], says: str) -> None:
    """Why a store can't be used is named: no bucket, no permission, no login, no answer."""
    with pytest.raises(kind, match=says) as raised:
        require_reachable(root)  # type: ignore[arg-type]

    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("missing", "read_only", "says"),
    [
        (0, False, ""),
        (os.W_OK, False, "this user may not write to "),
        (os.X_OK, False, "this user may not write to "),
        (os.W_OK, True, "its file system is read-only"),
    ],
)
def test_why_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, read_only: bool, says: str
) -> None:
    """A folder may be another user's, or on a file system that is mounted read-only."""
    folder = UPath(tmp_path)
    flags = os.ST_RDONLY if read_only else 0
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & missing)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))

    assert why_not_writable(folder).startswith(says)
    assert bool(why_not_writable(folder)) is bool(says)
    # Nothing is known of these.
    assert why_not_writable(folder / "none") == ""
    assert why_not_writable(UPath("memory://bucket/archive")) == ""


def test_locate_behind_link(tmp_path: Path) -> None:
    """`..` behind a symbolic link is the folder that the link leads to, also for Java.

    Otherwise a link stays: its name is what users know.
    """
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")

    assert locate(f"{tmp_path}/link/../archive") == UPath(tmp_path / "real" / "archive")
    assert locate(f"{tmp_path}/link/archive") == UPath(tmp_path / "link" / "archive")


def test_locate_access() -> None:
    """A store is opened with the given login, beside the options that each store needs."""
    path = locate("s3://bucket/archive", {"key": "a", "secret": "b"})

    assert {**path.storage_options}.items() >= {
        "key": "a",
        "secret": "b",
        "use_listings_cache": False,
    }.items()


@pytest.mark.parametrize("emulator", [None, "http://localhost:4443"])
def test_options_of_google(monkeypatch: pytest.MonkeyPatch, emulator: str | None) -> None:
    """Only a stand-in of Google's store is asked without a login."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    if emulator:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)

    assert paths._options("gs").get("token") == ("anon" if emulator else None)
    assert "token" not in paths._options("s3")


@pytest.mark.parametrize("durable", [False, True])
def test_make_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    """Folders above it are made as well; if it is to survive a power cut, each entry is synced."""
    synced: list[str] = []
    monkeypatch.setattr(paths, "sync_folder", lambda at: synced.append(str(at)))
    folder = UPath(tmp_path / "a" / "b" / "c")

    for _ in range(2):
        # The second time, it is there.
        make_folder(folder, durable=durable)

        assert folder.is_dir()
        expected = [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]
        assert synced == (expected if durable else [])


@pytest.mark.parametrize(
    ("number", "is_error"),
    [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True), (errno.ENOSPC, True)],
)
def test_sync_folder_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_error: bool
) -> None:
    """A file system that syncs files only is good enough; a disk that fails isn't."""

    def fail(opened: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match=os.strerror(number)) if is_error else nullcontext():
        sync_folder(UPath(tmp_path))


def test_list_folder_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can't be read isn't taken for an empty one: that would hide what is sealed."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(PermissionError):
        list_folder(UPath(tmp_path))


def test_list_folder_of_volume(tmp_path: Path) -> None:
    """What a file system keeps in a folder isn't listed."""
    for name in ("lost+found", "@eaDir", "windows"):
        (tmp_path / name).mkdir()
    (tmp_path / ".nfs0001").touch()

    assert list_folder(UPath(tmp_path)) == {"windows": True}


def test_size_of_below_file(tmp_path: Path) -> None:
    """Nothing exists below a file."""
    (tmp_path / "file").write_bytes(b"abc")

    assert size_of(UPath(tmp_path), "file") == 3
    assert size_of(UPath(tmp_path), "file/more") is None


@pytest.mark.parametrize(
    ("name", "found", "url"),
    [
        ("aiobotocore", "2.13.3", "s3://b/a"),
        ("s3fs", "2024.10.0", "s3a://b/a"),
        ("gcsfs", "2024.10.0", "gs://b/a"),
        ("adlfs", "2024.7.0", "abfs://b/a"),
    ],
)
def test_require_conditions(
    name: str, found: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that leaves out the condition of a write is refused."""
    paths._require_conditions.cache_clear()
    monkeypatch.setattr(paths, "version", lambda each: found if each == name else "2026.9.0")

    with pytest.raises(MachineError, match=f"{name} {found} leaves out the condition"):
        paths._require_conditions(url.partition(":")[0])


def test_read_bytes_google() -> None:
    """A document is read in one request: it may be replaced between two."""
    asked: list[dict[str, Any]] = []
    files = SimpleNamespace(cat_file=lambda path, **options: asked.append(options) or b"{}")
    path: Any = SimpleNamespace(protocol="gs", path="b/a", fs=files)

    assert (read_bytes(path), asked) == (b"{}", [{"concurrency": 1}])


def test_executors_page_has_the_lowest() -> None:
    """The page on executors names the releases below which packages are refused."""
    page = (Path(__file__).parents[3] / "docs" / "spark-clusters.md").read_text()
    for name in ("s3fs", "aiobotocore", "gcsfs"):
        assert f"{name}>={'.'.join(map(str, paths._LOWEST[name]))}" in page


def test_require_conditions_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that don't say their release are there all the same."""

    def untold(name: str) -> str:
        raise paths.PackageNotFoundError(name)

    paths._require_conditions.cache_clear()
    monkeypatch.setattr(paths, "version", untold)

    paths._require_conditions("s3")


@pytest.mark.parametrize("end", ["theirs", "theirs/."])
def test_require_reachable_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A folder that this user may not see, or sees from above and may not enter, is named."""
    folder, known = UPath(tmp_path / "theirs"), os.stat
    folder.mkdir()

    def refused(path: Any, **more: Any) -> Any:
        if str(path).endswith(end):
            raise PermissionError(13, "Permission denied")
        return known(path, **more)

    monkeypatch.setattr(os, "stat", refused)

    with pytest.raises(ArchiveError, match="theirs can't be opened: this user may not enter it"):
        require_reachable(folder)
