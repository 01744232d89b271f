"""An archive's page: no colour is greener than what the last validation has proven."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.history import Cell, History, SealedRun, Span, UnknownFile, read_history
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages import archive as module
from kafka_drain.pages.archive import ROWS, archive_page
from kafka_drain.pages.drawings import Drawing
from kafka_drain.pages.overview import REFRESH, ArchiveRow, Doing, Run
from kafka_drain.pages.placing import NOTHING, Placed
from kafka_drain.pages.tasks import BUSY
from tests.kafka_drain.golden import P0, P1
from tests.kafka_drain.pages.looks import look_of
from tests.kafka_drain.pages.test_remedies import OVERVIEW

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
COMPLETE = OVERVIEW | {"verdict": "complete"}
DAMAGED_NOW = OVERVIEW | {"verdict": "findings", "findings": {"file_missing": 1}}
ROW = ArchiveRow("flights", "/a", "/dag", overview=COMPLETE, looked=look_of(COMPLETE))
FOUND = replace(ROW, overview=DAMAGED_NOW, looked=look_of(DAMAGED_NOW))


@pytest.fixture(autouse=True)
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are the values that their template gets."""
    monkeypatch.setattr(module, "render", lambda _, **values: values)


@pytest.fixture
def history(archive: Archive) -> History:
    """Three runs of a generation, sealed on one day, and a window."""
    found = History()
    read_history(archive, found)
    found.spans["w"] = replace(next(iter(found.spans.values())), generation=None, name="w")
    return found


def page(row: ArchiveRow, history: History, placed: Placed = NOTHING, **more: Any) -> Any:
    """Return what a page shows."""
    return archive_page(row, history, NOW, "/receipts", placed=placed, **more)


def colours(drawing: Drawing) -> list[str]:
    return [box.colour for box in drawing.boxes]


#: What a chart says of a run.
SOUND, DAMAGED = "sealed, odd generations", "damaged, see the report"


def charted(shown: Mapping[str, Any]) -> list[str]:
    """Return what the chart of offsets says of each run, oldest first."""
    [figure] = [one for one in shown["figures"] if one.heading == "Offsets of each run"]
    content = json.loads(figure.chart.json)
    return [content["kinds"][kind][1] for kind in content["kind"]]


