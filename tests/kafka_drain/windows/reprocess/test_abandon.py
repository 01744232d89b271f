"""A reprocess that can't end, and what is left when it is abandoned: on the golden archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.window import Window
from kafka_drain.cli.main import main
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError, DataLossError
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.maintenance.retention import plan_deletions, seal_deletions
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.immutability import Locked
from kafka_drain.windows.reprocess import abandon as abandoning
from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import finish_reprocess, open_reprocess, plan_reprocess
from kafka_drain.windows.reprocess.state import (
    ReprocessPlan,
    forget_reprocess,
    newest_generation,
    reprocess_path,
    unfinished_reprocess,
)
from kafka_drain.windows.window_jobs import freeze_window
from tests.brute_force import data_files
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.golden import P0, P1, golden_cluster, open_next

CUT = Cut(batch=(1, 12))
END_IT = r"`kafka-drain reprocess .*archive --abandon --apply`"


@pytest.fixture
def begun(pipeline: Pipeline) -> ReprocessPlan:
    """A reprocess of its last batches that was killed while its first window was drained."""
    cluster: Any = golden_cluster()
    plan = plan_reprocess(pipeline, cluster, CUT, offsets_per_group=1)
    open_reprocess(plan, cluster, run="tests")
    key, group = next(iter(plan.groups.items()))
    window = Window(plan.archive.root, key)
    freeze_window(
        window,
        group.ranges,
        kind=WindowKind.REPROCESS,
        replaces=group.replaces,
        file_format="parquet",
        partition_by=["topic"],
        replaced=group.replaced(),
    )
    (window.folder / "data").mkdir()
    (window.folder / "data" / "part-0.parquet").write_bytes(b"half a file")
    return plan


def test_abandon_reprocess(archive: Archive, pipeline: Pipeline, begun: ReprocessPlan) -> None:
    """What isn't sealed goes, archived files stay, maintenance goes on, another may begin."""
    cluster: Any = golden_cluster()
    files = archive.generation(1).list_data_files()
    assert plan_maintenance(pipeline).waits_for

    plan = plan_abandon(archive)
    assert plan.to_dict() | {"archive": ""} == {
        "archive": "",
        "since": str(CUT),
        "sealed": 0,
        "unsealed": len(begun.groups),
    }
    abandon_reprocess(plan, run="tests")

    assert unfinished_reprocess(archive) is None
    assert list(archive.snapshot().folders) == []
    assert archive.generation(1).list_data_files() == files
    assert validate_archive(archive, cluster, deep=True).findings == []
    assert plan_maintenance(pipeline).waits_for == ""
    assert plan_reprocess(pipeline, cluster, CUT).begun is False


def test_finish_reprocess_waiting(archive: Archive, begun: ReprocessPlan) -> None:
    """Nothing is removed, and the reprocess stays begun, until each window is sealed."""
    files = archive.generation(1).list_data_files()

    with pytest.raises(ArchiveError, match=r"reprocess_.* isn't sealed; run the reprocess again"):
        finish_reprocess(begun, run="tests")

    assert archive.generation(1).list_data_files() == files
    assert unfinished_reprocess(archive) is not None


def test_newest_generation_begun(archive: Archive, begun: ReprocessPlan) -> None:
    """Asked again, a batch alone is of the generation that the reprocess has closed."""
    assert begun.closes == 1
    open_next(archive, "parquet", ["topic"])
    assert newest_generation(archive) == 1

    abandon_reprocess(plan_abandon(archive), run="tests")

    newest = archive.snapshot().open_generation
    assert newest is not None
    assert newest_generation(archive) == newest.number > 1


def test_newest_generation_none(tmp_path: Path) -> None:
    """Of an archive that nothing was drained to, it is the first that there will be."""
    archive = Archive.at(str(tmp_path))
    archive.create(pipeline="p", cluster_id="c", topic_ids={}, source={})

    assert newest_generation(archive) == 1


