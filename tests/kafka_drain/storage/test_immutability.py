"""How objects are locked, and which of them still are: every case of the decisions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from kafka_drain.storage.immutability import (
    Immutability,
    Locked,
    Mode,
    ObjectLock,
    Retention,
    to_set,
    weakened,
)
from tests.tables import each_of

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
MODES: tuple[Mode, ...] = ("governance", "compliance")


@pytest.mark.parametrize(
    ("now", "until"),
    [
        (NOW, NOW + 30 * DAY),
        (NOW + timedelta(microseconds=1), NOW + 30 * DAY + timedelta(seconds=1)),
        (
            datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 31, 12, tzinfo=timezone.utc),
        ),
    ],
)
def test_from_now(now: datetime, until: datetime) -> None:
    """A lock ends the days later, in UTC; a part of a second makes it longer, never shorter."""
    found = Immutability("compliance", 30).from_now(now)

    assert found == Retention("compliance", until)
    assert (found.until.microsecond, found.until.tzinfo) == (0, timezone.utc)


def test_immutability_in_words() -> None:
    """Days and mode are said."""
    assert str(Immutability("governance", 3650)) == "3,650 days in governance mode"


@pytest.mark.parametrize("on_hold", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("until", "is_locked"),
    [
        (None, False),
        (NOW - DAY, False),
        (NOW, False),
        (NOW + timedelta(seconds=1), True),
    ],
)
def test_is_locked(until: datetime | None, is_locked: bool, mode: Mode, on_hold: bool) -> None:
    """A file is locked while its lock lasts, in either mode, or while somebody holds it."""
    held = ObjectLock(1, None if until is None else Retention(mode, until), on_hold)

    assert held.is_locked(NOW) == (is_locked or on_hold)


@each_of("wanted", [Retention(mode, NOW + 5 * DAY) for mode in MODES])
@each_of("found_mode, days", [(None, 0), *product(MODES, (-1, 0, 4, 5, 6))])
def test_to_set(found_mode: Mode | None, days: int, wanted: Retention) -> None:
    """A lock is asked for where there is none, or an earlier or weaker one; none gets weaker."""
    found = None if found_mode is None else Retention(found_mode, NOW + days * DAY)

    asked = to_set(ObjectLock(1, found), wanted, NOW)

    if found is None or days <= 0:
        assert asked == wanted
        return
    in_force = asked or found
    assert in_force.until == NOW + max(days, 5) * DAY
    strong = "compliance" in (found.mode, wanted.mode)
    assert in_force.mode == ("compliance" if strong else "governance")
    assert (asked is None) == (days >= 5 and (found.mode == wanted.mode or strong)) or (
        asked is not None and found.mode == "governance" and wanted.mode == "compliance"
    )
    assert asked != found


def test_to_set_held_alone() -> None:
    """A legal hold is no lock with an end: somebody may release it tomorrow."""
    wanted = Retention("governance", NOW + DAY)

    assert to_set(ObjectLock(1, on_hold=True), wanted, NOW) == wanted


def lock(days: int, on_hold: bool = False) -> ObjectLock:
    """A file that is locked for some days."""
    return ObjectLock(1, Retention("governance", NOW + days * DAY) if days else None, on_hold)


@pytest.mark.parametrize(
    ("held", "said", "ends_at"),
    [
        ([], "0 files, ", None),
        ([lock(0), lock(-1)], "0 files, ", None),
        ([lock(1), lock(0)], "1 files, locked until 2026-01-02 12:00 UTC", "2026-01-02"),
        (
            [lock(3), lock(1), lock(2)],
            "3 files, locked until 2026-01-02 12:00 UTC (the last until 2026-01-04 12:00 UTC)",
            "2026-01-04",
        ),
        ([lock(0, True)], "1 files, locked until a legal hold is released", None),
        ([lock(-1, True)], "1 files, locked until a legal hold is released", None),
        (
            [ObjectLock(1, Retention("compliance", NOW), on_hold=True)],
            "1 files, locked until a legal hold is released",
            None,
        ),
        (
            [lock(1, True), lock(1)],
            "2 files, locked until 2026-01-02 12:00 UTC; 1 of them also until a legal hold is "
            "released",
            None,
        ),
        (
            [*(lock(2) for _ in range(1_000)), lock(0, True)],
            "1,001 files, locked until 2026-01-03 12:00 UTC; 1 of them also until a legal hold is "
            "released",
            None,
        ),
    ],
)
def test_locked(held: list[ObjectLock], said: str, ends_at: str | None) -> None:
    """The number of locked files, when the first is free and when the last; a hold has no end."""
    found = Locked.of(held, NOW)

    assert str(found) == said
    assert found.ends_at == (ends_at and f"{ends_at}T12:00:00+00:00")
    assert found.files == sum(each.is_locked(NOW) for each in held)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock shows another time than UTC."""
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_locked_in_utc() -> None:
    """Times are said in UTC, wherever they were read."""
    zone = timezone(timedelta(hours=5))
    until = datetime(2026, 1, 3, 2, 30, tzinfo=zone)

    found = Locked.of([ObjectLock(1, Retention("governance", until))], NOW)

    assert str(found) == "1 files, locked until 2026-01-02 21:30 UTC"


WEAK, STRONG = Immutability("governance", 30), Immutability("compliance", 30)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, None, ""),
        (None, WEAK, ""),
        (WEAK, WEAK, ""),
        (WEAK, STRONG, ""),
        (WEAK, Immutability("governance", 31), ""),
        (STRONG, Immutability("compliance", 31), ""),
        (WEAK, None, "aren't locked any more"),
        (WEAK, Immutability("governance", 29), "29 days in governance mode from now on"),
        (STRONG, WEAK, "30 days in governance mode from now on"),
        (STRONG, Immutability("governance", 31), "31 days in governance mode from now on"),
        (WEAK, Immutability("compliance", 29), "29 days in compliance mode from now on"),
    ],
)
def test_weakened(before: Any, now: Any, said: str) -> None:
    """A pipeline that locks new files for less time, or less firmly, is warned of it."""
    found = weakened(before, now)

    assert found.endswith(said)
    assert bool(found) == bool(said)
    assert not found or found.startswith(f"new files were locked for {before} until now, and ")
