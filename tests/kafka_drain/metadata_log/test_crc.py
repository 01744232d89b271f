"""Hadoop's checksum files, those that Spark wrote and those that were changed since."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.metadata_log.crc import crc_name, matches_crc
from tests.kafka_drain.golden import CHECKPOINT, GOLDEN, MANIFEST, crc_of

CHECKED = sorted(GOLDEN.rglob(".*.crc"))


def checked(crc: Path) -> Path:
    """Return the file that a checksum file stands for."""
    return crc.with_name(crc.name.removeprefix(".").removesuffix(".crc"))


def changed(content: bytes, position: int) -> bytes:
    """Change one bit of one byte."""
    damaged = bytearray(content)
    damaged[position] ^= 1 << position % 8
    return bytes(damaged)


@pytest.mark.parametrize("name", ["0", "9.compact", "part-0.parquet"])
def test_crc_name(name: str) -> None:
    """The checksum file lies beside its file, hidden."""
    assert crc_name(name) == f".{name}.crc"


def test_matches_crc_golden() -> None:
    """Every file that Spark wrote fits the checksum file that it wrote beside it."""
    assert len(CHECKED) > 30
    for crc in CHECKED:
        assert crc == checked(crc).with_name(crc_name(checked(crc).name))
        assert matches_crc(checked(crc).read_bytes(), crc.read_bytes())
        assert crc.read_bytes() == crc_of(checked(crc).read_bytes())


@pytest.mark.parametrize(
    "name", [f"{MANIFEST}/9.compact", f"{MANIFEST}/13", f"{CHECKPOINT}/offsets/13"]
)
def test_matches_crc_byte_changed(name: str) -> None:
    """Each changed byte is found, in the file and in its checksums."""
    content = (GOLDEN / name).read_bytes()
    crc = (GOLDEN / name).with_name(crc_name(Path(name).name)).read_bytes()
    # In a file of one piece, any larger size of a piece is as true.
    sizes = range(4, 8) if len(content) <= 512 else range(0)

    assert [at for at in range(len(content)) if matches_crc(changed(content, at), crc)] == []
    assert [
        at for at in range(len(crc)) if at not in sizes and matches_crc(content, changed(crc, at))
    ] == []


def test_matches_crc_length() -> None:
    """A file that lost its end, or has more than it had, is found."""
    content = (GOLDEN / MANIFEST / "9.compact").read_bytes()
    crc = (GOLDEN / MANIFEST / ".9.compact.crc").read_bytes()

    assert not any(matches_crc(content[:end], crc) for end in range(len(content)))
    assert not matches_crc(content + b"\0", crc)
    assert not matches_crc(content + content, crc)
    assert not any(matches_crc(content, crc[:end]) for end in range(len(crc)))
    assert not matches_crc(content, crc + b"\0\0\0\0")


@pytest.mark.parametrize("piece", [0, -1, -512])
def test_matches_crc_odd_piece(piece: int) -> None:
    """A checksum file that can't have been written by Hadoop fits nothing."""
    assert not matches_crc(b"content", b"crc\0" + struct.pack(">iI", piece, 1))


@given(st.binary(max_size=70), st.integers(1, 20))
def test_matches_crc_property(content: bytes, piece: int) -> None:
    """Files of any length fit, also empty ones and those that end with a piece."""
    assert matches_crc(content, crc_of(content, piece))
