"""How many product files a change touches: it may only fall."""

from __future__ import annotations

from scripts.change_reach import CHANGES, touched


def test_touched() -> None:
    """No kind of change touches more files than before, and a fall is written down."""
    files = {title: len(paths) for title, paths in touched().items()}

    assert files == {change.title: change.at_most for change in CHANGES}
