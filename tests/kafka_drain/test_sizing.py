"""The sizes that `kafka-drain size` says, against what was measured."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain import sizing
from kafka_drain.errors import ConfigError
from kafka_drain.sizing import Between, Load, drain_seconds, size_of
from kafka_drain_spark import send
from tests.tables import each_of

RESULTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results.json").read_text()
)["parts"]
ORDERS = RESULTS["drain"]["orders"]["mean_value_bytes"]
LOAD = Load(records_per_second=1_000, record_bytes=500, partitions=20, retention_days=30)

loads = st.builds(
    Load,
    records_per_second=st.floats(0.01, 1e7),
    record_bytes=st.floats(1, 1e5),
    partitions=st.integers(1, 10_000),
    retention_days=st.floats(1, 4_000),
    minutes=st.sampled_from([10.0, 60.0, 1_440.0]),
)


def test_constants_drain() -> None:
    """The start is what is left of two drains of the same records without the records' share."""
    jobs = RESULTS["memory"]["jobs"]["drain"]
    few, many = (jobs[number]["process_seconds"] for number in ("2000000", "20000000"))
    a_million = (many - few) / 18

    assert few - 2 * a_million == pytest.approx(sizing.START_MANY, abs=0.05)
    assert RESULTS["hourly"]["seconds"]["total"]["median"] == pytest.approx(
        sizing.START_FEW, abs=0.05
    )


def test_constants_records_and_bytes() -> None:
    """Two loads with different records on a warm server tell records and bytes apart.

    Of each the fastest run, because others were disturbed.
    """
    parts = {name: RESULTS["connect"][name] for name in ("tiny", "orders", "random")}
    arms = {n: p["arms"]["commands" if n == "tiny" else "ours"] for n, p in parts.items()}
    start = arms["tiny"]["seconds"]["median"]
    left = {name: arms[name]["seconds"]["min"] - start for name in ("orders", "random")}
    records = {name: parts[name]["records"] / 1e6 for name in left}
    size = {name: records[name] * RESULTS["drain"][name]["mean_value_bytes"] for name in left}
    ratio = records["random"] / records["orders"]
    per_megabyte = (left["random"] - ratio * left["orders"]) / (
        size["random"] - ratio * size["orders"]
    )
    per_million = (left["orders"] - size["orders"] * per_megabyte) / records["orders"]

    assert per_megabyte == pytest.approx(sizing.PER_MEGABYTE, abs=0.0001)
    assert per_million == pytest.approx(sizing.PER_MILLION, abs=0.02)


def test_constants_partitions() -> None:
    """A partition's share is what nine hundred more take."""
    seconds = {
        point["size"]: float(point["measured"].split()[0])
        for point in RESULTS["scale"]["points"]
        if point["what"].startswith("query, with one record")
    }

    a_partition = (seconds["1,000 partitions"] - seconds["100 partitions"]) / 900
    assert a_partition == pytest.approx(sizing.PER_PARTITION, abs=0.001)


def test_constants_restore() -> None:
    """A restore's start and its rate follow from two republishes of the same records."""
    jobs = RESULTS["memory"]["jobs"]["republish, worker"]
    few, many = (jobs[number]["process_seconds"] for number in ("2000000", "20000000"))

    assert (many - few) / 18 == pytest.approx(sizing.RESTORE_PER_MILLION, abs=0.01)
    assert few - 2 * (many - few) / 18 == pytest.approx(sizing.RESTORE_START, abs=0.1)


@pytest.mark.parametrize("kind", ["orders", "small", "random"])
def test_drain_seconds_held_back(kind: str) -> None:
    """Drains that the model wasn't made from take what it says, within its error bars."""
    part = RESULTS["drain"][kind]
    measured = part["arms"]["ours"]["process_seconds"]["median"]

    said = drain_seconds(part["records"], part["mean_value_bytes"], 8, 2)

    assert said == pytest.approx(measured, rel=sizing.ERROR)


