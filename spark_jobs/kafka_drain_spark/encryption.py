"""Encrypt the Parquet files that a job writes, and read encrypted ones."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from kafka_drain.config.sink_options import PLAIN
from kafka_drain.encryption.data_keys import open_key
from kafka_drain.errors import KEY_ERRORS, ConfigError

_TOOLS = "org.apache.parquet.crypto.keytools"

#: Spark's default, and our settings: what shows the options of a query must not show keys.
_REDACTED = "(?i)url|encryption[.]key"

#: Separators of names in parquet-java's settings.
_SEPARATORS = frozenset(",;:.")


def set_keys(
    session: SparkSession,
    encryption: Mapping[str, Any] | None,
    schema: StructType | None = None,
    in_folders: Collection[str] = (),
) -> None:
    """Let a session read encrypted files, and encrypt those it writes.

    Args:
        session: A session of the job's own.
        encryption: As `keys_for_writing` returns it; None for none.
        schema: The columns of what it writes; None if it only reads.
        in_folders: Those of them that name folders.

    Raises:
        ConfigError: When a column's name can't be passed to parquet-java.
        KeyUnavailableError: When the master key can't be had.
    """
    if encryption is None:
        return
    session.conf.set("spark.sql.redaction.options.regex", _REDACTED)
    for name, value in settings(encryption, _leaves(schema, in_folders)).items():
        session.conf.set(name, value)


def _leaves(schema: StructType | None, in_folders: Collection[str]) -> list[str]:
    if schema is None:
        return []
    return [
        leaf
        for field in schema.fields
        if field.name not in PLAIN and field.name not in in_folders
        for leaf in leaves_of(field.name, field.dataType)
    ]


def leaves_of(name: str, kind: DataType) -> Iterator[str]:
    """Yield the paths of a column's leaves, as Spark names them in Parquet.

    Raises:
        ConfigError: When a name can't be passed to parquet-java.
    """
    if _SEPARATORS & set(name.rsplit("\0", 1)[-1]):
        raise ConfigError(
            f"column {name.replace(chr(0), '.')!r} can't be encrypted: a name has one of "
            f"{' '.join(sorted(_SEPARATORS))}; rename it in `values`"
        )
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from leaves_of(f"{name}\0{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        yield from leaves_of(f"{name}\0list\0element", kind.elementType)
    elif isinstance(kind, MapType):
        yield from leaves_of(f"{name}\0key_value\0key", kind.keyType)
        yield from leaves_of(f"{name}\0key_value\0value", kind.valueType)
    else:
        yield name.replace("\0", ".")


def settings(encryption: Mapping[str, Any], leaves: list[str]) -> dict[str, str]:
    """Return parquet-java's settings; those of keys are secret.

    Args:
        encryption: As `keys_for_writing` returns it.
        leaves: The paths of the leaves to encrypt; empty to read only.

    Raises:
        KeyUnavailableError: When the current data key's master key can't be had.
    """
    current = encryption["current"]
    keys = {}
    for document in encryption["keys"]:
        try:
            keys[document["id"]] = base64.b64encode(open_key(document)).decode()
        except KEY_ERRORS:
            # Of a lost key; a job that reads its files fails there.
            if document["id"] == current:
                raise
    listed = ",".join(f"{id_}:{key}" for id_, key in sorted(keys.items()))
    found = {
        "parquet.crypto.factory.class": f"{_TOOLS}.PropertiesDrivenCryptoFactory",
        # Keeps keys in memory, which is all that is asked of it: the KMS is ours.
        "parquet.encryption.kms.client.class": f"{_TOOLS}.mocks.InMemoryKMS",
        "parquet.encryption.key.list": listed,
        # Clients are cached by it: other keys need another client.
        "parquet.encryption.key.access.token": hashlib.sha256(listed.encode()).hexdigest(),
        "parquet.encryption.double.wrapping": "false",
        "parquet.encryption.data.key.length.bits": "256",
        "parquet.encryption.plaintext.footer": "true",
    }
    if leaves:
        found["parquet.encryption.footer.key"] = current
        found["parquet.encryption.column.keys"] = f"{current}:{','.join(leaves)}"
    return found
