"""The options of an erasure, beside the keys and headers. Opens nothing."""

from __future__ import annotations

from typing import ClassVar

from kafka_drain.config.options import Flag, Moment, Options, Text, option

WHICH = "Which records"


class EraseOptions(Options):
    """The options of an erasure, beside its keys and headers."""

    declares: ClassVar[str] = "erasure"

    request: Text = option(
        None,
        "",
        "Id of the request, kept in the archive: no personal data. Default: what was asked for "
        "before is carried out on records that were drained since.",
        metavar="ID",
    )
    by: Text = option(None, "", "Who asked, kept in the archive: no personal data.", metavar="WHO")
    topics: tuple[str, ...] = option(
        WHICH, (), "Only of these topics. Default: of all.", flags=["--topic"], metavar="TOPIC"
    )
    from_time: Moment = option(WHICH, None, "Lowest timestamp of the records.", metavar="TIME")
    to_time: Moment = option(WHICH, None, "End of the timestamps, exclusive.", metavar="TIME")
    all_records: Flag = option(
        WHICH,
        False,
        "Off: only records with the keys or headers of the connection. On: all records of these "
        "topics and times; the connection must be without keys and headers.",
        flags=[],
    )
    for_ever: Flag = option(
        WHICH,
        False,
        "Also erase such records that are written to Kafka after this request.",
    )
