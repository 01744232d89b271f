"""What an archive's runs have sealed over time, and the page that shows it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive import history as history_module
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.history import Cell, Histories, History, SealedRun, Span, read_history
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.status import read_overview
from kafka_drain.archive.window import Window
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.archive import DrainResult, archive_page
from kafka_drain.pages.overview import ArchiveRow, Doing, Run, shown_task
from kafka_drain.pages.placing import NOTHING, Placed, place_findings
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.archive.test_status import EVIL, Words, overview
from tests.kafka_drain.golden import END, P0, P1, add_batch, open_next, seal, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
ROW = ArchiveRow(
    name="orders",
    archive="/archives/orders",
    link="/dags/drain_orders",
    page="/p/orders",
    overview=overview(),
)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The receipts that are opened, as they are."""
    names: list[str] = []
    read = Generation.read_receipt

    def noting(generation: Generation, name: str) -> Any:
        names.append(f"{generation.number}/{name}")
        return read(generation, name)

    monkeypatch.setattr(Generation, "read_receipt", noting)
    return names  # type: ignore[return-value]


def test_read_history(tmp_path: Path) -> None:
    """Each receipt is a run; together they have what the archive holds."""
    archive, history = sealed_copy(tmp_path / "archive"), History()

    read_history(archive, history)

    receipts = list(archive.generation(1).receipts())
    assert [run.receipt for run in history.runs] == [receipt.name for receipt in receipts]
    assert sum(run.offsets for run in history.runs) == 2 * END
    assert sum(run.records for run in history.runs) == sum(r.records for r in receipts)
    assert sum(run.files for run in history.runs) == receipts[-1].files_so_far.files
    assert sum(run.bytes for run in history.runs) == receipts[-1].files_so_far.bytes
    [day] = history.days.values()
    assert {tp: cell.offsets for tp, cell in day.items()} == {P0: END, P1: END}


def test_histories_once(tmp_path: Path, opened: list[str]) -> None:
    """A receipt is read once, however often and by however many it is asked for."""
    archive, histories = sealed_copy(tmp_path / "archive"), Histories()
    opened.clear()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: histories.of(archive), range(16)))

    assert all(history.runs == found[0].runs for history in found)
    assert len(opened) == len(set(opened)) == len(found[0].runs)

    opened.clear()
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    seal(archive)
    opened.clear()
    later = histories.of(archive)
    assert [run.generation for run in later.runs][-1] == 2
    assert opened == [f"2/{later.runs[-1].receipt}"]


def test_histories_other_archive(tmp_path: Path) -> None:
    """Where another archive has taken the place of one, nothing of the first is told."""
    archive, histories = sealed_copy(tmp_path / "archive"), Histories()
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    seal(archive)
    assert histories.of(archive).runs[-1].generation == 2

    shutil.rmtree(str(archive.root))
    sealed_copy(tmp_path / "archive")

    assert {run.generation for run in histories.of(archive).runs} == {1}
    assert sum(run.offsets for run in histories.of(archive).runs) == 2 * END


def test_histories_other_archive_of_the_same_names(tmp_path: Path) -> None:
    """An archive that was replaced by one whose receipts have the same names is read anew."""
    archives = [MadeArchive(tmp_path / name, {P0.topic: "id"}) for name in ("one", "two")]
    for made, records in zip(archives, (10, 20), strict=True):
        made.seal({P0: dense(0, records)})
    histories, place = Histories(), tmp_path / "place"
    archive = Archive.at(str(place))

    for made, records in zip(archives, (10, 20), strict=True):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(str(made.root), place)

        assert [run.records for run in histories.of(archive).runs] == [records]
        assert [point.records for point in histories.of(archive).points] == [records]


def test_histories_closed_generations_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once read, the receipts of generations before the newest one aren't listed again."""
    archive, histories = sealed_copy(tmp_path / "archive"), Histories()
    add_batch(open_next(archive, "parquet", ["topic"]), 0, END, 50)
    seal(archive)
    first = histories.of(archive)
    listed: list[int] = []
    names = Generation.receipt_names

    def noting(generation: Generation) -> list[str]:
        listed.append(generation.number)
        return names(generation)

    monkeypatch.setattr(Generation, "receipt_names", noting)

    assert histories.of(archive) == first
    assert listed == [2]


