"""Check the archive's copies of sealed files, before a repair needs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from upath import UPath

from kafka_drain.archive.copies import copied_paths, copy_path, read_copy
from kafka_drain.archive.documents import ArchiveDocument
from kafka_drain.archive.journal.digests import digest_of
from kafka_drain.archive.journal.entries import REMOVED, Noted
from kafka_drain.archive.journal.identity import identity_differs
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.paths import read_if_there


def check_copies(
    root: UPath, noted: Noted, topic_ids: Mapping[str, Collection[str]]
) -> list[Finding]:
    """Return a warning for each copy that a repair couldn't restore.

    Args:
        noted: The journal's notes.
        topic_ids: The ids that archive.json may say of each sealed topic.
    """
    named = {f"{folder}/receipts/{tip.name}": tip.sha256 for folder, tip in noted.tips.items()}
    named |= noted.documents
    found = []
    for where in copied_paths(root):
        copy, original = read_copy(root, where), read_if_there(root / where)
        if copy is None:
            continue
        problem = copy_problem(where, copy, original, named.get(where))
        if where == "archive.json" and not problem:
            problem = _identity_problem(root, copy, noted, topic_ids)
        if problem:
            found.append(Finding(Reason.COPY_DAMAGED, f"copies/{where}", problem))
    return found


def copy_problem(where: str, copy: bytes, original: bytes | None, named: str | None) -> str:
    """Describe why a repair couldn't restore a copy; empty if it could.

    A copy may differ from its original in what the digest doesn't cover, such as added topics.

    Args:
        where: The original, relative to the archive.
        copy: Content of the copy.
        original: Content of the original; None if it is missing.
        named: Digest of the original in the journal; None if it isn't there. Of older receipts,
            the original counts, which the check of the chain compares with its neighbours.
    """
    if named == REMOVED or copy == original:
        return ""
    try:
        found = digest_of(where, copy)
    except ValueError as error:
        return f"can't be read: {error}"
    expected = named or _digest(where, original)
    if expected in (None, found):
        return ""
    return f"has digest {found[:12]}, but {str(expected)[:12]} was sealed"


def _identity_problem(
    root: UPath, copy: bytes, noted: Noted, topic_ids: Mapping[str, Collection[str]]
) -> str:
    """Return the error of a copy of archive.json where its digest doesn't reach; empty for none."""
    try:
        document = ArchiveDocument.parse(copy_path(root, "archive.json"), copy)
    except ArchiveError as error:
        return str(error)
    return identity_differs(document.settings, document.topics, noted.documents, topic_ids)


def _digest(where: str, content: bytes | None) -> str | None:
    try:
        return digest_of(where, content) if content is not None else None
    except ValueError:
        # Gets its own finding.
        return None
