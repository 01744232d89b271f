"""What maintenance does, in which order; what it says of archives that it can't read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive import files as listing
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, LockedError, TerminalError
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance import maintain as maintaining
from kafka_drain.maintenance.approved import plan_text
from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import plan_reprocess
from tests.kafka_drain.golden import RECEIPTS, golden_cluster, golden_pipeline, sealed_copy
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive, dense
from tests.kafka_drain.maintenance.test_erase import TP, Killed, application, lying, rewrite


def reprocess(pipeline: Pipeline) -> object:
    cluster: Any = golden_cluster()
    return plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        # The newest is asked whether a roll is due, all of them what a reprocess replaces.
        (plan_maintenance, "000000000013.json"),
        (reprocess, "000000000011.json"),
    ],
)
def test_plan_receipt_damaged(
    tmp_path: Path, plan: Callable[[Pipeline], object], name: str
) -> None:
    """A damaged receipt is named, and no retry can help."""
    archive = sealed_copy(tmp_path / "archive")
    pipeline = golden_pipeline(archive)
    receipt = Path(str(archive.root), RECEIPTS, name)
    receipt.write_bytes(receipt.read_bytes().replace(b'"records":', b'"Records":', 1))

    with pytest.raises(TerminalError, match=f"generations/0001/receipts/{name}:? is damaged"):
        plan(pipeline)


# what is done, and in which order


DAY = 86_400_000
NOW_MS = round((NOW - EPOCH).total_seconds() * 1000)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """A closed generation: two batches that are 40 days old, three that are new; Java isn't needed.

    The open one has a batch, and none that isn't sealed.
    """
    monkeypatch.setattr(compacting, "prepare_application", application)
    monkeypatch.setattr(listing, "_new_files", lambda *_: [])
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1"})
    for number in range(5):
        age = 40 * DAY if number < 2 else DAY
        made.seal({TP: dense(10 * number, 10 * number + 10, NOW_MS - age)})
    made.open_generation()
    made.seal({TP: dense(50, 60, NOW_MS - 40 * DAY)})
    return made


def maintained(made: MadeArchive, runner: Any = rewrite, **keys: Any) -> dict[str, Any]:
    """Run maintenance of files that are too old after 30 days."""
    given = {"retention_days": 30, "max_generation_days": 10_000, **keys}
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root), **given)
    cluster: Any = None
    return run_maintenance(pipeline, cluster, runner, run="t", wait_seconds=0, clock=lambda: NOW)


def maintain(pipeline: Pipeline) -> dict[str, Any]:
    """Run maintenance of a pipeline."""
    cluster: Any = None
    return run_maintenance(pipeline, cluster, rewrite, run="t", wait_seconds=0, clock=lambda: NOW)


def offsets(*ranges: tuple[int, int]) -> Counter[int]:
    return Counter(offset for start, end in ranges for offset in range(start, end))


def test_run_maintenance(made: MadeArchive) -> None:
    """What is too old is deleted, what is left is put together; the open generation stays."""
    done = maintained(made)

    assert [key.partition("_")[0] for key in done["windows"]] == ["retention", "compact"]
    assert lying(made.root) == offsets((20, 60))
    assert (done["files_before"], done["files_after"], done["files_removed"]) == (6, 2, 5)
    assert done["rolled"] is False
    again = maintained(made)
    assert (again["windows"], again["files_removed"]) == ([], 0)


def test_run_maintenance_without_retention(made: MadeArchive) -> None:
    """Nothing is ever deleted of a pipeline that doesn't say after how long."""
    assert len(maintained(made, retention_days=None)["windows"]) == 1

    assert lying(made.root) == offsets((0, 60))


