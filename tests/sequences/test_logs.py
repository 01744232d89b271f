"""Logs are damaged where Kafka survives it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.sequences.logs import cut_log, remove_segment

DATA, TRANSACTIONAL, MARKER = 0, 0x10, 0x30


def write_log(folder: Path, segments: list[list[int]]) -> Path:
    """Write segments of batches of one record, given by their attributes."""
    offset = 0
    for batches in segments:
        content = b""
        stem = f"{offset:020d}"
        for attributes in batches:
            content += struct.pack(">qiibIh", offset, 49, 0, 2, 0, attributes) + bytes(38)
            offset += 1
        (folder / f"{stem}.log").write_bytes(content + bytes(100))
        (folder / f"{stem}.index").touch()
    return folder


def found(folder: Path) -> dict[str, int]:
    """Return the segments that are there, with their numbers of bytes."""
    return {path.stem.lstrip("0"): path.stat().st_size for path in folder.glob("*.log")}


@pytest.mark.parametrize(
    ("segments", "earliest", "expected"),
    [
        ([[DATA, DATA, DATA]], 0, {0, 1, 2}),
        ([[DATA, DATA, DATA]], 2, {2}),
        ([[DATA], [DATA]], 0, {0, 1}),
        # not between a transaction's records and their marker
        ([[DATA, TRANSACTIONAL, TRANSACTIONAL, MARKER, DATA]], 0, {0, 1, 4}),
        ([[TRANSACTIONAL, MARKER], [MARKER]], 1, {2}),
        ([[DATA]], 1, {None}),
        ([[]], 0, {None}),
    ],
)
def test_cut_log(
    tmp_path: Path, segments: list[list[int]], earliest: int, expected: set[int | None]
) -> None:
    """A log is cut at any batch that it has, but not within a transaction."""
    cut = set()
    for seed in range(30):
        folder = tmp_path / str(seed)
        folder.mkdir()
        cut.add(cut_log(write_log(folder, segments), earliest, random.Random(seed)))

    assert cut == expected


def test_cut_log_files(tmp_path: Path) -> None:
    """What lies behind the cut is gone, with the index that doesn't fit any more."""
    write_log(tmp_path, [[DATA, DATA], [DATA], [DATA]])

    assert cut_log(tmp_path, 3, random.Random(0)) == 3
    assert found(tmp_path) == {"": 222, "2": 161, "3": 0}
    assert not (tmp_path / f"{3:020d}.index").exists()
    assert cut_log(tmp_path, 2, random.Random(0)) == 2
    assert found(tmp_path) == {"": 222, "2": 0}


@pytest.mark.parametrize(
    ("segments", "earliest", "expected"),
    [
        ([[DATA], [DATA, DATA], [DATA]], 0, (1, 3)),
        ([[DATA], [DATA], [DATA], [DATA]], 2, (2, 3)),
        ([[DATA], [TRANSACTIONAL], [MARKER], [DATA]], 0, (1, 2)),
        ([[DATA], [TRANSACTIONAL, MARKER], [DATA]], 0, None),
        ([[DATA], [DATA]], 0, None),
        ([], 0, None),
    ],
)
def test_remove_segment(
    tmp_path: Path, segments: list[list[int]], earliest: int, expected: tuple[int, int] | None
) -> None:
    """A segment between two others is removed, but no transaction's marker."""
    before = found(write_log(tmp_path, segments))

    assert remove_segment(tmp_path, earliest, random.Random(0)) == expected
    gone = before.keys() - found(tmp_path).keys()
    assert gone == (set() if expected is None else {str(expected[0])})
