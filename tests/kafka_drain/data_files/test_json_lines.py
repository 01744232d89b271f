"""What JSON lines say of header names without being parsed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.data_files.json_lines import may_have_nul_names

NUL = rb"\u0000"
#: Number of bytes that are looked at together.
CHUNK = 1 << 20


@pytest.mark.parametrize("at", [0, *range(CHUNK - len(NUL), CHUNK + 1), 3 * CHUNK - 1])
def test_may_have_nul_names(tmp_path: Path, at: int) -> None:
    """A NUL is found wherever it is, also across what is looked at together."""
    path = UPath(tmp_path / "part.json")
    path.write_bytes(b" " * at + NUL + b" " * CHUNK)

    assert may_have_nul_names(path)


@pytest.mark.parametrize("cut", range(1, len(NUL)))
def test_may_have_nul_names_none(tmp_path: Path, cut: int) -> None:
    """Parts of one that aren't next to each other aren't one."""
    path = UPath(tmp_path / "part.json")
    path.write_bytes(NUL[:cut] + b" " * CHUNK + NUL[cut:])

    assert not may_have_nul_names(path)


def test_may_have_nul_names_compressed(tmp_path: Path) -> None:
    """Lines are looked at, not what they are compressed to."""
    path = UPath(tmp_path / "part.json.gz")
    path.write_bytes(gzip.compress(b" " * (CHUNK - 1) + NUL))

    assert may_have_nul_names(path)
