"""Parquet's Bloom filters: whether a column of a row group can hold a value.

pyarrow writes them and says where they lie, but doesn't read them. They are split-block Bloom
filters of xxHash64, as specified in BloomFilter.md of apache/parquet-format: a header in Thrift's
compact protocol, then blocks of 32 bytes. A value's hash chooses a block, and one bit in each of
its eight words. To look up a value, only the header and one block are read. Opens nothing itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

#: Chooses the bit of each word in a block.
_SALT = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
_BLOCK = struct.Struct("<8I")

#: Number of bytes that hold any header: this release of the format needs about 20.
HEADER_BYTES = 64

#: Types of Thrift's compact protocol.
_STOP, _I32, _STRUCT = 0, 5, 12

#: Returns a number of bytes at a position of a file.
ReadAt = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A Bloom filter in a file.

    Attributes:
        start: Position of its first block in the file.
        blocks: Number of blocks.
    """

    start: int
    blocks: int

    @classmethod
    def at(cls, offset: int, read: ReadAt) -> BloomFilter | None:
        """Read the header of a filter.

        Args:
            offset: Position of the header in the file.
            read: Reads the file.

        Returns:
            None for an algorithm, a hash or a compression that isn't known here.

        Raises:
            ValueError: When it isn't a header.
        """
        header = _Header(read(offset, HEADER_BYTES))
        try:
            size, *others = header.fields()
        except IndexError as error:
            raise ValueError(f"the Bloom filter at {offset} ends early") from error
        # The only member of each union so far: SPLIT_BLOCK, XXHASH, UNCOMPRESSED.
        if others != [1, 1, 1]:
            return None
        if size <= 0 or size % _BLOCK.size:
            raise ValueError(
                f"the Bloom filter at {offset} has {size} bytes, expected blocks of {_BLOCK.size}"
            )
        return cls(offset + header.position, size // _BLOCK.size)

    def can_hold(self, value: bytes, read: ReadAt) -> bool:
        """Return False if the value was certainly never inserted.

        Args:
            value: The value, without a length.
            read: Reads the file.

        Raises:
            ValueError: When the file ends before the filter does.
        """
        # Not at the top: Spark's executors read Parquet as well, and never look for a key.
        from xxhash import xxh64_intdigest

        hashed = xxh64_intdigest(value)
        block = ((hashed >> 32) * self.blocks) >> 32
        content = read(self.start + block * _BLOCK.size, _BLOCK.size)
        if len(content) != _BLOCK.size:
            raise ValueError(f"the Bloom filter at {self.start} ends early")
        low = hashed & 0xFFFFFFFF
        return all(
            word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
            for word, salt in zip(_BLOCK.unpack(content), _SALT, strict=True)
        )


class _Header:
    """`BloomFilterHeader` of parquet.thrift: a size in bytes, then three unions."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def fields(self) -> list[int]:
        """Return the size, and the field of each union that is set; 0 for one that is missing.

        Raises:
            IndexError: When the content ends early.
            ValueError: When a field isn't as specified.
        """
        found = [0, 0, 0, 0]
        number = 0
        while True:
            number, kind = self._field(number)
            if kind == _STOP:
                return found
            if number == 1 and kind == _I32:
                encoded = self._varint()
                found[0] = encoded >> 1 ^ -(encoded & 1)
            elif 2 <= number <= 4 and kind == _STRUCT:
                found[number - 1] = self._union()
            else:
                raise ValueError(f"a Bloom filter's header has field {number} of type {kind}")

    def _union(self) -> int:
        """Return the number of a union's field, which is an empty structure."""
        member, kind = self._field(0)
        if kind != _STRUCT or self._byte() != _STOP or self._byte() != _STOP:
            raise ValueError(f"a Bloom filter's header has a union of type {kind}")
        return member

    def _field(self, before: int) -> tuple[int, int]:
        """Return the number and the type of the next field, given the number before it."""
        first = self._byte()
        kind, step = first & 0x0F, first >> 4
        if kind == _STOP:
            return 0, _STOP
        if step:
            return before + step, kind
        encoded = self._varint()
        return encoded >> 1 ^ -(encoded & 1), kind

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _byte(self) -> int:
        byte = self._content[self.position]
        self.position += 1
        return byte
