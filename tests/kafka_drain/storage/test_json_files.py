"""Documents: written whole or not at all, and readable or named."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from kafka_drain.errors import ArchiveError, NotWritableError, StoreUnavailableError
from kafka_drain.storage import json_files
from kafka_drain.storage.json_files import (
    clear_unfinished,
    create_text,
    is_unfinished,
    read_document,
    read_note,
    replace_document,
    write_document,
    write_text,
)


def test_write_document_round_trip(tmp_path: Path) -> None:
    """What was written is read back, in a folder that didn't exist."""
    path = UPath(tmp_path / "new" / "folder" / "a.json")

    write_document(path, {"b": 1, "a": ["é", None]})

    assert read_document(path) == {"b": 1, "a": ["é", None]}
    assert path.read_text().endswith("}\n")
    assert os.listdir(tmp_path / "new" / "folder") == ["a.json"]


def test_write_document_replaces(tmp_path: Path) -> None:
    """A second document takes the place of the first one, also when it is shorter."""
    path = UPath(tmp_path / "a.json")
    write_document(path, {"key": "x" * 1000})

    write_document(path, {"key": ""})

    assert read_document(path) == {"key": ""}


def test_write_text_replace_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rename fails, the old file stays and no other file is left."""
    path = UPath(tmp_path / "a.json")
    write_text(path, "old")

    def fail(source: str, target: str) -> None:
        # The new text has to be complete before it gets the name.
        assert Path(source).read_text() == "new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ArchiveError, match=r"a\.json can't be written: No space left on device"):
        write_text(path, "new")

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_write_text_below_file(tmp_path: Path) -> None:
    """A folder that can't be made is an ArchiveError that names the file."""
    (tmp_path / "file").write_text("mine")

    with pytest.raises(ArchiveError, match=r"a\.json can't be written"):
        write_text(UPath(tmp_path / "file" / "a.json"), "text")

    assert (tmp_path / "file").read_text() == "mine"


def test_write_text_over_folder(tmp_path: Path) -> None:
    """A folder in the place of the file stays, and no other file is left."""
    (tmp_path / "a.json").mkdir()

    with pytest.raises(ArchiveError, match="can't be written"):
        write_text(UPath(tmp_path / "a.json"), "text")

    assert os.listdir(tmp_path) == ["a.json"]


def test_write_text_object_store() -> None:
    """A store without renames gets the text in one write."""
    path = UPath("memory://documents/a.json")

    write_text(path, "text")

    assert path.read_text() == "text"
    assert [path] == list(path.parent.iterdir())


def test_clear_unfinished_other_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill left of a document is removed; another command's write beside it succeeds."""
    left = f".a.json.{'0' * 32}.tmp"
    (tmp_path / left).write_text("half")
    replace = os.replace

    def replace_late(source: str, target: str) -> None:
        clear_unfinished(UPath(tmp_path / "a.json"))
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_late)
    for name in ("b.json", "a.json.json", "x.a.json"):
        write_text(UPath(tmp_path / name), name)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: name for name in ("b.json", "a.json.json", "x.a.json")
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.json isn't JSON"),
        (b'{"a": 1', r"a\.json isn't JSON .*restore it from a copy"),
        (b"[1]", r"a\.json holds '\[1\]', expected a JSON object"),
        (b"null", r"a\.json holds 'null'"),
        (b"\xff\xfe\x00", r"a\.json isn't JSON"),
        (b"\xef\xbb\xbf{}", r"a\.json isn't JSON"),
        ("{}".encode("utf-16"), r"a\.json isn't JSON"),
    ],
)
def test_read_document_unreadable(tmp_path: Path, content: bytes, message: str) -> None:
    """A file that isn't a JSON object is an ArchiveError that names it."""
    (tmp_path / "a.json").write_bytes(content)

    with pytest.raises(ArchiveError, match=message):
        read_document(UPath(tmp_path / "a.json"))


def test_read_document_missing(tmp_path: Path) -> None:
    """A missing file stays a FileNotFoundError: the caller knows what that means."""
    with pytest.raises(FileNotFoundError):
        read_document(UPath(tmp_path / "a.json"))


