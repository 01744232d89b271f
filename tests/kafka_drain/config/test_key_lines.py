"""Lines of files of keys."""

from __future__ import annotations

import pytest

from kafka_drain.config.key_lines import lines_of
from kafka_drain.errors import ConfigError


def test_lines_of() -> None:
    """Lines end at line feeds alone, with or without a carriage return; empty ones are none."""
    text = "a\r\n\nb\u2028c\rd\n"

    assert lines_of(text, "keys") == [("a", "keys line 1"), ("b\u2028c\rd", "keys line 3")]


def test_lines_of_byte_order_mark() -> None:
    """A mark that an editor has put there isn't a part of the first key."""
    with pytest.raises(ConfigError, match="--key-file k begins with a byte order mark"):
        lines_of("\ufeffa\n", "--key-file k")
