"""Clients' messages about a batch that is damaged in Kafka's log. Opens nothing."""

from __future__ import annotations

import re

#: Java's client, about a batch or a record in it that has changed, and about a response.
_JAVA = (
    re.compile(
        r"Record (?:batch )?for partition (?P<tp>\S+) at offset (?P<offset>\d+) is invalid, "
        r"cause: (?P<cause>[^\n(]+)"
    ),
    re.compile(
        r"Encountered (?P<cause>corrupt message) when fetching offset (?P<offset>\d+) for "
        r"topic-partition (?P<tp>[^\s,]+)"
    ),
)
_LIBRDKAFKA = re.compile(r"at offset (?P<offset>\d+)")


def damaged_batch(message: str) -> str | None:
    """Return an error text for the damaged batch in a message of Java's client; None if none."""
    for pattern in _JAVA:
        if found := pattern.search(message):
            cause = found["cause"].partition(" SQLSTATE")[0].strip(" .;:")
            return damage(found["tp"].rstrip("."), int(found["offset"]), cause)
    return None


def damage_heard(tp: object, message: str, asked: int) -> str:
    """Return an error text for the damaged batch in a message of librdkafka.

    Args:
        asked: The offset that was asked for, in case the message names none.
    """
    found = _LIBRDKAFKA.search(message)
    return damage(tp, int(found["offset"]) if found else asked, message)


def damage(tp: object, offset: int, cause: str) -> str:
    """Return an error text for a damaged batch in Kafka's log, with the remedy."""
    return (
        f"{tp} offset {offset}: the batch that starts here is damaged in Kafka's log ({cause}), "
        "and consumers refuse it. If another replica's copy is intact, stop the leader's broker, "
        "remove the partition's folder from its log.dirs, so that it is copied from there, start "
        "it, and run again"
    )