@pytest.mark.parametrize("write", [write_text, create_text])
def test_write_text_synced(
    write: Callable[[UPath, str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut there is the whole text: its bytes are synced, then its name, and folders.

    A file has its bytes on the disk before it has its name there.
    """
    steps: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def follow_fsync(opened: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        steps.append(str(path.relative_to(tmp_path)) if path.is_dir() else path.read_text())
        fsync(opened)

    def follow_replace(source: str, target: str) -> None:
        steps.append("named")
        replace(source, target)

    def follow_link(source: str, target: str) -> None:
        steps.append("named")
        link(source, target)

    monkeypatch.setattr(os, "fsync", follow_fsync)
    monkeypatch.setattr(os, "replace", follow_replace)
    monkeypatch.setattr(os, "link", follow_link)

    write(UPath(tmp_path / "new" / "deep" / "a.json"), "text")
    assert steps == [".", "new", "text", "named", "new/deep"]

    steps.clear()
    write(UPath(tmp_path / "new" / "deep" / "b.json"), "text")
    assert steps == ["text", "named", "new/deep"]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "No space left on device; free disk space"),
        (errno.EDQUOT, "Disk quota exceeded; free disk space, or raise the quota"),
        (errno.EROFS, "Read-only file system; its file system is mounted read-only"),
        (errno.EIO, "Input/output error; its disk has failed"),
        (errno.EACCES, "Permission denied; check that .+ this user may write to it"),
    ],
)
@pytest.mark.parametrize("write", [write_text, create_text])
def test_write_text_not_written(
    write: Callable[[UPath, str], object],
    number: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What to do is of the error's own kind: a full disk is no missing right. Nothing is left."""

    def fail(opened: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(ArchiveError, match=rf"a\.json can't be written: {told}"):
        write(UPath(tmp_path / "a.json"), "text")

    assert os.listdir(tmp_path) == []


def test_create_text_without_links_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hard links, as on SMB or exFAT, a full disk leaves no half of a sealed document."""

    def no_link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def fsync(opened: int) -> None:
        if os.readlink(f"/proc/self/fd/{opened}").endswith("/a.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = UPath(tmp_path / "a.json")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_link)
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(ArchiveError, match="free disk space"):
            create_text(path, "sealed")

    assert os.listdir(tmp_path) == []
    assert create_text(path, "sealed")


IN_C_LOCALE = """
from upath import UPath
from kafka_drain.storage.json_files import write_text

path = UPath("memory://locale/a.json")
write_text(path, "\\xf6")
print(path.read_bytes().hex())
"""


def test_write_text_locale() -> None:
    """In a store too, text is UTF-8 in every locale: documents name its SHA-256."""
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    run = subprocess.run(
        [sys.executable, "-c", IN_C_LOCALE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.stdout.strip() == "ö".encode().hex(), run.stderr


#: What s3fs raises when nobody answers, and for 503 and 403; what gcsfs raises for 503 and 403.
SILENT = type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})
GOOGLE = type("HttpError", (Exception,), {"__module__": "gcsfs.retry"})


def google(code: int) -> Exception:
    """Return an error of Google's store."""
    error: Any = GOOGLE(f"answered {code}")
    error.code = code
    return error  # type: ignore[no-any-return]


def s3(code: str, status: int) -> Exception:
    """Return what s3fs makes of an answer with a code that it doesn't know."""
    answer: Any = Exception(f"An error occurred ({code})")
    answer.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = OSError(errno.EIO, code)
    error.__cause__ = answer
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SILENT("no endpoint"), StoreUnavailableError),
        (TimeoutError("timed out"), StoreUnavailableError),
        (OSError(errno.EBUSY, "SlowDown"), StoreUnavailableError),
        (s3("SlowDownWrite", 503), StoreUnavailableError),
        (s3("XMinioServerNotInitialized", 503), StoreUnavailableError),
        (s3("504", 504), StoreUnavailableError),
        (s3("TooManyRequests", 429), StoreUnavailableError),
        (s3("ThrottlingException", 400), StoreUnavailableError),
        (s3("ExpiredToken", 400), StoreUnavailableError),
        (s3("RequestTimeTooSkewed", 403), StoreUnavailableError),
        (s3("XNotImplemented", 501), ArchiveError),
        (s3("XMinioStorageFull", 507), ArchiveError),
        (s3("XMinioAdminBucketQuotaExceeded", 400), ArchiveError),
        (google(503), StoreUnavailableError),
        (google(403), ArchiveError),
        (PermissionError(errno.EACCES, "Forbidden"), ArchiveError),
        (OSError(errno.EINVAL, "InvalidRequest"), ArchiveError),
    ],
    ids=str,
)
@pytest.mark.parametrize("write", [write_text, create_text])
def test_write_store_busy(
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[UPath, str], object],
    error: Exception,
    kind: type[Exception],
) -> None:
    """A store that doesn't answer, or is busy, may take it later: a task is repeated."""

    def refuse(*_: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(MemoryFileSystem, "_open", refuse)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)

    with pytest.raises(kind, match=r"a\.json can't be written") as raised:
        write(UPath("memory://busy/a.json"), "{}")
    assert "disk" not in str(raised.value)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, NotWritableError),
        (errno.EPERM, NotWritableError),
        (errno.EROFS, NotWritableError),
        (errno.ENOSPC, ArchiveError),
        (errno.EIO, ArchiveError),
    ],
)
def test_write_text_not_allowed(
    number: int, kind: type[ArchiveError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not write is told apart from who can't: a reader can do without."""

    def fail(opened: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(ArchiveError) as raised:
        write_text(UPath(tmp_path / "a.json"), "text")

    assert type(raised.value) is kind


def test_read_document_keys(tmp_path: Path) -> None:
    """A document that lacks keys is named with all that it lacks."""
    path = UPath(tmp_path / "a.json")
    path.write_text('{"b": 1}')

    assert read_document(path, "b") == {"b": 1}
    with pytest.raises(ArchiveError, match=r"a\.json has no a, c; restore it from a copy"):
        read_document(path, "a", "b", "c")


def test_read_note_unreadable(tmp_path: Path) -> None:
    """What proves nothing needn't be there, nor be readable."""
    path = UPath(tmp_path / "a.json")
    assert read_note(path) is None
    path.write_text("")
    assert read_note(path) is None
    assert read_note(path / "b.json") is None
    path.write_text('{"b": 1}')
    assert read_note(path, "c") is None

    assert read_note(path, "b") == {"b": 1}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f".a.json.{'0' * 32}.tmp", True),
        (f"a.json.{'0' * 32}.tmp", False),
        (f".a.json.{'0' * 31}.tmp", False),
        (f".a.json.{'0' * 32}.tmp.gz", False),
        (".a.json.tmp", False),
        ("a.json", False),
    ],
)
def test_is_unfinished(name: str, found: bool) -> None:
    """Only the name of a write that was cut off is one: other files are the user's."""
    assert is_unfinished(name) is found


