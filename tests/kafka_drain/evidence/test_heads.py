"""An archive's newest receipts, compared with what was seen of them before."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.journal.files import read_journal
from kafka_drain.evidence.heads import compare_heads, heads_of, judge_head
from tests.kafka_drain.golden import sealed_copy

RECEIPT = "generations/0001/receipts/000000000001.json"
ENTRY = "journal/000000000005.json"


@pytest.mark.parametrize(
    ("path", "seen", "entries", "expected"),
    [
        (RECEIPT, "a", 5, ""),
        (RECEIPT, None, 5, "is missing"),
        (RECEIPT, "b", 5, "has hash b, but was seen with a"),
        (RECEIPT, "", 5, "has hash none, it is damaged"),
        (ENTRY, "a", 5, ""),
        # The journal is longer now: entries that a later one holds are removed.
        (ENTRY, None, 5, ""),
        (ENTRY, None, 40, ""),
        # The journal is shorter than it was: the archive is an older copy.
        (ENTRY, None, 4, "is missing"),
        (ENTRY, None, 0, "is missing"),
        (ENTRY, "b", 5, "has hash b, but was seen with a"),
        (ENTRY, "b", 40, "has hash b, but was seen with a"),
        (ENTRY, "", 5, "has hash none, it is damaged"),
    ],
)
def test_judge_head(path: str, seen: str | None, entries: int, expected: str) -> None:
    """Whatever was seen must still be there with its hash; a removed entry isn't missed."""
    found = judge_head(path, "a", seen, entries)

    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_heads_of_archive(tmp_path: Path) -> None:
    """The heads are the newest receipt of each generation and the newest entry."""
    archive = sealed_copy(tmp_path / "archive")
    journal = read_journal(archive.root)
    heads = heads_of(journal)
    newest = archive.generation(1).last_receipt()
    assert newest is not None

    assert heads == {
        f"generations/0001/receipts/{newest.name}": newest.sha256,
        f"journal/{journal.newest:012d}.json": journal.sha256,
    }
    assert compare_heads(archive.root, [heads], journal.newest) == []


def test_compare_heads_changed(tmp_path: Path) -> None:
    """A receipt that is gone, torn or another one is found, each once."""
    archive = sealed_copy(tmp_path / "archive")
    journal = read_journal(archive.root)
    heads = heads_of(journal)
    [receipt, entry] = heads
    (archive.root / receipt).write_bytes(b"{}")
    (archive.root / entry).unlink()
    gone = {"generations/0009/receipts/000000000000.json": "a"}
    found = compare_heads(archive.root, [heads, heads, gone], journal.newest)

    assert [(each.path, each.detail.split(",")[0]) for each in found] == [
        (receipt, "has hash none"),
        (*gone, "is missing; it was there with hash a"),
    ]
