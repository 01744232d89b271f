"""The option of verbs that replace archived files by what Kafka has. Opens nothing."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from kafka_drain.config.offset_ranges import Accepted, parse_ranges
from kafka_drain.config.options import Options, Ranges, option


class ReplaceOptions(Options):
    """The options for replacing archived records."""

    declares: ClassVar[str] = "replacement"

    replace_changed: Ranges = option(
        None,
        (),
        "Accept that the archived records at these offsets are replaced by Kafka's, although they "
        "are others or can't be compared.",
        metavar="TOPIC:PARTITION:START-END",
    )

    @cached_property
    def replaceable(self) -> Accepted:
        """The offsets whose records may be replaced by other ones."""
        return parse_ranges("replace_changed", self.replace_changed)
