"""Archives in folders with odd names, through every step of the product: real Kafka, real Spark.

The files are read with their formats' own libraries, and the target by a consumer; what they must
hold is what the test has sent. `make soak` runs each name, and prints what each step came to.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.erase import run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner
from tests.integration.command_line import run_module
from tests.odd_paths import REFUSED, TOGETHER, WORKS

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
HOUR = 3_600_000
KEYS = 5
GONE = b"user-3"
NAMES = {**TOGETHER, **WORKS}
FORMATS = ("parquet", "avro", "orc", "json")
#: Folders beside the archive's: what a pattern, a list, a URL or a shell would make of its name.
BESIDE = ("p", "eu", "star", "a", "p q", "100", "b", "slash", "co:lon beside")
STEPS = ("drain", "validate", "compact", "erase", "republish", "LC_ALL=C")

#: Key, value, headers and milliseconds.
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
#: By partition and offset.
Records = dict[tuple[int, int], Record]
Noted = Callable[[str], AbstractContextManager[None]]


def with_each_format() -> Iterator[Any]:
    """Yield names and formats; those of `TOGETHER` are quick enough for each run of the tests."""
    for what, file_format in zip(TOGETHER, FORMATS, strict=False):
        yield pytest.param(what, file_format, id=f"{what}-{file_format}")
    # Each name as Parquet, and as one of the formats that other readers read.
    others = [(what, FORMATS[1 + number % 3]) for number, what in enumerate(WORKS)]
    for what, file_format in [*((what, "parquet") for what in WORKS), *others]:
        yield pytest.param(what, file_format, id=f"{what}-{file_format}", marks=pytest.mark.soak)


def sent(hour: int, partition: int) -> list[Record]:
    """An hour's records of a partition."""
    at = NOON + hour * HOUR + 100 * partition
    text = f"{hour} {partition}"
    named: list[Record] = [
        (f"user-{n}".encode(), f"value {n} {text}".encode(), [("h", b"\xff%d" % n)], at + n)
        for n in range(KEYS)
    ]
    return [*named, (None, b"no key", None, at + KEYS), (b"tombstone", None, None, at + KEYS + 1)]


