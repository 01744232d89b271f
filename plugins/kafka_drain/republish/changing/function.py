"""A user's own function that drops and changes records: find it, call it, hold it to its contract.

It gets a batch of records of one partition, in their order, and returns one: a RecordBatch with the
same columns. It may leave records out, and change key, value and headers, and nothing else. What
becomes of a record depends on that record alone, because a resumed run has other batches.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.reader import offset_of_nul
from kafka_drain.errors import ConfigError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.function_id import FunctionId, check_name, other_function
from kafka_drain.user_code import LeftError, held

#: Columns that a function must leave as they are.
FIXED = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True)
class UserFunction:
    """A function that was found.

    Attributes:
        id: Its identity.
        call: The function.
        folder: The folder that its module was imported from, for other processes.
    """

    id: FunctionId
    call: Callable[[pa.RecordBatch], Any]
    folder: str


def find_function(name: str, folder: str = "") -> UserFunction:
    """Import a function.

    Args:
        name: `module:function`.
        folder: Folder where another process has found it; searched after the usual places.

    Raises:
        ConfigError: When there is no such module or function, or its source isn't a file.
    """
    check_name(name)
    module_name, _, function_name = name.partition(":")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        with held():
            module = import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"change: module {module_name} can't be imported ({type(error).__name__}: {error}); "
            "install it where records are sent, or put its folder on PYTHONPATH"
        ) from error
    call, path = getattr(module, function_name, None), getattr(module, "__file__", None)
    if not callable(call):
        raise ConfigError(f"change: module {module_name} has no function {function_name}")
    if not path or not str(path).endswith(".py"):
        raise ConfigError(
            f"change: module {module_name} has no source file, whose digest the plan needs"
        )
    source = Path(path)
    levels = module_name.count(".") + (source.name == "__init__.py")
    found = FunctionId(
        name,
        hashlib.sha256(source.read_bytes()).hexdigest(),
        ".".join(platform.python_version_tuple()[:2]),
    )
    return UserFunction(found, call, str(source.parents[levels]))


def load_function(planned: FunctionId, folder: str) -> UserFunction:
    """Import a planned function, and refuse one whose source or Python is another.

    Raises:
        ConfigError: Says what differs.
    """
    found = find_function(planned.name, folder)
    if found.id != planned:
        raise ConfigError(other_function(planned, found.id))
    return found


def call_function(
    function: UserFunction, batch: pa.RecordBatch, source: TopicPartition
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Call a function, and check its result.

    Returns:
        The records that it keeps, before and after.

    Raises:
        SourceRecordError: When it raises an error, or leaves by sys.exit and the like; names the
            record and shows nothing of it.
        ConfigError: When what it returns breaks its contract.
    """
    name = function.id.name
    try:
        with held():
            result = function.call(batch)
    except Exception as error:
        raise _failed(function, batch, source, error) from None
    where = f"for offsets {batch['offset'][0].as_py():,} and following of {source}"
    if not isinstance(result, pa.RecordBatch):
        raise ConfigError(
            f"{name} returned a {type(result).__name__} {where}; expected a pyarrow.RecordBatch. "
            "Nothing more was sent"
        )
    if not result.schema.equals(batch.schema):
        raise ConfigError(
            f"{name} returned other columns {where}: {_columns(result.schema)}; expected "
            f"{_columns(batch.schema)}. Nothing more was sent"
        )
    places = pc.index_in(result["offset"], value_set=batch["offset"])
    rows = places.to_pylist()
    if None in rows or any(a >= b for a, b in pairwise(rows)):
        raise ConfigError(
            f"{name} returned records {where} that it wasn't given, or not in their order, or "
            "twice; it may only leave records out and change them. Nothing more was sent"
        )
    kept = batch if len(rows) == batch.num_rows else batch.take(places)
    other = next((column for column in FIXED if not result[column].equals(kept[column])), None)
    if other is not None:
        raise ConfigError(
            f"{name} changed the column {other} {where}; it may change key, value and headers. "
            "Nothing more was sent"
        )
    names = result["headers"].flatten().field("key")
    if names.null_count or offset_of_nul(result) is not None:
        raise ConfigError(
            f"{name} returned a header {where} whose name is null or has a NUL, which Kafka's "
            "client can't send. Nothing more was sent"
        )
    return kept, result


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _failed(
    function: UserFunction, batch: pa.RecordBatch, source: TopicPartition, error: Exception
) -> SourceRecordError:
    """Return the error that names the record for which a function raised another one."""
    name, first = function.id.name, batch["offset"][0].as_py()
    for row in range(batch.num_rows):
        try:
            with held():
                function.call(batch.slice(row, 1))
        except Exception as alone:
            return SourceRecordError(
                f"{name} {_ended(alone)} for the record at offset "
                f"{batch['offset'][row].as_py():,} of {source}; its message isn't shown, as it may "
                "hold the record's content. Nothing more was sent"
            )
    return SourceRecordError(
        f"{name} {_ended(error)} for {batch.num_rows:,} records from offset "
        f"{first:,} of {source}, but for none of them alone; its message isn't shown, as it may "
        "hold their content. Nothing more was sent"
    )


def _ended(error: Exception) -> str:
    """Return the failure of a function, as text."""
    return str(error) if isinstance(error, LeftError) else f"raised {type(error).__name__}"
