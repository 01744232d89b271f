"""The options of an archive's registration as a table. Opens nothing."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from kafka_drain.config.checks import refuse
from kafka_drain.config.model import collected
from kafka_drain.config.options import Options, Text, option


def _catalog(name: str, value: Any) -> Any:
    if not str(value).strip():
        raise refuse(name, value, "a name from pyiceberg's configuration")
    return value


def _table(name: str, value: Any) -> Any:
    parts = str(value).split(".")
    if len(parts) < 2 or not all(part.strip() for part in parts):
        raise refuse(name, value, "NAMESPACE.TABLE")
    return value


class TableOptions(Options):
    """The options of a registration."""

    declares: ClassVar[str] = "registration"

    catalog: Annotated[Text, BeforeValidator(collected(_catalog))] = option(
        None,
        ...,
        "Name of the catalog in pyiceberg's own configuration: its file .pyiceberg.yaml, in the "
        "home or in $PYICEBERG_HOME, or $PYICEBERG_CATALOG__NAME__URI and the like.",
        metavar="NAME",
    )
    table: Annotated[Text, BeforeValidator(collected(_table))] = option(
        None,
        ...,
        "The table, which is created if it doesn't exist. Its namespace has to.",
        metavar="NAMESPACE.TABLE",
    )
