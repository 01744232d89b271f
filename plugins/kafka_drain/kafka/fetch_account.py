"""The offsets of transaction markers, by librdkafka's own account of its responses.

A consumer never gets to see a marker, but librdkafka counts those of each response, and logs it
(`debug=fetch`) before it hands over the response's records. That holds on every connection that
librdkafka can make, whatever its security.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract, within

#: Settings that a consumer needs beside its `logger`.
SETTINGS = {
    "debug": "fetch",
    "log_level": 7,
    # Lines wait in the queue of the records. If one alone filled it, the client would stop
    # fetching, and log that, without end.
    "queued.min.messages": 1_000,
}

_REQUEST = re.compile(
    r"Fetch topic (?P<topic>\S+) \[(?P<partition>\d+)\] at offset (?P<start>\d+) "
    r".*\bv(?P<version>\d+)\)"
)
_RESPONSE = re.compile(
    r"Enqueue (?P<messages>\d+) .*message\(s\) .* on (?P<topic>\S+) \[(?P<partition>\d+)\] "
    r"fetch queue \(.*\bv(?P<version>\d+), last_offset (?P<last>-?\d+), (?P<markers>\d+) ctrl msgs"
)


@dataclass(frozen=True, slots=True)
class Response:
    """One response with markers.

    Attributes:
        span: From the offset that was asked for to the response's last record or marker.
        messages: Number of its records and markers in that span.
        markers: Number of its markers. A marker that compaction has emptied counts as well.
    """

    span: OffsetRange
    messages: int
    markers: int


def markers_of(
    responses: Iterable[Response], quiet: Sequence[OffsetRange]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Tell markers among offsets without a record.

    Args:
        responses: The responses with markers that cover these offsets.
        quiet: The offsets at which a `read_uncommitted` consumer found no record, sorted and
            disjoint.

    Returns:
        The offsets that are markers; and those that may be, because their response has markers and
        lacks offsets: smaller responses would tell them.
    """
    known: list[OffsetRange] = []
    unclear: list[OffsetRange] = []
    for response in responses:
        inside = within(quiet, response.span)
        if response.messages == len(response.span):
            known += inside
        elif response.messages == response.markers == 1:
            # Nothing but a marker, which is then what the response ends with.
            known += within(quiet, OffsetRange(response.span.end - 1, response.span.end))
        else:
            unclear += inside
    known = merge(known)
    rest = (part for r in merge(unclear) for part in subtract(r, overlapping(known, r)))
    return known, list(rest)


class FetchAccount(logging.Handler):
    """Collects the responses with markers that a consumer gets; `logger` is the consumer's.

    Attributes:
        logger: The consumer's logger.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        # Not of the process's tree: nobody is to print what a client logs for debugging.
        self.logger = logging.Logger(__name__)
        self.logger.addHandler(self)
        self._asked: dict[tuple[TopicPartition, str], int] = {}
        self._responses: dict[TopicPartition, list[Response]] = {}
        self._has_asked = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of librdkafka."""
        line = record.getMessage()
        if asked := _REQUEST.search(line):
            tp = TopicPartition(asked["topic"], int(asked["partition"]))
            self._asked[tp, asked["version"]] = int(asked["start"])
            self._has_asked = True
        elif got := _RESPONSE.search(line):
            tp = TopicPartition(got["topic"], int(got["partition"]))
            start, last = self._asked.get((tp, got["version"])), int(got["last"])
            if start is not None and last >= start and int(got["markers"]):
                span = OffsetRange(start, last + 1)
                self._responses.setdefault(tp, []).append(
                    Response(span, int(got["messages"]), int(got["markers"]))
                )

    def is_understood(self) -> bool:
        """Return whether a request was seen: another release of librdkafka may put it otherwise."""
        return self._has_asked

    def take(self, tp: TopicPartition) -> list[Response]:
        """Return the responses of a partition with markers since the last call, and forget them."""
        for key in [key for key in self._asked if key[0] != tp]:
            del self._asked[key]
        return self._responses.pop(tp, [])