def test_histories_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more archives are kept than there is room for."""
    monkeypatch.setattr(history_module, "ARCHIVES", 2)
    histories = Histories()

    for number in range(4):
        histories.of(sealed_copy(tmp_path / f"{number}"))

    assert len(histories._held) == 2


def test_read_history_damaged(tmp_path: Path) -> None:
    """A damaged receipt is an error, not a hole in the picture."""
    archive = sealed_copy(tmp_path / "archive")
    receipt = sorted((tmp_path / "archive" / "generations" / "0001" / "receipts").iterdir())[-1]
    receipt.write_bytes(receipt.read_bytes().replace(b"flights", b"flightz"))

    with pytest.raises(ReceiptError):
        Histories().of(archive)


def test_history_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However old an archive, only what its page draws is kept: the newest runs and days."""
    monkeypatch.setattr(history_module, "COLUMNS", 24)
    history = History()

    for hour in range(24 * 30):
        history.add_run(run(hour))

    assert [kept.batch for kept in history.runs] == list(range(24 * 29, 24 * 30))
    assert list(history.days) == [f"2026-11-{day:02d}" for day in range(7, 31)]
    assert history.days["2026-11-07"][P0] == Cell(24 * 10, 24 * 9, {"control": 24})


def test_history_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The totals of more runs are kept than their partitions, and not of all runs."""
    monkeypatch.setattr(history_module, "COLUMNS", 2)
    monkeypatch.setattr(history_module, "POINTS", 5)
    history = History()

    for hour in range(9):
        history.add_run(run(hour))

    assert len(history.points) == 5
    began = round(datetime(2026, 11, 1, tzinfo=timezone.utc).timestamp())
    assert list(history.points)[-1] == (began + 8 * 3600, 1, 10, 9, 1_000)
    history.clear()
    assert history == History()


def run(hour: int, gaps: dict[str, int] | None = None, tp: TopicPartition = P0) -> SealedRun:
    """Return a run that sealed ten offsets of one partition, an hour after the one before."""
    day, hour_of_day = divmod(hour, 24)
    return SealedRun(
        receipt=f"{hour:012d}.json",
        generation=1,
        batch=hour,
        sealed_at=f"2026-11-{day + 1:02d}T{hour_of_day:02d}:00:00.000+00:00",
        offsets=10,
        records=9,
        files=1,
        bytes=1_000,
        cells={tp: Cell(10, 9, {"control": 1} if gaps is None else gaps)},
    )


def page_of(*runs: SealedRun, row: ArchiveRow = ROW, drains: Sequence[DrainResult] = ()) -> str:
    history = History()
    for one in runs:
        history.add_run(one)
    return archive_page(row, history, NOW, "/p/orders/receipts", drains=drains)


def test_archive_page_colours() -> None:
    """What a cell lacks is its colour; what is harmless doesn't hide what isn't."""
    lost = run(1, {"control": 5, "lost": 1})
    empty = replace(run(2), records=0, cells={P1: Cell(10, 0, {"aborted": 10})})

    page = page_of(run(0), lost, empty)

    for words, colour in (
        ("flights-0, generation 1, batch 0", "covered"),
        ("flights-0, generation 1, batch 1", "lost"),
        ("flights-1, generation 1, batch 2", "aborted"),
    ):
        shape = page.split(f"<title>{words}", 1)[1].split("</g>")[0]
        assert f'class="{colour}"' in shape


def test_archive_page_receipts() -> None:
    """Receipts can be browsed, the newest first."""
    page = page_of(run(0), run(1))

    newest, oldest = Words(page).rows[-2:]
    assert newest[:3] == ["000000000001.json", "1", "1"]
    assert oldest[:3] == ["000000000000.json", "1", "0"]
    assert 'href="/p/orders/receipts/1/000000000001.json/page"' in page


def test_archive_page_many_partitions() -> None:
    """Of many partitions those with something wrong are shown."""
    many = {TopicPartition("t", number): Cell(10, 10) for number in range(500)}
    wrong = TopicPartition("t", 499)

    page = page_of(replace(run(0), cells=many | {wrong: Cell(10, 9, {"lost": 1})}))

    assert "100 of 500, including those with gaps" in page
    assert "<title>t-499</title>" in page


def test_archive_page_empty() -> None:
    """An archive without receipts has a page that says so, and one that can't be read why."""
    assert "Nothing has been sealed yet" in page_of()
    problem = "this server may not read it"
    assert problem in page_of(row=replace(ROW, problem=problem))


