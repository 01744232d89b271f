"""The folder of erasures: requests, what they were carried out on, and that they were lifted."""

from __future__ import annotations

import hmac
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
    header_hash,
    in_force,
    key_hash,
    next_erasure,
    noted_paths,
    parse_done,
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


def done_of(erasure: int = 1, **changes: Any) -> ErasureDoneDocument:
    """Return what an erasure has been carried out on."""
    said: Mapping[str, Any] = {
        "erasure": erasure,
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


def test_key_hash() -> None:
    """What is kept of a key can't be found without the salt, nor taken for that of a header."""
    assert key_hash(b"salt", b"k") == hmac.digest(b"salt", b"key\0k", "sha256").hex()
    told = {
        key_hash(b"salt", b"k"),
        key_hash(b"pepper", b"k"),
        key_hash(b"salt", b"kk"),
        header_hash(b"salt", "a", b"bc"),
        header_hash(b"salt", "ab", b"c"),
        header_hash(b"pepper", "ab", b"c"),
        header_hash(b"salt", "é", b"c"),
    }
    assert len(told) == 7
    encoded = b"header\0" + (2).to_bytes(4, "big") + "é".encode() + b"c"
    assert header_hash(b"salt", "é", b"c") == hmac.digest(b"salt", encoded, "sha256").hex()


def test_read_erasures(root: UPath) -> None:
    """Erasures are read oldest first, with what was carried out and lifted of each."""
    assert read_erasures(root) == []
    first = next_erasure(root, DOCUMENT)
    first.accept()
    second = next_erasure(root, DOCUMENT.model_copy(update={"request": "r-2"}))
    second.accept()
    assert (str(first), second.name, path_of(second.number)) == (
        "erasure 1 (r-1)",
        "0002",
        "erasures/0002.json",
    )

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
    """Of two runs with the same number, one is accepted, and a retry of the other may help."""
    first = next_erasure(root, DOCUMENT)
    second = next_erasure(root, DOCUMENT.model_copy(update={"request": "r-2"}))
    first.accept()

    with pytest.raises(LockedError, match=r"accepted erasure 1 \(r-2\) at the same time"):
        second.accept()

    assert read_erasures(root) == [first]


@pytest.mark.parametrize("left", ["0004.json", "0004.lifted.json", "0004.done.json"])
def test_next_erasure_number(left: str, root: UPath) -> None:
    """A number is never given twice, though only its end, or something else, is left of it."""
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
        # What it wrote itself was searched only if that is said.
        ("erase_0001", "", False),
    ],
)
def test_has_searched(owner: str, receipt: str, root: UPath, *, is_searched: bool) -> None:
    """A segment was searched up to the receipt that is noted of its generation."""
    erasure = Erasure(root, 1, DOCUMENT, done=done_of())

    assert erasure.has_searched(owner, receipt) is is_searched
    assert not replace(erasure, done=None).has_searched(owner, receipt)


def changed(root: UPath) -> None:
    """Change what the note says."""
    path = root / "erasures" / "0001.done.json"
    path.write_text(path.read_text().replace('"records":3', '"records":4'))


def of_another(root: UPath) -> None:
    """Put another erasure's note in its place."""
    (root / "erasures" / "0001.done.json").write_bytes(done_of(2).to_bytes())


def half(root: UPath) -> None:
    """Leave half of it."""
    path = root / "erasures" / "0001.done.json"
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize(
    ("damage", "detail"),
    [(changed, "was changed"), (of_another, "is that of erasure 2"), (half, "was changed")],
)
def test_done_damaged(damage: Any, detail: str, root: UPath) -> None:
    """A note that isn't as it was sealed doesn't count: all is searched again, and that is said."""
    erasure = next_erasure(root, DOCUMENT)
    erasure.accept()
    erasure.finish(done_of())
    path = root / "erasures" / "0001.done.json"
    names = ["0001.json", "0001.done.json"]
    assert changed_done(root, names) == []

    damage(root)

    assert read_erasures(root) == [erasure]
    with pytest.raises(ArchiveError, match=rf"^{path} {detail}"):
        parse_done(path, path.read_bytes())
    [found] = changed_done(root, names)
    assert (found.reason, found.where) == (Reason.NOTE_UNREADABLE, "erasures/0001.done.json")
    assert found.detail.startswith(detail)


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
