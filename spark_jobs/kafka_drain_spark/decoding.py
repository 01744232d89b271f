"""Decode values into typed columns next to their raw bytes; undecodable values stay raw.

Adds `value_schema_id` (bigint; null if the value isn't in Confluent's wire format) and
`value_decoded`, which is null if the value isn't decoded. Undecoded values are counted on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from kafka_drain_spark.job import JobFailed, explain

#: Name of the observation.
COUNTED = "values"

# Confluent's wire format: a zero byte, then the schema's id in four bytes, big-endian. Serializers
# that write a GUID to a header leave both out: there, a zero byte is the payload's own.
_IN_WIRE_FORMAT = "octet_length(value) >= 5 AND substring(value, 1, 1) = X'00'"
_SCHEMA_ID = (
    f"CASE WHEN {_IN_WIRE_FORMAT} "
    "THEN cast(conv(hex(substring(value, 2, 4)), 16, 10) AS BIGINT) END"
)
_IN_HEADER = "coalesce(exists(headers, header -> header.key = '__value_schema_id'), false)"
_WITHOUT_ID = f"CASE WHEN {_IN_WIRE_FORMAT} THEN substring(value, 6) ELSE value END"
#: A marker field in each decoded record: Spark returns undecodable values as a record of nulls.
_MARK = "__kafka_drain_decoded"
_UNDECODED = ("unknown_schema_id", "not_decodable", "not_in_wire_format")
_RAW = "__kafka_drain_value"


def with_decoded(records: DataFrame, values: Mapping[str, Any] | None) -> DataFrame:
    """Add the decoded columns.

    Args:
        records: Records with a binary column `value`.
        values: The `values` of the job spec; None to add nothing.

    Raises:
        JobFailed: When Spark can't create the columns that `values` asks for.
    """
    if values is None:
        return records
    id_ = F.expr(_SCHEMA_ID)
    if "headers" in records.columns:
        id_ = F.when(~F.expr(_IN_HEADER), id_)
    records = records.withColumn("value_schema_id", id_)
    try:
        return _from_json(records, values) if _is_json(values) else _from_avro(records, values)
    except PySparkException as error:
        said = "values.columns" if _is_json(values) else "values.reader_schema"
        message = f"{said} can't be converted to columns: {explain(error)}; correct it"
        raise JobFailed(message) from error


def sources_of(file_format: str, values: Mapping[str, Any] | None) -> set[str]:
    """Return the formats that Spark must know to write decoded records to files."""
    return {file_format} | ({"avro"} if values is not None and not _is_json(values) else set())


def decoded_columns(spark: SparkSession, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of the decoded columns in Spark's DDL."""
    nothing: list[tuple[bytes]] = []
    schema = with_decoded(spark.createDataFrame(nothing, "value binary"), values).schema
    types = spark.sparkContext._jvm.org.apache.spark.sql.types  # type: ignore[union-attr]
    # pyspark's own text of a type is truncated after 25 fields.
    return {
        field.name: types.DataType.fromJson(field.dataType.json()).sql()
        for field in schema
        if field.name != "value"
    }


def _is_json(values: Mapping[str, Any]) -> bool:
    return bool(values["encoding"] == "json")


