"""The settings with which a topic takes all records of a restore, and keeps them. Opens nothing.

Restored records are old. By its source's settings, a topic may refuse them, change their timestamps
or delete them at once. So a topic that is created for a restore has these settings until its
records are verified. That it still has them is all that anybody needs to know to set them back.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Bounds of the timestamps that a topic takes: since Kafka 3.6, and the one before (KIP-937).
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"

_ANY_TIME, _ANY_SIZE = str((1 << 63) - 1), str((1 << 31) - 1)

#: Each record stays, and keeps its timestamp.
_KEPT = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
#: Each record is taken.
_TAKEN = {
    "max.message.bytes": _ANY_SIZE,
    BEFORE: _ANY_TIME,
    AFTER: _ANY_TIME,
    DIFFERENCE: _ANY_TIME,
}

#: All of them; no cluster knows every one.
KEEPING: Mapping[str, str] = {**_KEPT, **_TAKEN}

#: Those that every release of Kafka knows.
EVERYWHERE: Mapping[str, str] = {
    name: value for name, value in KEEPING.items() if name not in (BEFORE, AFTER, DIFFERENCE)
}


def is_keeping(config: Mapping[str, str]) -> bool:
    """Return whether a topic has the settings for a restore, so that it was created for one.

    Args:
        config: Settings of the topic itself. People set some of it, but never all.
    """
    return config.items() >= _KEPT.items() and bool(config.items() & _TAKEN.items())