def test_drain_seconds_held_back_hot() -> None:
    """So does one of five million records, most of them in one partition."""
    measured = RESULTS["hot"]["arms"]["ours"]["process_seconds"]["median"]

    said = drain_seconds(RESULTS["hot"]["records"], ORDERS, 8, 2)

    assert said == pytest.approx(measured, rel=sizing.ERROR)


def test_drain_seconds_held_back_wide() -> None:
    """So does one of ten thousand small partitions in one topic."""
    part = RESULTS["wide"]
    measured = part["figures"]["drain"]["seconds"]

    said = drain_seconds(3 * part["partitions"], 15, part["partitions"], 2)

    assert said == pytest.approx(measured, rel=sizing.ERROR)


@pytest.mark.parametrize("row", RESULTS["workers"]["rows"], ids=lambda row: str(row["workers"]))
def test_send_seconds_held_back(row: dict[str, Any]) -> None:
    """A restore by three and by four workers takes what one and two foretell."""
    rows = {row["workers"]: row["seconds"] for row in RESULTS["workers"]["rows"]}
    model = sizing.Sending.fit(RESULTS["workers"]["partitions"], {n: rows[n] for n in (1, 2)})

    said = sizing.send_seconds(model, row["workers"])

    assert said == pytest.approx(row["seconds"], rel=sizing.ERROR)


@pytest.mark.parametrize(
    ("records", "partitions", "cores", "expected"),
    [
        (20_000, 8, 2, 5.8 + 0.0306 + 0.0044),
        (20_001, 8, 2, 11.7 + 0.0306 + 0.0044),
        (20_000, 1, 2, 5.8 + 0.0306 + 0.0044),
        (20_000, 9, 2, 5.8 + 0.0306 + 0.0044 + 0.036),
        (1_000_000, 108, 4, 11.7 + (1.53 + 0.22 + 3.6) / 2),
    ],
)
def test_drain_seconds(records: float, partitions: int, cores: int, expected: float) -> None:
    """A start by the number of records; then records, bytes and more than eight partitions."""
    assert drain_seconds(records, 100, partitions, cores) == pytest.approx(expected, abs=1e-4)


@each_of("name", list(Load.__slots__))
@each_of("value", [0, -1, float("inf"), float("nan")])
def test_load_refused(name: str, value: float) -> None:
    """What isn't a number above 0 is refused by its name."""
    with pytest.raises(ConfigError, match=re.escape(name)):
        replace(LOAD, **{name: value})


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, {"cores": 2, "memory_mib": 1_300, "new_files": 480, "receipts": 720}),
        ({"minutes": 1_440.0}, {"new_files": 20, "receipts": 30}),
        ({"partitions": 100}, {"new_files": 2_400}),
        ({"retention_days": 3_650.0}, {"receipts": 87_600}),
        ({"records_per_second": 1_000_000.0}, {"cores": 14, "memory_mib": 9_100}),
    ],
)
def test_size_of(change: dict[str, float], wanted: dict[str, float]) -> None:
    """Files and receipts follow from drains and partitions, cores from records."""
    size = asdict(size_of(replace(LOAD, **change)))

    assert {name: size[name] for name in wanted} == pytest.approx(wanted)


def test_size_of_bytes() -> None:
    """500 kB/s for 30 days are 1,296 GB, of which JSON keeps a quarter."""
    size = size_of(LOAD)

    assert size.archive_bytes.low == pytest.approx(1_296e9 * 0.24)
    assert size.archive_bytes.likely == pytest.approx(1_296e9 * (0.24 + 1.03) / 2)
    assert size.archive_bytes.high == pytest.approx(1_296e9 * 1.03)
    in_files = [asdict(size)[name] for name in ("archive_bytes", "kept_files")]
    for name, value in in_files[0].items():
        assert in_files[1][name] == pytest.approx(value / (256 << 20))


def test_size_of_requests() -> None:
    """Hourly drains of an archive of four generations: the fixed ones, files, and generations."""
    size = size_of(replace(LOAD, retention_days=28))

    assert size.requests == pytest.approx(24 * (124 + 9 * 4) + 480 * 3)


