"""Offset ranges as they are named on a command line: those that somebody accepts as expired, too.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kafka_drain.errors import ConfigError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

__all__ = ["parse_acknowledgements", "parse_ranges", "range_name"]

_RANGE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+):(?P<start>\d+)-(?P<end>\d+)")


def range_name(tp: TopicPartition, offset_range: OffsetRange) -> str:
    """Write a range as `topic:partition:start-end`; the end is not part of it."""
    return f"{tp.topic}:{tp.partition}:{offset_range.start}-{offset_range.end}"


def parse_acknowledgements(ranges: Iterable[str]) -> Mapping[TopicPartition, list[OffsetRange]]:
    """Parse ranges of the form `topic:partition:start-end`.

    Raises:
        ConfigError: When one has another form.
    """
    return parse_ranges("acknowledge_expired", ranges, "as the finding names it")


def parse_ranges(
    option: str, ranges: Iterable[str], example: str
) -> dict[TopicPartition, list[OffsetRange]]:
    """Parse ranges of the form `topic:partition:start-end`.

    Args:
        option: Where they are from, for the error's message.
        ranges: The ranges.
        example: What such a range looks like, for the error's message.

    Raises:
        ConfigError: When one has another form.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None or int(match["start"]) >= int(match["end"]):
            raise ConfigError(
                f"{option} = {text!r} is not acceptable; accepted: topic:partition:start-end, "
                f"{example}; the end is not part of it"
            )
        tp = TopicPartition(match["topic"], int(match["partition"]))
        found.setdefault(tp, []).append(OffsetRange(int(match["start"]), int(match["end"])))
    return {tp: merge(parts) for tp, parts in found.items()}