def expected(hours: int, but: bytes | None = None) -> Records:
    """What an archive of the first hours must hold, without a key."""
    return {
        (partition, offset): record
        for partition in (0, 1)
        for offset, record in enumerate(
            record for hour in range(hours) for record in sent(hour, partition)
        )
        if but is None or record[0] != but
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Read a data file with its format's own library."""
    with path.open("rb") as file:
        if path.suffix == ".parquet":
            return pq.ParquetFile(file).read().to_pylist()
        if path.suffix == ".orc":
            return orc.ORCFile(file).read().to_pylist()
        if path.suffix == ".avro":
            return [row for row in fastavro.reader(file) if isinstance(row, dict)]
        return [from_base64(json.loads(line)) for line in file]


def from_base64(row: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON row with bytes as bytes."""
    return {
        **row,
        "timestamp": datetime.fromisoformat(row["timestamp"].replace("Z", "+00:00")),
        "headers": [{**h, "value": b64decode(h["value"])} for h in row.get("headers") or ()],
        **{name: b64decode(row[name]) for name in ("key", "value") if name in row},
    }


def record_of(row: dict[str, Any]) -> Record:
    """Return a row as it was sent."""
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    time: datetime = row["timestamp"]
    # ORC has UTC without saying so.
    ms = round((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    return row.get("key"), row.get("value"), headers or None, ms


def held(folder: Path) -> Records:
    """Read every data file that lies below a folder; no record may be there twice."""
    found: Records = {}
    for path in sorted(folder.rglob("part-*")):
        for row in rows_of(path):
            where = (row["partition"], row["offset"])
            assert where not in found, f"{where} is there twice, the second time in {path}"
            found[where] = record_of(row)
    return found


def files_in(folder: Path) -> int:
    """Count the data files that lie below a folder."""
    return len([*folder.rglob("part-*")])


def refuse_unproven(pipeline: Pipeline, cluster: KafkaCluster, records: int) -> None:
    """Let a deep validation prove the archive."""
    report = validate_archive(Archive.at(pipeline.archive), cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    assert report.records == records


def is_refused(path: str) -> bool:
    """Return whether a pipeline can't be declared with an archive below a path."""
    try:
        Pipeline(name="p", topics=["t"], archive=f"{path}/a" if path else path)
    except ConfigError:
        return True
    return False


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, str]]]:
    """What each step of each name came to; printed at the end."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    yield found
    lines = ["", "\t".join(("name", *STEPS))]
    lines += ["\t".join((name, *(row.get(s, "-") for s in STEPS))) for name, row in found.items()]
    worked = sum(set(row.values()) == {"works"} for row in found.values())
    refused = sum(is_refused(path) for path, _ in REFUSED.values())
    lines.append(f"{worked} of {len(found)} work, {refused} of {len(REFUSED)} are refused")
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write("\n".join([*lines, ""]).expandtabs(28))


@pytest.fixture
def noted(
    outcomes: dict[str, dict[str, str]], what: str, request: pytest.FixtureRequest
) -> Callable[[str], AbstractContextManager[None]]:
    """Note what a step comes to."""
    file_format = request.node.callspec.params.get("file_format", "parquet")
    row = outcomes[f"{what}, {file_format}"]

    @contextmanager
    def note(step: str) -> Iterator[None]:
        row[step] = "FAILS"
        yield
        row[step] = "works"

    return note


@pytest.fixture
def folder(tmp_path: Path, what: str) -> Iterator[Path]:
    """The folder with the name; beside it, the test's end finds nothing that wasn't there."""
    for name in BESIDE:
        (tmp_path / name).mkdir()
    yield tmp_path / NAMES[what] / "archive"
    assert sorted(os.listdir(tmp_path)) == sorted({*BESIDE, NAMES[what]})
    assert [*(tmp_path / NAMES[what]).iterdir()] == [tmp_path / NAMES[what] / "archive"]
    assert not [each for name in BESIDE for each in (tmp_path / name).iterdir()]


@pytest.mark.parametrize(("what", "file_format"), [*with_each_format()])
def test_odd_path(
    folder: Path,
    file_format: str,
    noted: Noted,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    read: Callable[[str], dict[int, list[Any]]],
    drain: Any,
    cluster: KafkaCluster,
    runner: SparkRunner,
    republish: Callable[..., dict[str, Any]],
) -> None:
    """Drained, proven, compacted, erased from and republished, it holds what was sent, once."""
    topic, target = make_topic(2), make_topic(2)
    pipeline = Pipeline(
        name="odd",
        topics=[topic],
        archive=str(folder),
        format=file_format,
        **({"compression": "none"} if file_format == "json" else {}),
    )
    for hour in range(2):
        for partition in (0, 1):
            send(topic, sent(hour, partition), partition)
        everything = expected(hour + 1)
        with noted("drain"):
            drain(pipeline)
            assert held(folder) == everything
        with noted("validate"):
            refuse_unproven(pipeline, cluster, len(everything))
    assert files_in(folder) == 4

    with noted("compact"):
        figures = run_maintenance(
            pipeline, cluster, runner, run="tests", clock=lambda: utc_now() + timedelta(days=10)
        )
        assert (figures["files_before"], figures["rolled"]) == (4, True)
        assert files_in(folder) < 4
        assert held(folder) == everything
        refuse_unproven(pipeline, cluster, len(everything))

    left = expected(2, but=GONE)
    with noted("erase"):
        request = ErasureRequest("req-1", "privacy@example.com", keys=frozenset({GONE}))
        erased = run_erasure(pipeline, cluster, runner, request, run="tests", wait_seconds=0)
        assert erased["erased"] == len(everything) - len(left) == 4
        assert held(folder) == left
        refuse_unproven(pipeline, cluster, len(left))

    with noted("republish"):
        # Without a receipt, which a verification gets, it raises an error.
        receipt = republish(Archive.at(pipeline.archive), target)
        assert receipt["verification"]["is_exact"]
        assert read(target) == {
            partition: [record for (of, _), record in left.items() if of == partition]
            for partition in (0, 1)
        }


@pytest.mark.soak
@pytest.mark.parametrize("what", [what for what, name in NAMES.items() if not name.isascii()])
def test_odd_path_ascii_locale(
    what: str,
    folder: Path,
    noted: Noted,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    bootstrap_servers: str,
) -> None:
    """The commands work where the locale, by which Java names files, has no such characters."""
    topic = make_topic(2)
    for partition in (0, 1):
        send(topic, sent(0, partition), partition)
    kafka = ("--bootstrap-servers", bootstrap_servers)
    everything = expected(1)

    def run(*arguments: object) -> Any:
        command = [*arguments, *kafka, "--json"]
        ended = run_module("kafka_drain.cli", *command, environment={"LC_ALL": "C"})
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    with noted("LC_ALL=C"):
        drained = run("drain", folder, "--master", "local[2]", "--topic", topic)
        assert drained["records"] == len(everything)
        validated = run("validate", folder, "--deep")
        assert (validated["verdict"], validated["records"]) == ("complete", len(everything))
        assert held(folder) == everything
