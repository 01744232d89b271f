"""The size of a fetch: by the records' size unpacked, not by the bytes sent.

librdkafka unpacks a whole response when it arrives, and `fetch.message.max.bytes` limits what is
sent. Its limit of queued bytes counts values only, neither keys nor headers, and only decides
whether to ask for more. A batch is the least that a broker sends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kafka_drain.kafka.message_headers import header_bytes

#: Size in bytes of the first responses, before anything is known of the records.
FIRST_BYTES = 16 << 10
#: Least and largest size of a response. With the latter, records that suddenly compress a hundred
#: times better than those before unpack to 100 MiB.
LEAST_BYTES, MOST_BYTES = 4 << 10, 1 << 20
#: Target size of an unpacked response.
UNPACKED_BYTES = 16 << 20
#: Responses of so many bytes tell how much the next ones unpack to; what else is sent blurs less.
TELLING_BYTES = 16 << 10
#: Settings of a client that reads with it.
BOUNDED = {
    "queued.max.messages.kbytes": UNPACKED_BYTES >> 10,
    # Headers and keys don't count as queued bytes.
    "queued.min.messages": 2_000,
    # librdkafka asks for twice as much of a partition after each response without a record.
    "fetch.max.bytes": MOST_BYTES,
    # Mustn't be larger than fetch.max.bytes.
    "message.max.bytes": MOST_BYTES,
    # librdkafka unpacks no zstd batch that is larger than the largest response.
    "receive.message.max.bytes": (1 << 31) - 1,
}


class FetchSize:
    """The size of the next fetch, by the bytes received and unpacked so far."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self._bytes = FIRST_BYTES
        self._header_bytes = 0
        self._record_bytes = UNPACKED_BYTES
        #: Bytes that the client had received, bytes of its records' keys and values, and their
        #: number.
        self._before = (0, 0, 0)

    @property
    def bytes(self) -> int:
        """The size in bytes to ask for."""
        return self._bytes

    @property
    def records(self) -> int:
        """The number of records to take from the client; one before any was seen."""
        return max(1, UNPACKED_BYTES // max(1, self._record_bytes))

    def begin(self) -> None:
        """Note that a new client begins, which counts from nothing."""
        self._before = (0, 0, 0)

    def see(self, messages: Sequence[Any]) -> None:
        """Take into account the size of a message, and of its headers, which the client leaves out.

        Args:
            messages: Messages as the client returns them.
        """
        if messages and messages[-1].error() is None:
            last = messages[-1]
            self._header_bytes = header_bytes(last)
            self._record_bytes = self._header_bytes + sum(
                len(part) for part in (last.key(), last.value()) if part is not None
            )

    def hear(self, statistics: str) -> None:
        """Take a report of the client into account (librdkafka's STATISTICS.md).

        Args:
            statistics: JSON, with counts since the client began.
        """
        report = json.loads(statistics)
        now = tuple(int(report.get(name, 0)) for name in ("rx_bytes", "rxmsg_bytes", "rxmsgs"))
        received, unpacked, records = (a - b for a, b in zip(now, self._before, strict=True))
        if received >= TELLING_BYTES and records > 0:
            self._before = (now[0], now[1], now[2])
            unpacked += records * self._header_bytes
            self._bytes = bytes_to_ask_for(received, unpacked)


def bytes_to_ask_for(received: int, unpacked: int) -> int:
    """Return the size of the next responses.

    Args:
        received: Number of bytes that were received.
        unpacked: Number of bytes that they were unpacked to.
    """
    return max(LEAST_BYTES, min(MOST_BYTES, UNPACKED_BYTES * received // max(1, unpacked)))
