"""Compare archive.json and generation.json with the sealed segments.

Opens nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kafka_drain.archive.receipts import Receipt
from kafka_drain.offsets import Offsets

#: Value of the journal's notes that have no document.
ACCEPTED = "accepted"
#: Prefix, before a digest, of the journal's entries for settings that a drain has used.
SETTINGS = "settings/"


def note_of_settings(
    isolation_level: str, retention: str | None, immutable: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the journal's note, among its documents, of settings that a drain uses.

    A pipeline may change them, so the journal accepts all that drains have used.
    """
    settings: list[Any] = [isolation_level, retention]
    if immutable is not None:
        # Absent otherwise: journals of older releases have notes without it.
        settings.append({name: immutable[name] for name in ("days", "mode")})
    text = json.dumps(settings, separators=(",", ":"), ensure_ascii=False)
    return {f"{SETTINGS}{hashlib.sha256(text.encode()).hexdigest()}": ACCEPTED}


def ids_by_topic(
    generations: Iterable[tuple[Mapping[str, str], Mapping[str, str]]],
    known: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, set[str]]:
    """Return the ids that archive.json may say of each sealed topic.

    That is the newest sealed one, or that of a generation which was opened since: a topic may have
    been recreated.

    Args:
        generations: Of each generation, oldest first, the topic ids in its newest receipt and in
            its generation.json.
        known: The ids that the generations before them allow.
    """
    found = {topic: set(ids) for topic, ids in known.items()}
    for sealed, opened in generations:
        found |= {topic: {topic_id} for topic, topic_id in sealed.items()}
        for topic in opened.keys() & found.keys():
            found[topic].add(opened[topic])
    return found


def identity_differs(
    settings: tuple[str, str | None, Mapping[str, Any] | None],
    topics: Mapping[str, str],
    documents: Collection[str],
    ids: Mapping[str, Collection[str]],
) -> str:
    """Return the contradiction between archive.json and the sealed segments; empty for none.

    Args:
        settings: Its isolation level, its retention, and how it locks files.
        topics: Its topic ids by topic.
        documents: Documents noted in the journal; those of older releases have no settings.
        ids: The result of `ids_by_topic`.
    """
    noted = [name for name in documents if name.startswith(SETTINGS)]
    if noted and not note_of_settings(*settings).keys() & set(noted):
        isolation_level, retention, immutable = settings
        locks = "" if immutable is None else f" and immutable {dict(immutable)!r}"
        return (
            f"says isolation_level {isolation_level!r} and retention {retention!r}{locks}, which "
            "no drain has used"
        )
    for topic, accepted in sorted(ids.items()):
        if topics.get(topic) not in accepted:
            expected = " or ".join(map(repr, sorted(accepted)))
            said = topics.get(topic)
            return f"says topic {topic} has id {said!r}, but it was sealed as {expected}"
    return ""


def generation_differs(
    number: int | None, topics: Mapping[str, str] | None, starts: Offsets, receipt: Receipt
) -> str:
    """Return the contradiction between generation.json and the newest receipt; empty for none.

    For an archive that has no journal yet, this is the only check.

    Args:
        number: Its number; None if it doesn't say.
        topics: Its topic ids by topic; None if it is of a release that had none there.
        starts: Its starting offsets.
        receipt: The generation's newest receipt.
    """
    if number not in (None, receipt.generation):
        return f"says generation {number!r}, but its receipts say {receipt.generation}"
    for topic, topic_id in receipt.topics.items():
        said = topic_id if topics is None else topics.get(topic)
        if said != topic_id:
            return f"says topic {topic} has id {said!r}, but its receipts say {topic_id!r}"
    for part in receipt.partitions:
        # A partition that was added since begins with 0.
        start = starts.get(part.tp, 0)
        if start != part.start_so_far:
            return f"starts {part.tp} at {start:,}, but its receipts at {part.start_so_far:,}"
    return ""