def test_archive_page_escapes() -> None:
    """What others name can't be more than text: topics, gaps, files, tasks, findings."""
    seen = overview(verdict="findings", findings={EVIL: 1}, gaps={EVIL: 1})
    row = ArchiveRow(
        EVIL, EVIL, EVIL, report=EVIL, overview=seen, runs=[Run(EVIL, EVIL, EVIL)], page=EVIL
    )
    odd = replace(run(0, {EVIL: 5}, TopicPartition(EVIL, 0)), receipt=EVIL)
    span = Span(None, EVIL, 1, 1, 1, 1, 0, 1, EVIL)
    history = History([odd], {EVIL: odd.cells, "b": odd.cells}, spans={EVIL: span})
    said = {**SAID, "unit": EVIL, "rate": EVIL, "left": EVIL, "at": EVIL, "spark_ui": EVIL}
    tasks = [Doing(EVIL, EVIL, state, EVIL, said) for state in ("running", EVIL)]

    page = archive_page(row, history, NOW, EVIL, tasks, [DrainResult(EVIL, 9, 1.0)])

    assert "Throughput" in page
    assert page.count("<script>") == 1
    assert not Words(page).names & {"img", "onload"}


def test_read_history_spans(tmp_path: Path) -> None:
    """Generations and sealed windows have what their receipts hold, and from when."""
    archive, history = sealed_copy(tmp_path / "archive"), History()
    receipts = list(archive.generation(1).receipts())
    [first] = [window for window in made_windows(archive, "a", "b") if window.key == "a"]

    read_history(archive, history)
    (first.folder / "receipt.json").unlink()
    read_history(archive, history)

    generation = history.spans["generation 1"]
    assert generation.segments == len(receipts)
    assert generation.records == sum(receipt.records for receipt in receipts)
    times = [p.first_timestamp for receipt in receipts for p in receipt.partitions]
    assert generation.first_timestamp == min(time for time in times if time is not None)
    assert {name for name in history.spans if name != "generation 1"} == {"a", "b"}
    shutil.rmtree(first.folder)
    read_history(archive, history)
    assert "a" not in history.spans


def made_windows(archive: Archive, *keys: str) -> list[Window]:
    """Seal windows that hold what the generation's first segment holds."""
    receipt = next(archive.generation(1).receipts())
    windows = [Window(archive.root, key) for key in keys]
    for window in windows:
        window.folder.mkdir(parents=True)
        window.write_receipt(replace(receipt, generation=None, window=window.key).sealed())
    (archive.root / "windows" / "unsealed").mkdir(exist_ok=True)
    return windows


def shapes(page: str) -> set[tuple[str, str]]:
    """Return receipt and colour of each cell of a page's map of runs."""
    drawn = page.split("Sealed by each run")[1].split("<h2>", maxsplit=1)[0]
    cells = re.findall(r"<g><title>(\S+), .*?batch (\d+),.*?class=\"(\w+)\"", drawn)
    return {(f"{tp} {batch}", colour) for tp, batch, colour in cells}


def test_archive_page_file_lost(tmp_path: Path) -> None:
    """The map, bars and spans of a file that is lost are red, also when it is validated again."""
    archive, history = sealed_copy(tmp_path / "archive"), History()
    read_history(archive, history)
    receipts = list(archive.generation(1).receipts())
    [lost] = [f for f in receipts[-1].files if {c.tp for c in f.contents} == {P1}]
    before = archive_page(ROW, history, NOW, "/r")
    assert {colour for _, colour in shapes(before)} == {"covered"}
    (tmp_path / "archive" / lost.path).unlink()

    for _ in range(2):
        report = validate_archive(archive, None)
        note_overview(archive, report, "reports/r.json")
        row = replace(ROW, overview=read_overview(archive.root))
        placed = place_findings(report.to_dict(), receipts)
        page = archive_page(row, history, NOW, "/r", placed=placed)

        assert (f"{P1} 13", "damaged") in shapes(page)
        assert {c for name, c in shapes(page) if name != f"{P1} 13"} == {"covered"}
        assert "damaged, see the report" in page
        assert 'class="verdict findings"' in page
        generation = page.split("<title>generation 1: ", 1)[1].split("</g>")[0]
        assert 'class="damaged"' in generation


@pytest.fixture
def of_unknown(tmp_path: Path) -> MadeArchive:
    """An archive whose second receipt has no fingerprint; of partition 1, it has no record."""
    made = MadeArchive(tmp_path / "unknown", {P0.topic: "id"})
    for batch in range(3):
        rows = {P0: dense(10 * batch, 10 * batch + 10)}
        is_known = batch != 1
        made.seal(
            {**rows, P1: rows[P0]} if is_known else rows, fingerprint="ff" if is_known else None
        )
    return made


