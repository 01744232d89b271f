"""What a look at an archive's files has seen, for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_drain.look import Look

__all__ = ["look_of"]


def look_of(overview: Mapping[str, Any] | None, **changes: Any) -> Look:
    """Return what is seen of a sealed archive, all of whose files are there."""
    seen: dict[str, Any] = {
        "pipeline": overview["pipeline"] if overview else "orders",
        # Kafka was asked.
        "overview": {**overview, "lag": overview["lag"] or 0} if overview else None,
        "is_sealed": True,
    }
    return Look("/archives/orders", **seen | changes)
