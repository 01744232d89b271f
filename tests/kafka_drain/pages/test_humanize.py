"""How pages write numbers, sizes and times."""

from __future__ import annotations

import pytest

from kafka_drain.pages.humanize import is_web_address, many, size_text, time_text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        ("2026-07-30T03:00:00+02:00", "2026-07-30 01:00:00 UTC"),
        ("2026-07-30T03:00:00Z", "2026-07-30 03:00:00 UTC"),
        (-1, "unknown"),
        (None, "unknown"),
        (1 << 62, str(1 << 62)),
        ("yesterday", "yesterday"),
    ],
)
def test_time_text(moment: str | int | None, text: str) -> None:
    """Times are UTC and say so; what is no time stays what it is."""
    assert time_text(moment) == text


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999 bytes"), (1_500, "1.5 kB"), (2_500_000_000_000, "2,500.0 GB")]
)
def test_size_text(number: int, text: str) -> None:
    """Sizes have the unit that people would say."""
    assert size_text(number) == text


def test_many() -> None:
    """One of something has another word than many, and than none."""
    assert [many(n, "file") for n in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]


@pytest.mark.parametrize("text", ["http://driver:4040", "https://history/app"])
def test_is_web_address(text: str) -> None:
    """An address of the web may become a link."""
    assert is_web_address(text)


@pytest.mark.parametrize("text", ["javascript:alert(1)", "data:text/html,x", "//host", "/path", ""])
def test_is_web_address_of_others(text: str) -> None:
    """Nothing else that others wrote does."""
    assert not is_web_address(text)
