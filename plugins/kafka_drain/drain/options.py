"""The options of a drain, and of what comes before and after it. Opens nothing."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from kafka_drain.config.offset_ranges import ACKNOWLEDGE, Accepted, parse_ranges
from kafka_drain.config.options import Flag, Moment, Options, Ranges, option

WINDOW = "Window"


class ValidateOptions(Options):
    """The options of a validation, from the cursor or of a window."""

    declares: ClassVar[str] = "validation"

    acknowledge_expired: Ranges = option(
        None,
        (),
        "Offsets that expired in Kafka before they were drained, or are unexplained, such as "
        "flights:0:100-200 (the end is exclusive). They are skipped and recorded in the receipt. "
        "Default: a loss stops the run.",
        metavar="TOPIC:PARTITION:START-END",
    )
    mode: Literal["drain", "window"] = option(
        WINDOW,
        "drain",
        "drain: resumes where the last drain ended. window: drains whatever is missing from a data "
        "interval; backfill runs always do this.",
        flags=[],
    )
    window_start: Moment = option(
        WINDOW,
        None,
        "Start of the data interval, such as 2026-01-31T13:00Z (UTC if no time zone is given). In "
        "Airflow, the run's own by default.",
        flags=["--start"],
        metavar="TIME",
    )
    window_end: Moment = option(
        WINDOW,
        None,
        "Exclusive end of the data interval. In Airflow, the run's own by default.",
        flags=["--end"],
        metavar="TIME",
    )

    @cached_property
    def acknowledged(self) -> Accepted:
        """The offsets whose loss is accepted."""
        return parse_ranges(ACKNOWLEDGE, self.acknowledge_expired)


class PreflightOptions(ValidateOptions):
    """The options of a preflight."""

    declares: ClassVar[str] = "preflight"

    force: Flag = option(
        WINDOW,
        False,
        "Drain the window's own files again and replace them. Refused if Kafka no longer holds all "
        "of their records.",
    )
    new_archive: Flag = option(
        None,
        False,
        "On: begin a new archive although one was validated there before, which is gone for good. "
        "Off: such a run fails, as its volume may not be mounted.",
        flags=[],
    )


class DrainOptions(PreflightOptions):
    """The options of a drain."""

    declares: ClassVar[str] = "drain"

    log_level: str | None = option(
        None,
        None,
        "Log level of Spark's Kafka and sink classes for this run. Default: the pipeline's "
        "setting, or WARN.",
        examples=["INFO", "DEBUG", "TRACE"],
        metavar="LEVEL",
    )
