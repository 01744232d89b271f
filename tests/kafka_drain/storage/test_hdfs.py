"""Paths on HDFS, and the settings that open it; requests to a real one are in tests/stores."""

from __future__ import annotations

import copy
import errno
import getpass
import pickle
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ConfigError
from kafka_drain.storage.hdfs import HdfsFileSystem, HdfsPath, hdfs_files, read_settings
from kafka_drain.storage.outages import may_pass

ROOT = HdfsPath("hdfs://n:8020/a/b")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (HdfsPath("hdfs://n"), "hdfs://n"),
        (HdfsPath("hdfs://n/"), "hdfs://n"),
        (HdfsPath("hdfs://n/a/"), "hdfs://n/a"),
        (HdfsPath("n/a"), "hdfs://n/a"),
        (HdfsPath("hdfs://n") / "a", "hdfs://n/a"),
        (HdfsPath("hdfs://n", "a", "b"), "hdfs://n/a/b"),
        (ROOT / "c" / "d.json", "hdfs://n:8020/a/b/c/d.json"),
        (ROOT / "c/d", "hdfs://n:8020/a/b/c/d"),
        (ROOT.joinpath("c", "d"), "hdfs://n:8020/a/b/c/d"),
        (ROOT.with_name("c"), "hdfs://n:8020/a/c"),
        ((ROOT / "c.json").with_suffix(".html"), "hdfs://n:8020/a/b/c.html"),
        (ROOT.parent, "hdfs://n:8020/a"),
        (ROOT.parent.parent, "hdfs://n:8020"),
        (ROOT.parent.parent.parent, "hdfs://n:8020"),
        (ROOT.absolute(), "hdfs://n:8020/a/b"),
    ],
)
def test_path(path: HdfsPath, text: str) -> None:
    """What is derived from a path keeps the NameNode, and is written as its URL."""
    assert str(path) == f"{path}" == text
    assert path.path == text.removeprefix("hdfs://")
    assert path == HdfsPath(text)


def test_path_again() -> None:
    """A path that is copied or pickled, or made a UPath, stays what it is."""
    path = ROOT / "c.json"

    for again in (copy.copy(path), pickle.loads(pickle.dumps(path)), UPath(path), HdfsPath(path)):
        assert type(again) is HdfsPath
        assert again == path
        assert hash(again) == hash(path)
    assert path != UPath("/a/b/c.json")
    assert sorted([path, ROOT]) == [ROOT, path]
    assert repr(path) == "HdfsPath('hdfs://n:8020/a/b/c.json')"


def test_path_taken_apart() -> None:
    """Its parts are those of its text."""
    path = ROOT / "c.tar.gz"

    assert (path.name, path.stem, path.suffix) == ("c.tar.gz", "c.tar", ".gz")
    assert path.parts == ("n:8020", "a", "b", "c.tar.gz")
    assert [str(each) for each in path.parents] == [
        "hdfs://n:8020/a/b",
        "hdfs://n:8020/a",
        "hdfs://n:8020",
    ]
    assert (path.protocol, dict(path.storage_options), path.is_absolute()) == ("hdfs", {}, True)


def test_hdfs_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each user and each configuration has a file system, which all paths share."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "one")
    first = hdfs_files()

    assert ROOT.fs is (ROOT / "c").fs is first
    monkeypatch.setenv("HADOOP_USER_NAME", "two")
    assert ROOT.fs is not first
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert ROOT.fs is not first


def test_hdfs_files_without_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user without a name, as OpenShift gives one, has a file system too."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr(getpass, "getuser", nameless)

    assert hdfs_files() is ROOT.fs


def test_may_pass_refusal() -> None:
    """What an HDFS refuses stays refused: the client itself tells what is an outage."""
    refusal = OSError(errno.EREMOTEIO, "RemoteException")

    assert not may_pass(ROOT, refusal)
    assert may_pass(UPath("memory://archive"), refusal)


def test_read_settings(tmp_path: Path) -> None:
    """Both files are read, and the later one counts; a file that is missing says nothing."""
    assert read_settings("") == {}
    assert read_settings(str(tmp_path)) == {}
    for name, value in (("core-site.xml", "1"), ("hdfs-site.xml", "2")):
        row = f"<property><name>a</name><value>{value}</value></property>"
        (tmp_path / name).write_text(f"<configuration>{row}</configuration>")

    assert read_settings(str(tmp_path)) == {"a": "2"}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"<a/>", r"core-site\.xml of HADOOP_CONF_DIR has <a>"),
        (b"\xff", r"core-site\.xml of HADOOP_CONF_DIR .*utf-8"),
    ],
)
def test_read_settings_damaged(tmp_path: Path, content: bytes, match: str) -> None:
    """A file that isn't one of Hadoop's is named."""
    (tmp_path / "core-site.xml").write_bytes(content)

    with pytest.raises(ConfigError, match=match):
        read_settings(str(tmp_path))


def test_read_settings_unreadable(tmp_path: Path) -> None:
    """A file that can't be opened is named."""
    (tmp_path / "core-site.xml").mkdir()

    with pytest.raises(ConfigError, match=r"core-site\.xml can't be read"):
        read_settings(str(tmp_path))


class Asked:
    """An HDFS that has one file of ten bytes."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return b"0123456789"[start : None if length is None else start + length]

    def ask(self, method: str, operation: str, path: str, **parameters: object) -> Any:
        status = {"length": 10, "type": "FILE", "modificationTime": 1500, "pathSuffix": ""}
        return {"FileStatus": status}


@pytest.mark.parametrize(
    ("start", "end", "part"),
    [
        (None, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 5, b"34"),
        (None, 5, b"01234"),
        (-3, None, b"789"),
        (-30, None, b"0123456789"),
        (2, -3, b"23456"),
        (5, 5, b""),
        (5, 3, b""),
        (5, -30, b""),
    ],
)
def test_cat_file(start: int | None, end: int | None, part: bytes) -> None:
    """A part is cut as Python cuts it."""
    files: Any = HdfsFileSystem()
    files._clusters["n"] = Asked()

    assert files.cat_file("n/a", start, end) == part
    assert files.info("hdfs://n/a") == {"name": "n/a", "size": 10, "type": "file", "mtime": 1.5}


def test_writing_after_error() -> None:
    """What an exception has interrupted isn't written."""
    files: Any = HdfsFileSystem()
    written = list[bytes]()
    files.pipe_file = lambda path, value, mode: written.append(value)

    def interrupted() -> None:
        with files.open("n/a", "wb") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert written == []
    with files.open("n/a", "w") as file:
        file.write("all")
    assert written == [b"all"]