@pytest.mark.parametrize("act", [plan_maintenance, maintain])
def test_maintenance_of_another_pipeline(
    made: MadeArchive, act: Callable[[Pipeline], object]
) -> None:
    """A pipeline that names another one's archive by mistake deletes nothing of it.

    Its drains are refused; maintenance runs each night, whether they succeed or not.
    """
    other = Pipeline(name="other", topics=["clicks"], archive=str(made.root), retention_days=1)

    with pytest.raises(ArchiveError, match="is the archive of pipeline 'made', not of 'other'"):
        act(other)

    assert lying(made.root) == offsets((0, 60))


def test_run_maintenance_reprocess(
    made: MadeArchive, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """While a reprocess is unfinished, its old and new files must stay: nothing is done, and why.

    Otherwise a nightly run that does nothing looks like one that has nothing to do.
    """
    removed: list[Archive] = []
    monkeypatch.setattr(maintaining, "remove_unsealed", removed.append)
    monkeypatch.setattr(maintaining, "unfinished_reprocess", lambda _: object())

    done = maintained(made)

    assert (done["windows"], done["files_removed"], removed) == ([], 0, [])
    assert lying(made.root) == offsets((0, 60))
    why = f"maintain {made.root}: erases, compacts and deletes nothing: a reprocess was started"
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    for lines in (said, plan_maintenance(pipeline, clock=lambda: NOW).lines()):
        assert [line.startswith(why) for line in lines].count(True) == 1


@pytest.mark.parametrize("is_rolled", [True, False])
def test_run_maintenance_roll(
    is_rolled: bool, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation that was due and couldn't be closed belongs to drains, and stays as it is."""

    def roll(*_: Any, **how: Any) -> object:
        if is_rolled:
            made.open_generation()
        return object() if is_rolled else None

    monkeypatch.setattr(maintaining, "due_for_roll", lambda *_: "it is due")
    monkeypatch.setattr(maintaining, "roll_between_drains", roll)

    assert maintained(made)["rolled"] is is_rolled

    assert lying(made.root) == offsets((20, 50 if is_rolled else 60))


def test_run_maintenance_erases_first(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be erased isn't put together with the rest before."""
    seen: list[int] = []

    def sweep(archive: Archive, *_: Any, **__: Any) -> list[str]:
        seen.append(len(archive.snapshot().windows))
        return ["erase_0001"]

    monkeypatch.setattr(maintaining, "sweep", sweep)

    assert maintained(made)["windows"][0] == "erase_0001"

    assert seen == [0]


@pytest.mark.parametrize(
    ("numbers", "names"), [([], ""), ([1], "erasure 1"), ([1, 3], "erasures 1, 3")]
)
def test_plan_maintenance_erasures(
    numbers: list[int], names: str, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan and its approval say which erasures maintenance carries out."""
    found = [SimpleNamespace(number=number, lifted=None) for number in numbers]
    lifted = SimpleNamespace(number=2, lifted=object())
    monkeypatch.setattr(maintaining, "read_erasures", lambda _: [*found, lifted])
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))

    plan = plan_maintenance(pipeline)

    assert plan.to_dict()["erasures"] == numbers
    said = f"carries out {names} on what was sealed since"
    assert [line for line in plan.lines() if "carries out" in line] == (
        [f"maintain {made.root}: {said}"] if numbers else []
    )
    assert f"| carries out on what was sealed since | {names or 'none'} |" in plan_text(plan)


def test_run_maintenance_killed(made: MadeArchive) -> None:
    """What a killed run has written and not sealed is discarded, and nothing is there twice."""

    def dies(application: SparkApplication) -> None:
        rewrite(application)
        raise Killed

    with pytest.raises(Killed):
        maintained(made, dies)
    assert lying(made.root) == offsets((20, 60), (20, 50))

    maintained(made)

    assert lying(made.root) == offsets((20, 60))


def test_run_maintenance_while_another_runs(made: MadeArchive) -> None:
    """Maintenance runs once at a time; nothing is done beside another."""
    with (
        hold_lease(made.root / "maintenance", run="other"),
        pytest.raises(LockedError, match="run other"),
    ):
        maintained(made)

    assert lying(made.root) == offsets((0, 60))
