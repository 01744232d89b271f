"""The options of a reprocess. Opens nothing."""

from __future__ import annotations

from typing import ClassVar

from kafka_drain.config.options import Flag, Moment, Options, Text, option
from kafka_drain.errors import ConfigError

WHERE = "Where to start"

#: The options that say where, of which one is given.
STARTS = ("from_batch", "from_time", "from_offsets")


class ReprocessOptions(Options):
    """Where a reprocess starts; without a start, one that was killed is resumed.

    Raises:
        ConfigError: When more than one start is given, or one beside `abandon`.
    """

    declares: ClassVar[str] = "reprocess"

    from_batch: Text | None = option(
        WHERE,
        None,
        "A batch id in the newest generation, such as 7, or generation and batch, such as 1:7. Set "
        "one of the three starts, or none to resume a run that was killed.",
        metavar="[GENERATION:]BATCH",
    )
    from_time: Moment = option(
        WHERE,
        None,
        "Start with the batch that holds the first record with this timestamp or a later one.",
        metavar="TIME",
    )
    from_offsets: tuple[str, ...] = option(
        WHERE,
        (),
        "Start with the batch that holds the first of these offsets: topic:partition:offset.",
        flags=["--from-offset"],
        metavar="TOPIC:PARTITION:OFFSET",
    )
    abandon: Flag = option(
        None,
        False,
        "End a reprocess that was started and can't finish: windows that it hasn't sealed are "
        "removed, archived files stay. Goes without a start.",
    )

    def check_together(self) -> None:
        """Refuse two starts, and one of a reprocess that is to be ended."""
        starts = sum(bool(getattr(self, name)) for name in STARTS)
        if self.abandon and starts:
            raise ConfigError("abandon ends the reprocess that was started; don't set a start")
        if starts > 1:
            raise ConfigError(f"{', '.join(STARTS)} exclude each other; give one")
