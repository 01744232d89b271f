"""The jars' lock: each line says what a jar is and where it lies, and leads nowhere else."""

from __future__ import annotations

import re

import pytest

from kafka_drain.errors import MachineError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from kafka_drain.spark.jars.lock import LockedJar

SHA = "0123456789abcdef" * 4


def test_format_lock_order() -> None:
    """Lines are in the order of configurations and paths, and can be read back."""
    one, two = LockedJar("g/one/1/one-1.jar", 3, SHA), LockedJar("g/two/2/two-2.jar", 30, SHA)

    text = jar_lock.format_lock({"s3": [two], "broker": [two, one]})

    assert text.splitlines() == [
        f"{SHA} 3 broker g/one/1/one-1.jar",
        f"{SHA} 30 broker g/two/2/two-2.jar",
        f"{SHA} 30 s3 g/two/2/two-2.jar",
    ]
    assert jar_lock.parse_lock(text) == {"broker": [one, two], "s3": [two]}


@pytest.mark.parametrize(
    "line",
    [
        f"{SHA} 3 broker one-1.jar",
        f"{SHA} broker g/one/1/one-1.jar",
        f"{SHA} 0 broker g/one/1/one-1.jar",
        f"{SHA[1:]} 3 broker g/one/1/one-1.jar",
        f"{SHA} 3 broker g/one/1/one-1.zip",
        f"{SHA} 3 broker g/one/../one-1.jar",
        f"{SHA} 3 broker /g/one/1/one-1.jar",
        f"{SHA} 3 broker g/one/1/.one-1.jar",
        f"{SHA} 3 broker https://host/one/1/one-1.jar",
        f"{SHA}  broker/one-1.jar",
        "<<<<<<< ours",
        "",
    ],
)
def test_parse_lock_other_form(line: str) -> None:
    """A line of another form is shown with its number, and what to do."""
    text = f"{SHA} 3 broker g/three/3/three-3.jar\n{line}\n"

    with pytest.raises(MachineError, match=rf"line 2 of jars\.lock is {re.escape(repr(line))}"):
        jar_lock.parse_lock(text)


def test_lock_of_the_repository() -> None:
    """It is in its own order, has each configuration, and no two jars of one in the same file."""
    text = jar_lock.LOCK_FILE.read_text(encoding="utf-8")
    locked = jar_lock.parse_lock(text)

    assert jar_lock.format_lock(locked) == text
    assert set(locked) == set(jars.CONFS)
    for conf in locked.values():
        assert len({jar.name for jar in conf}) == len(conf)
