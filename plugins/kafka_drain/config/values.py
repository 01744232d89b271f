"""The pipeline key `values`: decoding of values into typed columns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from kafka_drain.errors import ConfigError

SchemaId = Annotated[int, Field(ge=0, lt=1 << 32)]


class Values(BaseModel):
    """Decoding of a pipeline's values into typed columns, in addition to their raw bytes.

    Attributes:
        encoding: `avro` for Confluent's wire format: a zero byte, the schema id in four bytes,
            then the record in Avro's binary encoding. `json` for JSON, in that format or plain.
        registry_conn_id: Avro: Airflow connection whose extra locates the Schema Registry.
        subjects: Avro: subjects in the registry; by default `<topic>-value` of the only topic.
        schema_files: Avro: files with writer schemas, by schema id.
        reader_schema: Avro: file with the schema of the columns; by default the newest version of
            the first subject, or the file with the highest id.
        columns: JSON: the columns in Spark's DDL, such as `id BIGINT, city STRING`.

    Raises:
        ConfigError: When keys contradict each other, or a required one is missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoding: Literal["avro", "json"]
    registry_conn_id: str | None = None
    subjects: list[str] = []
    schema_files: dict[SchemaId, str] = {}
    reader_schema: str | None = None
    columns: str | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for_avro = {
            "registry_conn_id": self.registry_conn_id,
            "subjects": self.subjects,
            "schema_files": self.schema_files,
            "reader_schema": self.reader_schema,
        }
        if self.encoding == "json":
            given = [name for name, value in for_avro.items() if value]
            if given:
                raise ConfigError(f"values.{given[0]} requires encoding 'avro'; leave it out")
            if not self.columns:
                raise ConfigError(
                    "values.columns is missing: give the columns of the JSON values, such as "
                    "'id BIGINT, city STRING'"
                )
        elif self.columns:
            raise ConfigError(
                "values.columns requires encoding 'json'; Avro takes its columns from the schema"
            )
        elif not (self.registry_conn_id or self.schema_files):
            raise ConfigError(
                "values has no schemas: give registry_conn_id, or schema_files with files by id"
            )
        elif self.subjects and not self.registry_conn_id:
            raise ConfigError(
                "values.subjects requires a Schema Registry: give registry_conn_id too"
            )
        return self
