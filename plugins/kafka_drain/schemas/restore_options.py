"""The options of restoring schemas. Opens nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from kafka_drain.config.options import Options, option
from kafka_drain.schemas.restore_order import NEW, RESTORED


class RestoreSchemasOptions(Options):
    """The options of a restore of schemas."""

    declares: ClassVar[str] = "restore of schemas"

    schema_map: str = option(
        None,
        RESTORED,
        "Name of the map of ids, which the republish then takes.",
        flags=["--map"],
        metavar="NAME",
    )
    ids: Literal["new", "keep"] = option(
        None,
        NEW,
        "new (default): the registry gives new ids. keep: ids and versions stay, which requires "
        "empty subjects and mode IMPORT.",
    )