def seen(shown: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the colours of a page, by heading; of maps, of P0's runs and then P1's."""
    figures: Sequence[Any] = [*shown["maps"], *shown["figures"]]
    return {figure.heading: colours(figure.drawing) for figure in figures}


def test_archive_page_proven(history: History) -> None:
    """What is proven is green; a window has a colour of its own."""
    shown = page(ROW, history)

    assert seen(shown) == {
        "Sealed by each run": ["covered"] * 6,
        "Generations and windows": ["covered", "window"],
        "Offsets of each run": ["covered"] * 3,
        "Bytes of each run": ["covered"] * 3,
    }
    assert shown["legend"] == [("covered", "sealed")]
    assert "findings" not in shown["verdict_class"]


@pytest.mark.parametrize(
    ("row", "placed"),
    [
        (replace(ROW, overview=None, looked=look_of(None)), NOTHING),
        (replace(ROW, problem="a receipt: bad"), NOTHING),
        (replace(ROW, problem="overview.json: bad", is_damaged=True), NOTHING),
        # Such as with a report that is gone: any offset may be the damaged one.
        (FOUND, Placed(is_complete=False)),
    ],
)
def test_archive_page_unproven(row: ArchiveRow, placed: Placed, history: History) -> None:
    """Without a validation that can be read, or with findings that may be anywhere, none is."""
    shown = page(row, history, placed)

    assert {colour for each in seen(shown).values() for colour in each} == {"unproven"}
    assert [colour for colour, _ in shown["legend"]] == ["unproven"]
    assert shown["verdict_class"] != page(ROW, history)["verdict_class"]


def test_archive_page_damaged(history: History) -> None:
    """Damage is shown where it is: in one partition of one run, and in its generation."""
    damaged = history.runs[1]
    placed = Placed(frozenset({(1, damaged.receipt, P1)}))

    shown = page(FOUND, history, placed)

    assert seen(shown) == {
        "Sealed by each run": ["covered"] * 4 + ["damaged", "covered"],
        "Generations and windows": ["damaged", "window"],
        "Offsets of each run": ["covered", "damaged", "covered"],
        "Bytes of each run": ["covered", "damaged", "covered"],
    }
    assert [colour for colour, _ in shown["legend"]] == ["covered", "damaged"]
    assert charted(shown) == [SOUND, DAMAGED, SOUND]


def test_archive_page_older_runs(history: History) -> None:
    """Of runs that only a chart has, the generation's proof counts; newer ones have their own."""
    del history.runs[0]
    older, newer = (
        page(FOUND, history, Placed(frozenset({(1, run.receipt, P1)}))) for run in history.runs
    )

    assert charted(older) == [DAMAGED, DAMAGED, SOUND]
    assert charted(newer) == [DAMAGED, SOUND, DAMAGED]


def test_archive_page_map_labels(history: History) -> None:
    """A row is named by its partition and a column by its time, as far as there is room."""
    [shown] = page(ROW, history)["maps"]

    named = [label.text for label in shown.drawing.labels]
    times = [run.sealed_at[5:16].replace("T", " ") for run in history.runs]
    assert named[:2] == [str(P0), str(P1)]
    assert named[2:] == times[::2]
    rows, columns = ({getattr(b, of) for b in shown.drawing.boxes} for of in "yx")
    assert (len(rows), len(columns)) == (2, 3)
    # Nothing was sealed of P1 in the first run.
    history.runs[0] = replace(history.runs[0], cells={P0: history.runs[0].cells[P0]})
    [without] = page(ROW, history)["maps"]
    assert len(without.drawing.boxes) == len(shown.drawing.boxes) - 1


def test_archive_page_damaged_day(history: History) -> None:
    """A day is damaged in the partitions of the runs that were sealed on it."""
    day, cells = next(iter(history.days.items()))
    history.days["2012-01-01"] = dict(cells)
    placed = Placed(frozenset({(1, history.runs[-1].receipt, P0)}))

    [_, by_day] = page(FOUND, history, placed)["maps"]

    assert day > "2012-01-01"
    assert colours(by_day.drawing) == ["covered", "damaged", "covered", "covered"]


def test_archive_page_contents_unknown(history: History) -> None:
    """Of which records only the offsets are proven is told apart, until a repair has read them."""
    run = history.runs[0]
    unknown = UnknownFile(1, run.receipt, run.sealed_at[:10], frozenset({P0}))
    history.unknown["f"] = unknown

    assert seen(page(ROW, history))["Sealed by each run"] == ["content_unknown"] + ["covered"] * 5
    assert seen(page(ROW, history))["Generations and windows"][0] == "content_unknown"
    history.drained_again["repair_1"] = frozenset({"f"})
    assert seen(page(ROW, history))["Sealed by each run"] == ["covered"] * 6


def test_archive_page_lost_offsets(history: History) -> None:
    """Offsets that are lost are no green cell, whatever was proven of the others."""
    run = history.runs[0]
    cell = Cell(run.cells[P1].offsets, run.cells[P1].records, {"lost": 1, "control": 5})
    history.runs[0] = replace(run, cells={**run.cells, P1: cell})

    shown = page(ROW, history)

    assert seen(shown)["Sealed by each run"] == ["covered"] * 3 + ["lost"] + ["covered"] * 2


def test_archive_page_many_partitions() -> None:
    """Of many partitions, those with something wrong are shown, wherever they are."""
    tps = [TopicPartition("t", number) for number in range(ROWS + 5)]
    cells = dict.fromkeys(tps, Cell(5, 5, {}))
    run = SealedRun("r.json", 1, 0, "2026-01-01T00:00:00+00:00", 5, 5, 1, 9, cells)
    placed = Placed(frozenset({(1, "r.json", tps[-1])}))

    [shown] = page(FOUND, History(runs=[run]), placed)["maps"]

    assert len(shown.drawing.boxes) == ROWS
    assert colours(shown.drawing)[-1] == "damaged"
    assert "100 of 105, including those with gaps" in shown.caption


def test_archive_page_consecutive_generations(history: History) -> None:
    """Generations are told apart by two colours, only as far as they are proven."""
    history.runs[2] = replace(history.runs[2], generation=2)

    assert seen(page(ROW, history))["Offsets of each run"] == ["covered", "covered", "alt"]
    unproven = page(replace(ROW, overview=None), history)
    assert seen(unproven)["Offsets of each run"] == ["unproven"] * 3


def test_archive_page_refresh(history: History) -> None:
    """While a task runs, the page is read again more often; running tasks come first."""
    done, running = (
        Doing("d", name, state, "/r", {}) for name, state in (("a", "success"), ("b", "running"))
    )

    assert page(ROW, history, doing=[done])["refresh"] == REFRESH
    busy = page(ROW, history, doing=[done, running])
    assert busy["refresh"] == BUSY < REFRESH
    assert len(busy["tasks"]) == 2


def test_archive_page_newest_receipts_first(history: History, tmp_path: Path) -> None:
    """Receipts are listed newest first, and spans without times aren't drawn."""
    history.spans["none"] = Span(1, "none", 1, 1, 1, 1, None, None, "")

    shown = page(ROW, history)

    assert [run.receipt for run in shown["receipts"]] == sorted(
        (run.receipt for run in history.runs), reverse=True
    )
    assert len(seen(shown)["Generations and windows"]) == 2


SEAL = datetime(2026, 11, 22, 9, 5, tzinfo=timezone.utc)


def hourly(*gaps: str) -> History:
    """Runs that were sealed at 09:05 and each hour after, the newest ones with these gaps."""
    history = History()
    for number in range(3):
        lost = {gaps[number - 3 + len(gaps)]: 1} if number >= 3 - len(gaps) else {}
        run = SealedRun(
            *(f"{number}.json", 1, number, (SEAL + number * HOUR).isoformat(), 9, 9, 1, 9),
            {P0: Cell(9, 9), P1: Cell(9, 9, lost)},
        )
        history.add_run(run)
    return history


def strip(row: ArchiveRow, history: History, placed: Placed = NOTHING) -> list[str]:
    """Return the hours from 09:00 to 12:00 as the page shows them."""
    return [hour.state.value for hour in page(row, history, placed)["strip"].hours]


def test_archive_page_hours() -> None:
    """An hour is green only if the last validation has proven what was sealed of it."""
    until = {"drained_until": "2026-11-22T11:58:00+00:00"}
    green = replace(ROW, overview=COMPLETE | until)
    red = replace(FOUND, overview=DAMAGED_NOW | until)

    # The hour from 11:00 on has two minutes that Kafka has, and nobody has drained.
    assert strip(green, hourly()) == ["covered", "covered", "late"]
    assert strip(green, hourly("lost")) == ["covered", "lost", "lost"]
    assert strip(green, hourly("control")) == ["covered", "covered", "late"]
    assert strip(red, hourly(), Placed(is_complete=False)) == ["unproven", "unproven", "late"]
    placed = Placed(frozenset({(1, "1.json", P1)}))
    assert strip(red, hourly(), placed) == ["lost", "lost", "late"]
    # Readers are refused by what is seen now.
    gone = replace(green, looked=look_of(COMPLETE, refused="a file is gone"))
    assert strip(gone, hourly()) == ["unproven", "unproven", "late"]
    assert strip(replace(green, overview=None), hourly()) == ["unproven", "late", "late"]
    assert page(green, History())["strip"] is None


def test_archive_page_first_screen() -> None:
    """The page begins with the sentence that `kafka-drain status` says, and what to do."""
    shown = page(ROW, hourly())
    assert shown["judged"] == look_of(COMPLETE).judge(NOW)
    assert (shown["verdict"], shown["verdict_class"], shown["what_to_do"]) == (
        "ready",
        "verdict",
        "",
    )

    later = archive_page(ROW, hourly(), NOW + 24 * HOUR, "/receipts")
    assert (later["verdict"], later["verdict_class"]) == ("unknown", "verdict late")  # type: ignore[index]

    # A run has failed since: what is there is ready all the same, and the page isn't green.
    failed = Run("failed", "", "/r", began=NOW.isoformat(), ended=NOW.isoformat())
    shown = page(replace(ROW, runs=[failed]), hourly())
    assert (shown["verdict"], shown["verdict_class"]) == ("ready", "verdict late")
    assert "clear the failed task" in shown["what_to_do"]
