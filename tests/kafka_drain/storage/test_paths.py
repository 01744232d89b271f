"""A place is named the same way on a disk and in a store."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from kafka_drain.archive.window import Window
from kafka_drain.errors import ArchiveError, ConfigError, MachineError, StoreUnavailableError
from kafka_drain.storage.paths import (
    exists,
    hadoop_path,
    has_folders,
    is_file,
    is_local,
    list_folder,
    locate,
    make_folder,
    read_bytes,
    size_of,
    sync_files,
)
from kafka_drain.storage.schemes import normalised
from tests.kafka_drain.unsure_store import unsure_store


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
    """Many files are read at a time: each may take a little memory only."""
    path = locate("s3://bucket/archive")

    assert (path / "a").fs.default_block_size == 8 << 20
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


def test_make_folder(tmp_path: Path) -> None:
    """Folders above it are made as well; one that is there is left alone."""
    make_folder(UPath(tmp_path / "a" / "b"))
    make_folder(UPath(tmp_path / "a" / "b"))

    assert (tmp_path / "a" / "b").is_dir()


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
