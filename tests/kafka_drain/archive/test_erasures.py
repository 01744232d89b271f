"""The folder of erasures: requests, what they were carried out on, and that they were lifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.documents import (
    ErasureDocument,
    ErasureDoneDocument,
    ErasureLiftedDocument,
)
from kafka_drain.archive.erasures import (
    Erasure,
    changed_done,
    in_force,
    next_erasure,
    noted_paths,
    parse_noted,
    path_of,
    read_erasures,
)
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.findings import Reason

DOCUMENT = ErasureDocument.model_validate(
    {
        "format_version": 1,
        "request": "r-1",
        "by": "somebody",
        "asked_at": "2026-01-01T00:00:00.000+00:00",
        "salt": "00ff",
        "keys": ["ab"],
        "headers": [],
        "topics": [],
        "from_ms": None,
        "to_ms": None,
        "scope": [],
        "for_ever": False,
    }
)
LIFTED = ErasureLiftedDocument.model_validate(
    {"format_version": 1, "by": "another", "lifted_at": "2026-01-02T00:00:00.000+00:00"}
)


def done_of(**changes: Any) -> ErasureDoneDocument:
    """Return what an erasure has been carried out on."""
    said: Mapping[str, Any] = {
        "erasure": 1,
        "done_at": "2026-01-03T00:00:00.000+00:00",
        "records": 3,
        "windows": {"erase_0001": "ab"},
        "generations": {"1": "000000000007.json"},
        "searched": ["repair_1"],
    }
    return ErasureDoneDocument(**{**said, **changes})


@pytest.fixture
def root(tmp_path: Any) -> UPath:
    """An archive's folder, without erasures."""
    return UPath(tmp_path / "archive")


def test_read_erasures(root: UPath) -> None:
    """Erasures are read oldest first, each with what it was carried out on and if it was lifted."""
    assert read_erasures(root) == []
    first = next_erasure(root, DOCUMENT)
    first.accept()
    second = next_erasure(root, DOCUMENT.model_copy(update={"request": "r-2"}))
    second.accept()
    assert (root / path_of(second.number)).is_file()

    first = first.finish(done_of())
    assert second.lift(LIFTED)
    assert not second.lift(LIFTED.model_copy(update={"by": "a third"}))

    assert read_erasures(root) == [first, replace(second, lifted=LIFTED)]
    assert first.done == done_of()
    assert in_force(read_erasures(root)) == [first]
    # A later run replaces it.
    first.finish(done_of(records=5))
    assert read_erasures(root)[0].done == done_of(records=5)


def test_accept_taken(root: UPath) -> None:
    """Of two runs with the same number, one is accepted; the other is refused and may try again."""
    first = next_erasure(root, DOCUMENT)
    second = next_erasure(root, DOCUMENT.model_copy(update={"request": "r-2"}))
    first.accept()

    with pytest.raises(LockedError, match="at the same time"):
        second.accept()

    assert read_erasures(root) == [first]


@pytest.mark.parametrize("left", ["0004.json", "0004.lifted.json"])
def test_next_erasure_number(left: str, root: UPath) -> None:
    """A number is never given twice, even if only the end of its erasure was written."""
    assert next_erasure(root, DOCUMENT).number == 1
    folder = root / "erasures"
    folder.mkdir(parents=True)
    for name in ("0002.json", "notes.txt", left):
        (folder / name).write_text("{}")

    assert next_erasure(root, DOCUMENT).number == 5


@pytest.mark.parametrize(
    ("owner", "receipt", "is_searched"),
    [
        ("1", "000000000006.json", True),
        ("1", "000000000007.json", True),
        ("1", "000000000008.json", False),
        ("2", "000000000000.json", False),
        ("repair_1", "", True),
        ("repair_2", "", False),
    ],
)
def test_has_searched(owner: str, receipt: str, root: UPath, *, is_searched: bool) -> None:
    """A generation was searched up to the receipt that is noted of it, a window if it is named."""
    erasure = Erasure(root, 1, DOCUMENT, done=done_of())

    assert erasure.has_searched(owner, receipt) is is_searched
    assert not replace(erasure, done=None).has_searched(owner, receipt)


@pytest.mark.parametrize("is_torn", [False, True])
def test_read_erasures_done_changed(root: UPath, *, is_torn: bool) -> None:
    """A note that isn't as it was sealed doesn't count: all is searched again, and that is said."""
    erasure = next_erasure(root, DOCUMENT)
    erasure.accept()
    erasure.finish(done_of())
    path = root / "erasures" / "0001.done.json"
    names = ["0001.json", path.name]
    assert changed_done(root, names) == []

    content = path.read_bytes()
    path.write_bytes(content[:40] if is_torn else content.replace(b'"records":3', b'"records":4'))

    assert read_erasures(root) == [erasure]
    [found] = changed_done(root, names)
    assert (found.reason, found.where) == (Reason.NOTE_UNREADABLE, "erasures/0001.done.json")


def test_noted_paths(root: UPath) -> None:
    """The journal names what is written once, and nothing that a later run replaces."""
    names = ["0002.json", "0001.lifted.json", "0001.json", "0001.done.json", "1.json", "notes.json"]

    paths = noted_paths(names)

    assert paths == ["erasures/0001.json", "erasures/0001.lifted.json", "erasures/0002.json"]
    erasure = next_erasure(root, DOCUMENT)
    erasure.accept()
    erasure.lift(LIFTED)
    request, lifted = ((root / path).read_bytes() for path in paths[:2])
    parse_noted(root, paths[0], request)
    parse_noted(root, paths[1], lifted)
    for path, other in ((paths[0], lifted), (paths[1], request)):
        with pytest.raises(ArchiveError, match=path):
            parse_noted(root, path, other)