def test_size_of_restore() -> None:
    """Records of the measured size have no doubt but the model's own."""
    hours = size_of(replace(LOAD, record_bytes=sizing.MEASURED_BYTES)).restore_hours

    assert hours.likely == pytest.approx((3 + 86.4 * 4.22) / 3600)
    assert (hours.low, hours.high) == pytest.approx((hours.likely * 0.75, hours.likely * 1.25))


@pytest.mark.parametrize(
    ("lanes", "workers", "expected"),
    [
        *[(8, 1, 1), (8, 2, 1 / 2), (8, 3, 1 / 2), (8, 4, 1 / 4), (8, 5, 1 / 4), (8, 9, 1 / 8)],
        *[(1, 1, 1), (1, 2, 1), (7, 1, 1), (3, 2, 2 / 3)],
    ],
)
def test_largest_share(lanes: int, workers: int, expected: float) -> None:
    """The busiest worker has as many pairs of lanes as any; one without a lane doesn't help."""
    assert sizing.LANES == send.LANES
    assert sizing.largest_share(lanes, workers) == pytest.approx(expected)


def test_sending_fit_two_and_four() -> None:
    """One worker needn't be measured."""
    sending = sizing.Sending(8, 3.0, 100.0)

    fitted = sizing.Sending.fit(8, {n: sizing.send_seconds(sending, n) for n in (4, 2)})

    assert asdict(fitted) == pytest.approx(asdict(sending))


@given(
    lanes=st.integers(2, 1_000),
    start=st.floats(0, 100),
    work=st.floats(1, 1e6),
    workers=st.integers(1, 2_000),
)
def test_sending_fit(lanes: int, start: float, work: float, workers: int) -> None:
    """Durations with one worker and with two are enough to tell start and work apart."""
    sending = sizing.Sending(lanes, start, work)
    seconds = {n: sizing.send_seconds(sending, n) for n in (1, 2)}

    said = sizing.send_seconds(sizing.Sending.fit(lanes, seconds), workers)

    assert said == pytest.approx(sizing.send_seconds(sending, workers), abs=1e-6 * work)


def test_size_of_restore_cores() -> None:
    """Four times the cores restore in a quarter of the time, beside the start."""
    start = sizing.RESTORE_START / 3600
    load = replace(LOAD, partitions=32)
    few, many = (size_of(replace(load, restore_cores=cores)).restore_hours for cores in (2, 8))

    assert many.likely - start == pytest.approx((few.likely - start) / 4)


@pytest.mark.parametrize(
    ("records", "seconds", "is_possible"),
    [
        (20_000, 14.5, False),
        (20_000, 15, True),
        (20_001, 29.25, False),
        (20_001, 30, True),
    ],
)
def test_size_of_too_often(records: float, seconds: float, is_possible: bool) -> None:
    """Drains whose start alone takes two fifths of the time until the next one are refused."""
    load = replace(
        LOAD,
        records_per_second=records / seconds,
        record_bytes=100,
        partitions=8,
        minutes=seconds / 60,
    )

    if is_possible:
        assert size_of(load).cores == 2
        return
    with pytest.raises(ConfigError, match="minutes"):
        size_of(load)


@given(load=loads)
def test_size_of_is_enough(load: Load) -> None:
    """With its cores, a drain takes at most half of the time until the next, even at worst."""
    size = size_of(load)

    assert size.drain_seconds.high <= load.minutes * 60 * sizing.SHARE * 1.000001
    for name in ("drain_seconds", "archive_bytes", "kept_files", "restore_hours"):
        figure: Between = getattr(size, name)
        assert 0 < figure.low <= figure.likely <= figure.high


@given(load=loads, factor=st.floats(1, 10))
def test_size_of_more(load: Load, factor: float) -> None:
    """More of anything never needs less."""
    for name in ("records_per_second", "record_bytes", "retention_days"):
        more = size_of(replace(load, **{name: getattr(load, name) * factor}))
        less = size_of(load)
        assert more.cores >= less.cores
        assert more.archive_bytes.high >= less.archive_bytes.high
        assert more.requests >= less.requests
        assert more.restore_hours.high >= less.restore_hours.high