def test_abandon_reprocess_another_begun(
    archive: Archive, begun: ReprocessPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended until another reprocess has sealed windows of the same names, it leaves these."""
    plan = plan_abandon(archive)
    key = next(iter(begun.groups))
    window = Window(archive.root, key)
    other = begun.document().model_copy(update={"since": "another"})

    def suspended(folder: UPath) -> Locked:
        other.write(reprocess_path(archive))
        (window.folder / "receipt.json").write_text("{}")
        return Locked()

    monkeypatch.setattr(abandoning, "locked_in", suspended)

    abandon_reprocess(plan, run="tests")

    assert (window.folder / "data" / "part-0.parquet").is_file()
    assert unfinished_reprocess(archive) is not None


@pytest.mark.parametrize(
    ("since", "change", "is_its_own"),
    [
        (str(CUT), {}, True),
        ("another", {}, False),
        # Of the same start: its last window is another one, or replaces other files.
        (str(CUT), {"window": "reprocess_later"}, False),
        (str(CUT), {"replaces": ["generations/0001/data/other.parquet"]}, False),
    ],
    ids=str,
)
def test_forget_reprocess_of_another(
    archive: Archive,
    begun: ReprocessPlan,
    since: str,
    change: dict[str, Any],
    is_its_own: bool,
) -> None:
    """Only its own note is removed, not that of another one begun since, even of the same start."""
    document = begun.document()
    pieces = [*document.pieces[:-1], document.pieces[-1].model_copy(update=change)]
    document.model_copy(update={"since": since, "pieces": pieces}).write(reprocess_path(archive))

    forget_reprocess(begun)

    assert (unfinished_reprocess(archive) is None) is is_its_own


def test_abandon_reprocess_killed(
    archive: Archive, begun: ReprocessPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before it has removed an unsealed window, it is run again and removes it."""

    def killed(_: UPath) -> Locked:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(abandoning, "locked_in", killed)
        with pytest.raises(KeyboardInterrupt):
            abandon_reprocess(plan_abandon(archive), run="killed")
    assert list(archive.snapshot().folders) == [next(iter(begun.groups))]

    abandon_reprocess(plan_abandon(archive), run="again")

    assert unfinished_reprocess(archive) is None
    assert list(archive.snapshot().folders) == []


def test_plan_abandon_nothing_begun(archive: Archive) -> None:
    """Where there is no unfinished reprocess, there is nothing to abandon."""
    with pytest.raises(ConfigError, match="there is no unfinished reprocess"):
        plan_abandon(archive)


def test_abandon_command(
    archive: Archive, begun: ReprocessPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command shows what ends, needs no Kafka, and does it when told."""
    root = str(archive.root)
    before = data_files(root)

    assert main(["reprocess", root, "--abandon"]) == 0
    assert "dry run: nothing was changed" in capsys.readouterr().err
    assert unfinished_reprocess(archive) is not None
    assert data_files(root) == before

    assert main(["reprocess", root, "--abandon", "--from-batch", "1"]) == 2
    assert main(["reprocess", root, "--abandon", "--apply"]) == 0
    assert unfinished_reprocess(archive) is None


def test_begun_reprocess_names_the_way_out(pipeline: Pipeline, begun: ReprocessPlan) -> None:
    """Where a begun reprocess stands in the way, or can't end, the message says how to end it."""
    cluster: Any = golden_cluster()
    with pytest.raises(ConfigError, match=END_IT):
        plan_reprocess(pipeline, cluster, Cut(batch=(1, 0)))
    assert "--abandon" in plan_maintenance(pipeline).waits_for

    cluster.logs = {P0: Log(first=41, end=1000), P1: Log(end=1000)}
    with pytest.raises(DataLossError, match=END_IT):
        plan_reprocess(pipeline, cluster, None)


def test_begun_reprocess_files_taken(
    archive: Archive, pipeline: Pipeline, begun: ReprocessPlan
) -> None:
    """A begun reprocess whose files another window has replaced is no error that passes."""
    # A maintenance that was planned before, and seals now.
    deletions = plan_deletions(archive.snapshot(), archive.snapshot().generations, 0, utc_now())
    seal_deletions(archive, deletions, run="tests")

    with pytest.raises(ArchiveError, match=rf"window retention_.*{END_IT}"):
        plan_reprocess(pipeline, golden_cluster(), None)  # type: ignore[arg-type]
