"""Whether a topic was created for a restore."""

from __future__ import annotations

import pytest

from kafka_drain.kafka.keeping import AFTER, BEFORE, DIFFERENCE, KEEPING, is_keeping

#: What a cluster doesn't know, by its age.
OLD, NEW = {BEFORE, AFTER}, {DIFFERENCE}


@pytest.mark.parametrize("unknown", [set(), OLD, NEW, OLD | NEW])
def test_is_keeping(unknown: set[str]) -> None:
    """A topic has all that its cluster knows; its other settings don't matter."""
    config = {name: value for name, value in KEEPING.items() if name not in unknown}

    assert is_keeping({**config, "segment.ms": "5"})


@pytest.mark.parametrize(
    "changed", ["cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type"]
)
@pytest.mark.parametrize("value", [None, "other"])
def test_is_keeping_not(changed: str, value: str | None) -> None:
    """Once something was set back, or is another's, it isn't."""
    config = {**KEEPING, changed: value or ""}
    if value is None:
        del config[changed]

    assert not is_keeping(config)


def test_is_keeping_by_people() -> None:
    """People who keep everything for ever still have limits of size and time."""
    taken = {BEFORE, AFTER, DIFFERENCE, "max.message.bytes"}

    assert not is_keeping({name: v for name, v in KEEPING.items() if name not in taken})
    assert not is_keeping({})
