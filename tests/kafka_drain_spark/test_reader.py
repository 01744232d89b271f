"""Which files a notebook's DataFrame of an archive is made of, without a JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.offsets import TopicPartition
from kafka_drain_spark import reader
from kafka_drain_spark.reader import read_archive
from tests.kafka_drain.golden import END, add_batch, open_next, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense

P0 = TopicPartition("t", 0)


class Zone:
    """A JVM's time zone."""

    def __init__(self, offset: int = 0, *, is_saving: bool = False) -> None:
        self._offset, self._is_saving = offset, is_saving

    def getRawOffset(self) -> int:
        """Return the milliseconds to UTC."""
        return self._offset

    def useDaylightTime(self) -> bool:
        """Return whether clocks are put forward in summer."""
        return self._is_saving

    def getID(self) -> str:
        """Return its name."""
        return "Some/Where"


def session(zone: Zone | None = None) -> Any:
    """Return a session of a JVM in a time zone."""
    zones = SimpleNamespace(getDefault=lambda: zone or Zone())
    jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(TimeZone=zones)))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is read: the sources, and the types of further columns."""
    found: list[Any] = []

    def read(_: object, sources: Any, columns: dict[str, str]) -> str:
        found.extend([list(sources), columns])
        return "the rows"

    monkeypatch.setattr(reader, "read_files", read)
    return found


@pytest.mark.parametrize("include_unsealed", [True, False])
def test_read_archive(tmp_path: Path, asked: list[Any], include_unsealed: bool) -> None:
    """Files are read by data folder; those that aren't sealed only if they are asked for."""
    archive = sealed_copy(tmp_path / "archive")
    unsealed = add_batch(open_next(archive, "parquet", ["topic"]), 0, END, END + 3)

    found: Any = read_archive(session(), str(archive.root), include_unsealed=include_unsealed)

    assert found == "the rows"
    [sources, columns] = asked
    folders = [f"{archive.root}/generations/{name}/data" for name in ("0001", "0002")]
    assert [each["data_folder"] for each in sources] == folders[: 1 + include_unsealed]
    assert {each["file_format"] for each in sources} == {"parquet"}
    assert all(file.startswith(f"{folders[0]}/topic=") for file in sources[0]["files"])
    if include_unsealed:
        assert sources[1]["files"] == [str(path) for path in sorted(unsealed)]
    assert "topic" not in columns
    assert set(columns.values()) <= {"string"}


@pytest.mark.parametrize(
    ("zone", "is_right"),
    [(Zone(), True), (Zone(3_600_000), False), (Zone(is_saving=True), False)],
)
@pytest.mark.parametrize("file_format", ["orc", "parquet"])
def test_read_archive_time_zone(
    tmp_path: Path, asked: list[Any], file_format: str, zone: Zone, is_right: bool
) -> None:
    """ORC files' times are UTC: a JVM in any other time zone would misread them."""
    made = MadeArchive(tmp_path / "archive", {"t": "id-1"})
    made.seal_window("w", {P0: dense(0, 3)}, format=file_format)

    if is_right or file_format == "parquet":
        read_archive(session(zone), str(made.root))
        assert [each["file_format"] for each in asked[0]] == [file_format]
        return
    with pytest.raises(ConfigError, match="time zone Some/Where"):
        read_archive(session(zone), str(made.root))
    assert asked == []
