"""The key of pseudonyms."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.keys import check_key, read_key


def test_read_key(tmp_path: Path) -> None:
    """A key is read without the line's end; one that is too short or missing is refused."""
    path = tmp_path / "key"
    path.write_bytes(b"0123456789abcdef\r\n")
    assert read_key(str(path)) == b"0123456789abcdef"
    path.write_bytes(b"0123456789abcde\n")
    with pytest.raises(ConfigError, match="has 15 bytes, expected at least 16") as refused:
        read_key(str(path))
    assert "0123" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"can't be read from .*none: No such file"):
        read_key(str(tmp_path / "none"))
    assert check_key(b" " * 16, "here") == b" " * 16