def test_create_text_without_links_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hard links, an interrupted write leaves nothing that others take for the document."""

    def no_link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def fsync(opened: int) -> None:
        if os.readlink(f"/proc/self/fd/{opened}").endswith("/a.json"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(KeyboardInterrupt):
        create_text(UPath(tmp_path / "a.json"), "sealed")

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("stored", "error", "replaced"),
    [
        # Its response was lost.
        ('{\n  "a": 1\n}\n', FileExistsError(), True),
        ("another's", FileExistsError(), False),
        (None, FileExistsError(), False),
        ("another's", PermissionError(errno.EACCES, "denied"), None),
    ],
)
def test_replace_document_refused(
    stored: str | None, error: OSError, replaced: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused write is this one's if its content is there; a missing right is no refusal."""
    path = UPath(f"memory://replaced/{stored is None}/a.json")
    if stored is not None:
        path.write_text(stored)
    versions: list[str] = []

    def refuse(_: UPath, content: bytes, version: str) -> None:
        versions.append(version)
        raise error

    monkeypatch.setattr(json_files, "replace_object", refuse)

    if replaced is None:
        with pytest.raises(NotWritableError):
            replace_document(path, {"a": 1}, "7")
    else:
        assert replace_document(path, {"a": 1}, "7") is replaced
    assert versions == ["7"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EMLINK])
def test_create_text_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """However a file system says that it has no hard links, a text is created, and only once."""

    def no_link(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_link)
    path = UPath(tmp_path / "a.json")

    assert create_text(path, "first")
    assert not create_text(path, "second")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.json"]