def _from_json(records: DataFrame, values: Mapping[str, Any]) -> DataFrame:
    """Decode JSON; invalid JSON, or a field of a different type, leaves the value raw."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MARK}
    text = F.expr(f"cast({_WITHOUT_ID} AS STRING)")
    columns = f"{values['columns']}, `{_MARK}` STRING"
    parsed = records.withColumn(_RAW, F.from_json(text, columns, options))
    decoded = F.when(F.expr(f"{_RAW}.{_MARK} IS NULL"), F.col(_RAW).dropFields(_MARK))
    return parsed.withColumn("value_decoded", decoded).drop(_RAW)


def _from_avro(records: DataFrame, values: Mapping[str, Any]) -> DataFrame:
    """Decode Avro with the writer schema of each value's id, into the reader schema's columns."""
    reader = values["reader"]
    is_record = isinstance(reader, dict) and reader.get("type") in ("record", "error")
    if is_record:
        mark = {"name": _MARK, "type": "boolean", "default": True}
        reader = {**reader, "fields": [*reader["fields"], mark]}
    options = {"avroSchema": json.dumps(reader), "mode": "PERMISSIVE"}
    payload = F.expr("substring(value, 6)")
    # Without writer schemas, nothing is decoded, but the columns exist.
    decoded = F.when(F.expr("false"), from_avro(payload, json.dumps(reader), options))
    for id_, writer in values["writers"].items():
        found = from_avro(payload, json.dumps(writer), options)
        decoded = decoded.when(F.expr(f"value_schema_id = {id_}"), found)
    parsed = records.withColumn(_RAW, decoded)
    if is_record:
        decoded = F.when(F.expr(f"{_RAW}.{_MARK}"), F.col(_RAW).dropFields(_MARK))
    elif isinstance(kind := parsed.schema[_RAW].dataType, StructType):
        # A union: in a decoded value, one of its branches isn't null.
        branches = [f"{_RAW}.`{name}` IS NOT NULL" for name in kind.names]
        decoded = F.when(F.expr(" OR ".join(branches)), F.col(_RAW))
    else:
        decoded = F.col(_RAW)
    return parsed.withColumn("value_decoded", decoded).drop(_RAW)


def count_columns(values: Mapping[str, Any]) -> list[Column]:
    """Return the observed metrics of decoded records.

    These are decoded, tombstones and not_decodable; for Avro also not_in_wire_format,
    unknown_schema_id, and the lowest and highest unknown id.
    """
    counted = {"decoded": "value_decoded IS NOT NULL", "tombstones": "value IS NULL"}
    bounds = {}
    if _is_json(values):
        counted["not_decodable"] = "value IS NOT NULL AND value_decoded IS NULL"
    else:
        ids = ", ".join(["-1", *values["writers"]])
        unknown = f"value_schema_id IS NOT NULL AND value_schema_id NOT IN ({ids})"
        counted |= {
            "not_decodable": f"value_schema_id IN ({ids}) AND value_decoded IS NULL",
            "not_in_wire_format": "value IS NOT NULL AND value_schema_id IS NULL",
            "unknown_schema_id": unknown,
        }
        bounds = {
            "lowest_unknown_id": f"min(CASE WHEN {unknown} THEN value_schema_id END)",
            "highest_unknown_id": f"max(CASE WHEN {unknown} THEN value_schema_id END)",
        }
    taken = {name: f"count_if({condition})" for name, condition in counted.items()} | bounds
    return [F.expr(expression).alias(name) for name, expression in taken.items()]


def total_counts(observed: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Add up the observed metrics of several batches; include ids only if some are unknown."""
    totals: dict[str, int] = {}
    for counts in observed:
        for name, value in counts.items():
            if value is None:
                continue
            combine = {"lowest_unknown_id": min, "highest_unknown_id": max}.get(name)
            before = totals.get(name)
            if before is None:
                totals[name] = value
            else:
                totals[name] = combine(before, value) if combine else before + value
    return totals


def counts_line(counts: Mapping[str, int]) -> str:
    """Return the counts of decoded and undecoded values as a line of text."""
    parts = [f"{counts.get('decoded', 0):,} decoded"]
    if counts.get("unknown_schema_id"):
        ids = sorted({counts["lowest_unknown_id"], counts["highest_unknown_id"]})
        parts.append(
            f"{counts['unknown_schema_id']:,} of unknown schema ids ({' to '.join(map(str, ids))})"
        )
    for name in _UNDECODED[1:]:
        if counts.get(name):
            parts.append(f"{counts[name]:,} {name.replace('_', ' ')}")
    if counts.get("tombstones"):
        parts.append(f"{counts['tombstones']:,} without a value")
    undecoded = any(counts.get(name) for name in _UNDECODED)
    return f"values: {', '.join(parts)}" + ("; undecoded values stay raw" if undecoded else "")
