"""Paths on HDFS, and the settings that open it; requests to a real one are in tests/stores."""

from __future__ import annotations

import copy
import errno
import getpass
import pickle
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ConfigError, StoreUnavailableError
from kafka_drain.storage import hdfs
from kafka_drain.storage.hdfs import HdfsFileSystem, HdfsPath, hdfs_files, read_settings
from kafka_drain.storage.json_files import is_unfinished
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


@pytest.mark.parametrize("login", ["simple", "kerberos"])
def test_hdfs_files_client(login: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client of a NameNode is told what the environment says, and is kept."""
    made = list[tuple[Any, ...]]()

    def client(*arguments: Any, is_kerberized: bool) -> Any:
        made.append((*arguments, is_kerberized))
        return InMemory()

    monkeypatch.setattr(hdfs, "WebHdfs", client)
    settings = {
        "fs.defaultFS": "hdfs://n:8020",
        "dfs.namenode.http-address": "n:50070",
        "hadoop.security.authentication": login,
    }
    # The other file is missing.
    write_settings(tmp_path / "hdfs-site.xml", settings)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_USER_NAME", "me")

    for path in (ROOT, ROOT / "c", HdfsPath("hdfs://other/a")):
        assert not path.exists()

    assert made == [
        ("hdfs://n:8020", ["http://n:50070"], "me", login == "kerberos"),
        ("hdfs://other", ["http://other:9870"], "me", login == "kerberos"),
    ]


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


def write_settings(file: Path, settings: dict[str, str]) -> None:
    rows = [
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    ]
    file.write_text(f"<configuration>{''.join(rows)}</configuration>", encoding="utf-8")


def test_read_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files are read, and the later one counts; a file that is missing says nothing."""
    assert read_settings(str(tmp_path)) == {}
    monkeypatch.chdir(tmp_path)
    write_settings(tmp_path / "core-site.xml", {"a": "1", "b": "é"})
    write_settings(tmp_path / "hdfs-site.xml", {"a": "2"})

    assert read_settings(str(tmp_path)) == {"a": "2", "b": "é"}
    assert read_settings("") == {}


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
        # Others are refused.
        assert length is None or length > 0
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
        (None, -3, b"0123456"),
        (0, -3, b"0123456"),
        (-3, 0, b""),
        (0, 1, b"0"),
        (-4, -3, b"6"),
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


class InMemory:
    """An HDFS in memory, as `WebHdfs` tells of it.

    Attributes:
        files: The content of each file; None for a folder.
        errors: What the next operation of a name fails with; a rename that misses its file has
            been done before.
        listed: The folders that were listed.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes | None] = {}
        self.errors: dict[str, Exception] = {}
        self.listed: list[str] = []

    def ask(self, method: str, operation: str, path: str, **parameters: str) -> Any:
        if error := self.errors.pop(operation, None):
            raise error
        known = path in self.files
        below = [each for each in self.files if each.startswith(f"{path}/")]
        if (method, operation) == ("DELETE", "DELETE"):
            if below and parameters.get("recursive") != "true":
                raise OSError(errno.EREMOTEIO, "PathIsNotEmptyDirectoryException")
            for each in [*below, *([path] if known else [])]:
                del self.files[each]
            return {"boolean": known}
        if (method, operation) == ("PUT", "MKDIRS"):
            for each in [path, *map(str, list(Path(path).parents)[:-1])]:
                self.files.setdefault(each, None)
            return {"boolean": True}
        if not known:
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        if (method, operation) == ("GET", "GETFILESTATUS"):
            return {"FileStatus": self._status(path, "")}
        assert (method, operation) == ("GET", "LISTSTATUS")
        self.listed.append(path)
        inside = [each for each in below if each.rpartition("/")[0] == path]
        found = [self._status(each, each.rpartition("/")[2]) for each in inside]
        if self.files[path] is not None:
            found = [self._status(path, "")]
        return {"FileStatuses": {"FileStatus": found}}

    def _status(self, path: str, name: str) -> dict[str, Any]:
        content = self.files[path]
        kind = "DIRECTORY" if content is None else "FILE"
        size = len(content or b"")
        return {"length": size, "type": kind, "modificationTime": 1500, "pathSuffix": name}

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        content = self.files.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "there is none", path)
        return content[start : None if length is None else start + length]

    def write(self, path: str, content: bytes, *, named: str) -> None:
        beside = Path(path)
        assert beside.parent == Path(named).parent
        assert beside.name.startswith(f".{Path(named).name}.")
        assert is_unfinished(beside.name)
        self.files[path] = content
        if error := self.errors.pop("CREATE", None):
            raise error

    def rename(self, path: str, to: str, *, overwrite: bool) -> None:
        error = self.errors.pop("RENAME", None)
        if error is not None and not isinstance(error, FileNotFoundError):
            raise error
        if to in self.files and not overwrite:
            raise FileExistsError(errno.EEXIST, "there is one", to)
        self.files[to] = self.files.pop(path)
        if error is not None:
            raise error


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """The HDFS of `ROOT`, with a few files."""
    files: Any = HdfsFileSystem()
    monkeypatch.setattr(hdfs, "hdfs_files", lambda: files)
    made: InMemory = files._clusters.setdefault("n:8020", InMemory())
    made.ask("PUT", "MKDIRS", "/a/b/c/d")
    made.ask("PUT", "MKDIRS", "/a/b/empty")
    made.files |= {"/a/b/1.json": b"{}", "/a/b/c/2.json": b"[2]", "/a/b/c/d/3.txt": b"drei"}
    return made


def below(paths: Iterable[HdfsPath]) -> list[str]:
    return sorted(str(path).removeprefix(f"{ROOT}/") for path in paths)


def test_path_listed(store: InMemory) -> None:
    """What is listed are paths on the same HDFS; a folder that isn't there has nothing below."""
    assert below(ROOT.iterdir()) == ["1.json", "c", "empty"]
    assert below(ROOT.glob("*.json")) == ["1.json"]
    assert below(ROOT.rglob("*.json")) == ["1.json", "c/2.json"]
    assert below((ROOT / "none").rglob("*")) == []


@pytest.mark.parametrize(
    ("options", "found", "listed"),
    [
        ({}, ["1.json", "c/2.json", "c/d/3.txt"], 4),
        ({"maxdepth": 1}, ["1.json"], 1),
        ({"maxdepth": 2}, ["1.json", "c/2.json"], 3),
        ({"withdirs": True}, ["1.json", "c", "c/2.json", "c/d", "c/d/3.txt", "empty"], 4),
    ],
)
def test_find(store: InMemory, options: dict[str, Any], found: list[str], listed: int) -> None:
    """Each folder is listed once; a file is described as it is alone."""
    names = [f"n:8020/a/b/{name}" for name in found]

    assert ROOT.fs.find(str(ROOT), **options) == names
    assert len(store.listed) == len(set(store.listed)) == listed
    described = ROOT.fs.find(ROOT.path, detail=True, **options)
    assert list(described) == names
    assert described == {name: ROOT.fs.info(name) for name in names}


def test_find_removed_meanwhile(store: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is removed while others are listed is left out."""
    ls = ROOT.fs.ls

    def removed(path: str, **options: Any) -> Any:
        listed = ls(path, **options)
        store.files.pop("/a/b/c", None)
        return listed

    monkeypatch.setattr(ROOT.fs, "ls", removed)

    assert ROOT.fs.find(ROOT.path) == ["n:8020/a/b/1.json"]


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [("1.json", stat.S_IFREG, 2), ("c", stat.S_IFDIR, 0), ("none", None, 0)],
)
def test_path_kind(store: InMemory, name: str, kind: int | None, size: int) -> None:
    """A path is a file, a folder or nothing; what can't be asked is none of them."""
    path = ROOT / name

    assert path.exists() is (kind is not None)
    assert path.is_file() is (kind == stat.S_IFREG)
    assert path.is_dir() is (kind == stat.S_IFDIR)
    if kind is not None:
        found = path.stat()
        assert (found.st_mode, found.st_size, found.st_mtime) == (kind, size, 1.5)
    for ask in (path.exists, path.is_file, path.is_dir):
        store.errors["GETFILESTATUS"] = StoreUnavailableError("no NameNode answers")
        with pytest.raises(StoreUnavailableError):
            ask()


def test_path_content(store: InMemory) -> None:
    """Text is UTF-8, however it is written and read."""
    path = ROOT / "x"

    assert path.write_text("é\n") == 3
    assert (path.read_bytes(), path.read_text()) == ("é\n".encode(), "é\n")
    with path.open("w", encoding="latin-1") as file:
        file.write("é")
    assert store.files["/a/b/x"] == b"\xe9"
    with path.open("rb") as file:
        assert file.read() == b"\xe9"
    with (ROOT / "c" / "d" / "3.txt").open("rb", cache_type="none") as file:
        file.seek(1)
        assert (file.read(2), file.read()) == (b"re", b"i")
    with pytest.raises(FileExistsError), path.open("xb") as file:
        file.write(b"another")
    assert store.files["/a/b/x"] == b"\xe9"


def test_path_removed(store: InMemory) -> None:
    """A folder that isn't empty is removed on demand only; what isn't there can't be removed."""
    with pytest.raises(OSError, match="NotEmpty"):
        (ROOT / "c").rmdir()
    with pytest.raises(OSError, match="NotEmpty"):
        ROOT.fs.rm_file((ROOT / "c").path)
    assert "/a/b/c/d/3.txt" in store.files
    (ROOT / "c").rmdir(recursive=True)
    ROOT.fs.rm([(ROOT / "1.json").path, (ROOT / "empty").path])
    assert list(store.files) == ["/a/b", "/a"]
    (ROOT / "c").unlink(missing_ok=True)
    for remove in (ROOT / "c").unlink, (ROOT / "c").rmdir:
        with pytest.raises(FileNotFoundError, match="hdfs://n:8020/a/b/c"):
            remove()


def test_path_made_and_renamed(store: InMemory) -> None:
    """What is there is neither made again nor renamed over, unless that is asked for."""
    (ROOT / "e" / "f").mkdir()
    (ROOT / "e").mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        (ROOT / "e").mkdir()
    moved = (ROOT / "1.json").rename(str(ROOT / "e" / "1.json"))
    ROOT.fs.cp_file(moved.path, (ROOT / "copy").path)

    made = ["copy", "e", "e/1.json", "e/f"]
    assert below(ROOT.rglob("*")) == ["c", "c/2.json", "c/d", "c/d/3.txt", *made, "empty"]
    with pytest.raises(FileExistsError):
        moved.rename(ROOT / "c" / "2.json")
    assert (moved.read_text(), (ROOT / "c" / "2.json").read_text()) == ("{}", "[2]")


MISSING = FileNotFoundError(errno.ENOENT, "there is none")


@pytest.mark.parametrize(
    ("errors", "mode", "raised"),
    [
        ({}, "overwrite", None),
        ({}, "create", FileExistsError),
        # It was renamed, and the answer was lost: the rename that is repeated finds nothing.
        ({"RENAME": MISSING}, "overwrite", None),
        ({"RENAME": OSError("refused")}, "overwrite", OSError),
        ({"RENAME": StoreUnavailableError("silent")}, "overwrite", StoreUnavailableError),
        ({"CREATE": OSError("full")}, "overwrite", OSError),
        ({"CREATE": StoreUnavailableError("silent")}, "create", StoreUnavailableError),
    ],
)
def test_pipe_file(
    store: InMemory, errors: dict[str, Exception], mode: str, raised: type[Exception] | None
) -> None:
    """A file is replaced at once or not at all, and nothing is left beside it."""
    path, before = ROOT / "1.json", dict(store.files)
    store.errors |= errors

    if raised is None:
        ROOT.fs.pipe_file(path.path, b"new", mode=mode)
        before["/a/b/1.json"] = b"new"
    else:
        with pytest.raises(raised) as caught:
            ROOT.fs.pipe_file(path.path, b"new", mode=mode)
        assert not errors or caught.value in errors.values()

    assert store.files == before


@pytest.mark.parametrize("others", [b"other", None])
def test_pipe_file_lost(
    store: InMemory, others: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written beside and isn't there any more isn't taken for a file that was written."""

    def lost(path: str, to: str, *, overwrite: bool) -> None:
        del store.files[path]
        if others is None:
            del store.files[to]
        raise MISSING

    monkeypatch.setattr(store, "rename", lost)

    with pytest.raises(FileNotFoundError) as caught:
        (ROOT / "1.json").write_text("new")

    assert caught.value is MISSING


@pytest.mark.parametrize("second", [OSError("refused"), StoreUnavailableError("silent")])
def test_pipe_file_left_beside(store: InMemory, second: Exception) -> None:
    """The first error is told, also where what was written beside can't be removed."""
    first = StoreUnavailableError("first")
    store.errors |= {"RENAME": first, "DELETE": second}

    with pytest.raises(StoreUnavailableError) as caught:
        (ROOT / "1.json").write_text("new")

    assert caught.value is first