def test_archive_page_content_unknown(of_unknown: MadeArchive) -> None:
    """The map isn't green where only offsets are proven, until a window drains them again.

    A compaction keeps records as they are.
    """
    history = History()
    [file] = [f for f in of_unknown.files() if "-1.parquet" in f.path]

    def colours() -> set[tuple[str, str]]:
        read_history(of_unknown.archive, history)
        return {(name, c) for name, c in shapes(archive_page(ROW, history, NOW, "/r"))}

    first, second = f"{P0} 0", f"{P0} 1"
    assert {(first, "covered"), (second, "content_unknown"), (f"{P1} 2", "covered")} < colours()
    page = archive_page(ROW, history, NOW, "/r")
    assert "offsets proven, some contents unknown" in page
    generation = page.split("<title>generation 1: ", 1)[1].split("</g>")[0]
    assert 'class="content_unknown"' in generation

    made_window(of_unknown, "compact_1", replaces=(file.path,), provenance={"r": "sha"})
    assert (second, "content_unknown") in colours()

    made_window(of_unknown, "reprocess_1", replaces=(file.path,))
    assert {colour for _, colour in colours()} == {"covered"}

    shutil.rmtree(of_unknown.root / "windows" / "reprocess_1")
    assert (second, "content_unknown") in colours()


def test_archive_page_content_unknown_by_day(of_unknown: MadeArchive) -> None:
    """A day isn't green either, even once its runs are no longer among those kept."""
    history = History()
    read_history(of_unknown.archive, history)
    history.add_run(replace(run(0), generation=2, sealed_at="2030-01-01T00:00:00+00:00"))
    del history.runs[:-1]

    page = archive_page(ROW, history, NOW, "/r")

    by_day = page.split("By day")[1]
    assert re.findall(r'<title>(\S+), \S+:.*?class="(\w+)"', by_day)[:3] == [
        (str(P0), "content_unknown"),
        (str(P0), "covered"),
        (str(P1), "covered"),
    ]


def test_histories_content_unknown(of_unknown: MadeArchive) -> None:
    """A history that is kept answers as one that is read anew."""
    histories, anew = Histories(), History()

    found = histories.of(of_unknown.archive)
    read_history(of_unknown.archive, anew)

    assert found.still_unknown == anew.still_unknown != []
    assert histories.of(of_unknown.archive) == found


def made_window(made: MadeArchive, key: str, **changes: Any) -> None:
    """Seal a window with a receipt as that of the first segment, but for some changes."""
    [window] = made_windows(made.archive, key)
    (window.folder / "receipt.json").unlink()
    receipt = next(made.archive.generation(1).receipts())
    window.write_receipt(replace(receipt, generation=None, window=key, **changes).sealed())


@pytest.mark.parametrize(
    ("row", "placed"),
    [
        (replace(ROW, overview=None), NOTHING),
        (replace(ROW, problem="this server may not read it"), NOTHING),
        (replace(ROW, overview=overview(verdict="findings")), Placed(is_complete=False)),
    ],
)
def test_archive_page_unproven(tmp_path: Path, row: ArchiveRow, placed: Placed) -> None:
    """What was sealed is green nowhere when no validation proves it."""
    archive, history = sealed_copy(tmp_path / "archive"), History()
    made_windows(archive, "repair_1")
    read_history(archive, history)

    page = archive_page(row, history, NOW, "/r", placed=placed)

    assert {colour for _, colour in shapes(page)} == {"unproven"}
    assert 'class="covered"' not in page
    assert 'class="window"' not in page


def test_archive_page_never_validated() -> None:
    """An archive without a validation isn't told in green; one whose run failed is told in red."""
    waiting, failed = (
        archive_page(replace(ROW, overview=None, runs=runs), History(), NOW, "/r")
        for runs in ((), (Run("failed", "failed: r", "/r"),))
    )

    assert '<p class="verdict late">Unknown' in waiting
    assert "<p>Not validated</p>" in waiting
    assert '<p class="verdict findings">Unknown' in failed
    assert "<p>Not validated, last run failed</p>" in failed


