"""The `.crc` files that Hadoop's local file system writes beside each file. Opens nothing.

The format is that of `org.apache.hadoop.fs.ChecksumFileSystem`: `crc` and a zero byte, the number
of bytes per checksum (four bytes, 512 by default), and a CRC-32 of each chunk of that size.
"""

from __future__ import annotations

import struct
import zlib

_HEADER = b"crc\0"


def crc_name(name: str) -> str:
    """Return the name of a file's `.crc` file."""
    return f".{name}.crc"


def matches_crc(content: bytes, crc: bytes) -> bool:
    """Return whether a file's content matches its `.crc` file."""
    if crc[:4] != _HEADER or len(crc) < 8:
        return False
    (piece,) = struct.unpack(">i", crc[4:8])
    if piece <= 0 or len(crc) - 8 != 4 * -(-len(content) // piece):
        return False
    found = [zlib.crc32(content[at : at + piece]) for at in range(0, len(content), piece)]
    return crc[8:] == struct.pack(f">{len(found)}I", *found)
