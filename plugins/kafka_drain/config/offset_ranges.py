"""Offset ranges in command-line notation, including those acknowledged as expired.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kafka_drain.errors import ConfigError
from kafka_drain.offsets import NO_END, OffsetRange, TopicPartition, merge

_RANGE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d{1,40}):(?P<start>\d{1,40})-(?P<end>\d{1,40})"
)


#: Offsets of which a user accepts that they are lost, or that other records replace theirs.
Accepted = Mapping[TopicPartition, list[OffsetRange]]
NOTHING: Accepted = {}

#: The option with which a user accepts that offsets are lost, and its flag.
ACKNOWLEDGE = "acknowledge_expired"
ACKNOWLEDGE_FLAG = f"--{ACKNOWLEDGE.replace('_', '-')}"


def range_name(tp: TopicPartition, offset_range: OffsetRange) -> str:
    """Format a range as `topic:partition:start-end`; the end is exclusive."""
    return f"{tp.topic}:{tp.partition}:{offset_range.start}-{offset_range.end}"


def parse_ranges(
    option: str, ranges: Iterable[str], example: str = "such as flights:0:100-200"
) -> dict[TopicPartition, list[OffsetRange]]:
    """Parse ranges of the form `topic:partition:start-end`.

    Args:
        option: Name of the option, for the error message.
        example: An example of such a range, for the error message.

    Raises:
        ConfigError: When one isn't in that form.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None or not int(match["start"]) < int(match["end"]) <= NO_END:
            raise ConfigError(
                f"{option} = {text!r} is not acceptable; accepted: topic:partition:start-end, "
                f"{example}; the end is exclusive"
            )
        tp = TopicPartition(match["topic"], int(match["partition"]))
        found.setdefault(tp, []).append(OffsetRange(int(match["start"]), int(match["end"])))
    return {tp: merge(parts) for tp, parts in found.items()}