SAID = {"done": 191_427, "total": 336_776, "unit": "records", "percent": 56, "rate": "9,593/s",
        "left": "15 s", "at": "2026-11-22T11:59:00+00:00", "spark_ui": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "said", "words", "bar"),
    [
        ("success", SAID, "success, 336,776 of 336,776 records (100 %), as of 2026-", "100.00"),
        ("failed", SAID, "failed, 191,427 of 336,776 records (56 %), as of 2026-", "56.00"),
        (
            "up_for_retry",
            SAID,
            "up_for_retry, 191,427 of 336,776 records (56 %), as of 2026",
            "56.00",
        ),
        ("running", SAID, "running, 191,427 of 336,776 records (56 %), 9,593/s, 15 s left", "56."),
        ("running", {}, "running, no progress yet<", ""),
        ("failed", {}, "failed<", ""),
    ],
)
def test_archive_page_task_shows_its_end(
    state: str, said: dict[str, Any], words: str, bar: str
) -> None:
    """A task that has ended shows its end, whatever it said; one that said nothing has no bar."""
    doing = Doing("republish_orders", "republish", state, "/runs/1", said)

    page = archive_page(ROW, History(), NOW, "/r", [doing])

    assert f": {words}" in page
    assert ('class="progress"' in page) is bool(bar)
    if bar:
        assert f'width="{bar}' in page.split(f": {words}")[1]


@pytest.mark.parametrize("said", [SAID, {}])
@pytest.mark.parametrize(("state", "is_shown"), [("running", True), ("failed", False)])
def test_archive_page_task_waits(state: str, is_shown: bool, said: dict[str, Any]) -> None:
    """What a running task waits for is on the page; one that has ended says why elsewhere."""
    waiting = "waiting: k1:9092 refuses connections <b>"
    doing = Doing("drain_orders", "drain", state, "/runs/1", said, waiting)

    page = archive_page(ROW, History(), NOW, "/r", [doing])

    shown = '<p class="warning">waiting: k1:9092 refuses connections &lt;b&gt;</p>'
    assert (shown in page) is is_shown
    assert ("refuses connections" in page) is is_shown


def doing(task_id: str, state: str, said: dict[str, Any]) -> Doing:
    return Doing("drain_orders", task_id, state, "/runs/1", said)


@pytest.mark.parametrize(
    ("tasks", "shown"),
    [
        ([], None),
        (["preflight success -", "drain success -", "validate success -"], None),
        (["preflight success -", "drain success +", "validate success -"], "drain"),
        (["preflight running -", "drain none -", "validate none -"], "preflight"),
        (["preflight success -", "drain running -", "validate none -"], "drain"),
        (["preflight success -", "drain success +", "validate running -"], "validate"),
        (["preflight success -", "drain success +", "validate failed -"], "validate"),
        (["preflight failed -", "drain upstream_failed -", "validate none -"], "preflight"),
        (["preflight success -", "drain up_for_retry -", "validate none -"], "drain"),
        (["preflight success -", "drain failed +", "validate upstream_failed -"], "drain"),
        (["preflight success -", "drain queued -", "validate none -"], None),
    ],
)
def test_shown_task(tasks: list[str], shown: str | None) -> None:
    """Of a run, the task is shown that works, or else that failed, or else that said something."""
    parts = [task.split() for task in tasks]

    found = shown_task([doing(name, state, SAID if n == "+" else {}) for name, state, n in parts])

    assert (found and found.task_id) == shown


def test_archive_page_spans(tmp_path: Path) -> None:
    """Each generation and window is a bar from its first to its last record; odd times are none."""
    archive, history = sealed_copy(tmp_path / "archive"), History()
    made_windows(archive, "repair_1")
    read_history(archive, history)
    odd = replace(history.spans["repair_1"], name="odd", last_timestamp=2**62)

    page = archive_page(ROW, history, NOW, "/r")
    odd_page = archive_page(ROW, replace_spans(history, odd), NOW, "/r")

    assert "<title>generation 1: " in page
    shape = page.split("<title>repair_1: ", 1)[1].split("</g>")[0]
    assert 'class="window"' in shape
    assert "<title>odd" not in odd_page
    assert "Generations and windows" not in archive_page(ROW, History(), NOW, "/r")


def replace_spans(history: History, span: Span) -> History:
    return History(history.runs, history.days, history.read, {span.name: span})


def test_archive_page_throughput() -> None:
    """Drains that drained something show how fast they were."""
    drains = [DrainResult("2026-11-22T10:00:00+00:00", 12_000, 8.0), DrainResult("x", 0, 0.1)]

    page = page_of(run(0), drains=drains)

    assert "12,000 offsets in 8.0 s" in page
    assert page.split("12,000 offsets in 8.0 s")[0].count("Throughput") == 1
    assert "Throughput" not in page_of(run(0), drains=drains[1:])


def test_archive_page_report() -> None:
    """The newest report is in the page, where there is one."""
    page = page_of(run(0), row=replace(ROW, report="/p/report"))
    assert '<iframe src="/p/report?embedded=true"' in page
    assert 'loading="lazy"' not in page
    assert "<iframe" not in page_of(run(0))
