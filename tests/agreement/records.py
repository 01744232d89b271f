"""The records of an archive, read as its format's page says, without the product's code."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow import orc

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
WINDOW = re.compile(r"([0-9A-Za-z_=+-]|\.[0-9]{3}Z)+")


class Record(NamedTuple):
    """A record, with what identifies it.

    Attributes:
        timestamp: Milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None

    @classmethod
    def of(cls, row: Mapping[str, Any], topic: str | None = None) -> Record:
        """Return a row as a record; its timestamp is a time, or in microseconds."""
        time, headers = row["timestamp"], row.get("headers")
        if isinstance(time, datetime):
            time = round((time.replace(tzinfo=timezone.utc) - EPOCH).total_seconds() * 1000)
        return cls(
            topic if topic is not None else row["topic"],
            row["partition"],
            row["offset"],
            time,
            row["timestampType"],
            row.get("key"),
            row.get("value"),
            None if headers is None else tuple((h["key"], h.get("value")) for h in headers),
        )


#: How often each record is there.
Records = Counter[Record]


def records_of(root: Path, data_key: bytes | None = None) -> Records:
    """Return what readers of a sound archive get: of its live files, and of those not sealed yet.

    Args:
        data_key: The key of encrypted files; None for none.
    """
    return read_files(root, live_files(root), data_key)


def live_files(root: Path) -> list[str]:
    """Return the files that no window replaces, relative to the archive."""
    receipts = [_document(p) for p in root.glob("generations/[0-9]*/receipts/*.json")]
    windows = [
        _document(path)
        for path in root.glob("windows/*/receipt.json")
        if WINDOW.fullmatch(path.parent.name)
    ]
    files = [file["path"] for receipt in receipts + windows for file in receipt["files"]]
    replaced = {path for window in windows for path in window["replaces"]}
    newest = max((root / "generations").iterdir(), key=lambda path: int(path.name))
    listed = list(_listed(newest))
    return [path for path in dict.fromkeys(files + listed) if path not in replaced]


def _listed(generation: Path) -> Iterator[str]:
    """Yield the files that the manifest lists; made archives have no compacted one."""
    for log in generation.glob("data/_spark_metadata/[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            name = unquote(json.loads(line)["path"]).rpartition("/data/")[2]
            yield f"generations/{generation.name}/data/{name}"


def _document(path: Path) -> Any:
    return json.loads(path.read_bytes())


def read_files(root: Path, paths: Collection[str], data_key: bytes | None = None) -> Records:
    """Return the records of some files."""
    found: Records = Counter()
    for path in paths:
        topics = re.findall(r"/topic=([^/]+)/", path)
        topic = unquote(topics[-1]) if topics else None
        found.update(Record.of(row, topic) for row in _rows(root / path, data_key))
    return found


def _rows(path: Path, data_key: bytes | None) -> Iterable[Mapping[str, Any]]:
    name = path.name
    if ".json" in name:
        content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        return [_from_json(json.loads(line)) for line in content.splitlines()]
    if ".avro" in name:
        with path.open("rb") as source:
            return list(fastavro.reader(source))
    if ".orc" in name:
        table = orc.read_table(path)
        if "timestampMillis" in table.schema.names:
            at = table.schema.get_field_index("timestamp")
            table = table.set_column(at, "timestamp", table["timestampMillis"])
        return table.to_pylist()
    options: dict[str, Any] = {"partitioning": None}
    if data_key is not None:
        options["decryption_properties"] = _decryption(data_key)
    with pq.ParquetFile(path, decryption_properties=options.get("decryption_properties")) as source:
        return source.read().to_pylist()


def _decryption(data_key: bytes) -> Any:
    class Client(pe.KmsClient):  # type: ignore[misc]
        """Unwraps the keys in a file's key metadata."""

        def __init__(self, _: object) -> None:
            super().__init__()

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            """Never called."""
            raise NotImplementedError

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            """Unwrap a key."""
            raw = base64.b64decode(wrapped_key)
            return AESGCM(data_key).decrypt(raw[:12], raw[12:], master_key_identifier.encode())

    factory = pe.CryptoFactory(Client)
    return factory.file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration()
    )


def _from_json(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("key", "value"):
        if name in row:
            row[name] = base64.b64decode(row[name])
    for header in row.get("headers") or []:
        header["value"] = base64.b64decode(header["value"]) if "value" in header else None
    time = datetime.fromisoformat(row["timestamp"].replace("Z", "+00:00"))
    return row | {"timestamp": time}


def as_of_table(table: pa.Table) -> Records:
    """Return the records of a table with the columns of Kafka's source."""
    rows = table.to_pylist()
    for each in rows:
        if each.get("timestampMillis") is not None:
            each["timestamp"] = each["timestampMillis"]
    return Counter(map(Record.of, rows))
