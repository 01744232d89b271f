"""The newest receipts of an archive, which stand for all earlier ones by their hashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from upath import UPath

from kafka_drain.archive.journal.digests import digest_of
from kafka_drain.archive.journal.entries import Journal, parse_entry
from kafka_drain.storage.paths import read_bytes

_ENTRY = re.compile(r"journal/(\d{12})\.json")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A receipt or an entry that has changed.

    Attributes:
        path: Its path relative to the archive.
        detail: The observed and the expected state.
    """

    path: str
    detail: str


def heads_of(journal: Journal) -> dict[str, str]:
    """Return the hashes of the newest receipts and of the journal's newest entry, by path.

    The entry stands for the windows too, whose receipts have no neighbours.
    """
    tips = journal.noted.tips
    heads = {f"{folder}/receipts/{tip.name}": tip.sha256 for folder, tip in tips.items()}
    if journal.sha256 is not None:
        heads[f"journal/{journal.newest:012d}.json"] = journal.sha256
    return heads


def judge_head(path: str, expected: str, seen: str | None, entries: int) -> str:
    """Return the contradiction between a receipt or entry and its earlier state; empty for none.

    Args:
        path: Its path relative to the archive.
        expected: Its hash as it was seen before.
        seen: Its hash now; None if it is missing, empty if it can't be read.
        entries: Number of the journal's newest entry.
    """
    entry = _ENTRY.fullmatch(path)
    if seen is None and entry and int(entry[1]) <= entries:
        # Removed when a later entry held everything.
        return ""
    if seen is None:
        return f"is missing; it was there with hash {expected}"
    if seen == expected:
        return ""
    return f"has hash {seen or 'none, it is damaged'}, but was seen with {expected}"


def compare_heads(
    root: UPath, seen_before: Iterable[Mapping[str, str]], entries: int
) -> list[Contradiction]:
    """Compare an archive with hashes that were seen before.

    Args:
        seen_before: Hashes by path relative to the archive.
        entries: Number of the journal's newest entry.
    """
    pairs = dict.fromkeys(pair for heads in seen_before for pair in heads.items())
    there = {path: _hash_of(root, path) for path in dict.fromkeys(path for path, _ in pairs)}
    judged = ((path, judge_head(path, hash_, there[path], entries)) for path, hash_ in pairs)
    return [Contradiction(path, detail) for path, detail in judged if detail]


def _hash_of(root: UPath, path: str) -> str | None:
    try:
        content = read_bytes(root / path)
        return parse_entry(content).sha256 if _ENTRY.fullmatch(path) else digest_of(path, content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return ""
