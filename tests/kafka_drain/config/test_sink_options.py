"""Options of the file sink: by format."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.config.sink_options import (
    COMPRESSIONS,
    PARTITION_COLUMNS,
    check_sink_options,
    writer_defaults,
)
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize("file_format", sorted(COMPRESSIONS))
def test_sink_options_common(file_format: str) -> None:
    """Every format takes the sink's own options."""
    assert check_sink_options(file_format, {"maxRecordsPerFile": 10, "retention": "90d"}) == {
        "maxRecordsPerFile": "10",
        "retention": "90d",
    }


@pytest.mark.parametrize(
    ("file_format", "name", "value", "expected"),
    [
        ("parquet", "parquet.block.size", 1 << 20, "1048576"),
        ("parquet", "parquet.page.size", "65536", "65536"),
        ("parquet", "parquet.enable.dictionary", "false", "false"),
        ("parquet", "parquet.compression.codec.zstd.level", 3, "3"),
        ("parquet", "parquet.bloom.filter.enabled#key", True, "true"),
        ("parquet", "parquet.bloom.filter.expected.ndv#key", 100_000, "100000"),
        ("parquet", "parquet.bloom.filter.fpp#key", 0.02, "0.02"),
        ("parquet", "parquet.bloom.filter.max.bytes", 1 << 21, "2097152"),
        ("orc", "orc.stripe.size", 1 << 20, "1048576"),
        ("orc", "orc.row.index.stride", 1000, "1000"),
    ],
)
def test_sink_options_of_format(file_format: str, name: str, value: Any, expected: str) -> None:
    """A format's own options are taken as text."""
    assert {name: expected} == check_sink_options(file_format, {name: value})


@pytest.mark.parametrize(
    ("file_format", "name", "value", "accepted"),
    [
        ("parquet", "maxRecordsPerFile", 0, "a whole number, at least 1"),
        ("parquet", "maxRecordsPerFile", "lots", "a whole number, at least 1"),
        ("json", "retention", 90, "a number with ms, s, m, h or d"),
        ("json", "retention", "forever", "a number with ms, s, m, h or d"),
        ("parquet", "parquet.block.size", 1024, "a whole number, at least 65536"),
        ("parquet", "parquet.page.size", 0, "a whole number, at least 1024"),
        ("parquet", "parquet.compression.codec.zstd.level", "high", "a whole number"),
        ("parquet", "parquet.enable.dictionary", "banana", "true or false"),
        ("parquet", "parquet.bloom.filter.enabled#key", 1, "true or false"),
        ("parquet", "parquet.bloom.filter.fpp#key", 0, "a number between 0 and 1"),
        ("parquet", "parquet.bloom.filter.fpp#key", 1.0, "a number between 0 and 1"),
        ("parquet", "parquet.bloom.filter.fpp#key", "few", "a number between 0 and 1"),
        ("parquet", "parquet.bloom.filter.fpp#key", "nan", "a number between 0 and 1"),
        ("orc", "orc.stripe.size", -1, "a whole number, at least 65536"),
        ("orc", "orc.row.index.stride", 10, "a whole number, at least 1000"),
    ],
)
def test_sink_option_refused(file_format: str, name: str, value: Any, accepted: str) -> None:
    """A refused value is told with the option's name and what is accepted."""
    with pytest.raises(ConfigError) as raised:
        check_sink_options(file_format, {name: value})

    assert str(raised.value).startswith(f"{name} = {value!r} is not acceptable; accepted: ")
    assert accepted in str(raised.value)


@pytest.mark.parametrize(
    ("file_format", "name", "hint"),
    [
        (
            "parquet",
            "maxRecordPerFile",
            "a valid option of the parquet sink; did you mean 'maxRecordsPer",
        ),
        (
            "orc",
            "orc.strip.size",
            "a valid option of the orc sink; did you mean 'orc.stripe.size'?",
        ),
        (
            "avro",
            "parquet.block.size",
            "a valid option of the avro sink; accepted: maxRecordsPerFile, r",
        ),
        (
            "json",
            "orc.stripe.size",
            "a valid option of the json sink; accepted: maxRecordsPerFile, ret",
        ),
        ("parquet", "path", "a valid option of the parquet sink; "),
        ("parquet", "checkpointLocation", "a valid option of the parquet sink; accepted: "),
        ("parquet", "compression", "a valid option of the parquet sink; "),
    ],
)
def test_sink_option_unknown(file_format: str, name: str, hint: str) -> None:
    """A misspelt name, another format's option, or what kafka-drain sets itself is refused."""
    with pytest.raises(ConfigError) as raised:
        check_sink_options(file_format, {name: "17"})

    assert str(raised.value).startswith(f"{name!r} (value '17') isn't {hint}")


def test_compressions_uncompressed() -> None:
    """Every format has a default compression, and can go without."""
    for choices in COMPRESSIONS.values():
        assert choices[0] not in ("none", "uncompressed")
        assert choices[-1] in ("none", "uncompressed")
        assert len(set(choices)) == len(choices)


def test_partition_columns() -> None:
    """Folders are named by topic, or by the day or hour of the record's time."""
    assert list(PARTITION_COLUMNS) == ["topic", "date", "hour"]


@pytest.mark.parametrize(
    ("file_format", "compression", "expected"),
    [
        ("parquet", "zstd", {"parquet.enable.dictionary": "false"}),
        ("parquet", "gzip", {"parquet.enable.dictionary": "false"}),
        ("parquet", "snappy", {}),
        ("parquet", "uncompressed", {}),
        ("orc", "zstd", {}),
    ],
)
def test_writer_defaults(file_format: str, compression: str, expected: dict[str, str]) -> None:
    """Dictionaries are off where the compression makes up for them, and nowhere else."""
    found = writer_defaults(file_format, compression)

    checks = {name for name in found if ".row.check." in name or ".statistics." in name}
    assert len(checks) == (6 if file_format == "parquet" else 0)
    assert {name: found[name] for name in found.keys() - checks} == {
        "compression": compression,
        **expected,
    }
