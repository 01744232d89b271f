"""A run folder: what a caller and a driver on another machine tell each other."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError
from kafka_drain.spark import run_folder
from kafka_drain.spark.run_folder import RunDocument, RunFolder, job_key, name_of
from kafka_drain.storage.paths import locate

RUN = RunDocument(kind="drain", key="k", submitted_at="now", lease="t", archive="/a")
SPEC: dict[str, Any] = {"pipeline": "p", "start": "{}", "result_path": "/tmp/1"}


def folder(tmp_path: Path, name: str = "one") -> RunFolder:
    return RunFolder.new(locate(tmp_path), name)


def test_run_folder_both_ways(tmp_path: Path) -> None:
    """Each side reads what the other has written; in the end nothing is left."""
    run = folder(tmp_path)
    assert (run.run(), run.result(), run.progress().printed) == (None, None, 0)

    run.write(RUN, SPEC)
    run.write_progress(7, ["six", "seven"])
    run.write_result({"records": 3}, "{}\n")

    assert (run.run(), run.spec()) == (RUN, SPEC)
    assert (run.progress().printed, run.progress().lines) == (7, ["six", "seven"])
    assert (run.result(), run.answers()) == ({"records": 3}, "{}\n")
    assert RunFolder.all_of(locate(tmp_path)) == [run]
    run.remove()
    run.remove()
    assert [*(tmp_path / "runs").iterdir()] == []


@pytest.mark.parametrize(
    ("spec", "attempt"), [({}, {}), ({"path": "/a/windows/w/data/2"}, {"attempt": "2"})]
)
def test_attempt_of_job(tmp_path: Path, spec: dict[str, Any], attempt: dict[str, str]) -> None:
    """A job with a folder for each attempt says which one it writes to."""
    run = folder(tmp_path)
    run.write(RUN, spec)

    assert run.attempt() == attempt


def test_run_folder_damaged(tmp_path: Path) -> None:
    """A document that can't be read is none, but without its spec a driver can't begin."""
    run = folder(tmp_path)
    run.write(RUN, SPEC)
    for name in ("run.json", "progress.json", "spec.json"):
        (tmp_path / "runs" / "one" / name).write_text("{")

    assert (run.run(), run.progress().printed) == (None, 0)
    with pytest.raises(ArchiveError, match=r"spec.json can't be read"):
        run.spec()


def test_remove_with_code(tmp_path: Path) -> None:
    """What spark-submit has put into folders of its own, on Kubernetes, goes too."""
    run = folder(tmp_path, name_of(datetime.now(timezone.utc), "x"))
    run.write(RUN, SPEC)
    code = Path(str(run.path)) / "spark-upload-1"
    code.mkdir()
    (code / "main.py").write_text("")

    run.remove()

    assert not Path(str(run.path)).exists()


def test_written_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds a run finds its spec, who finds a result its answers; a kill may come between."""
    written = list[str]()
    for name in ("write_document", "write_text"):
        write = getattr(run_folder, name)

        def noting(path: UPath, content: Any, write: Any = write) -> None:
            written.append(path.name)
            write(path, content)

        monkeypatch.setattr(run_folder, name, noting)
    run = folder(tmp_path)

    run.write(RUN, SPEC)
    run.write_result({}, "{}")

    assert written == ["spec.json", "run.json", "answers.jsonl", "result.json"]


def test_write_result_without_answers(tmp_path: Path) -> None:
    """A job without answers leaves none."""
    run = folder(tmp_path)
    run.write(RUN, SPEC)

    run.write_result({"records": 3})

    assert run.result() == {"records": 3}
    assert not Path(str(run.path / "answers.jsonl")).exists()


def test_remove_half_gone(tmp_path: Path) -> None:
    """What another process has removed of a run is no obstacle to removing the rest."""
    run = folder(tmp_path)
    run.write(RUN, SPEC)
    Path(str(run.path / "run.json")).unlink()

    run.remove()

    assert not Path(str(run.path)).exists()


def test_job_key_order() -> None:
    """The order of a spec's keys makes no other job."""
    spec = {"pipeline": "p", "archive": "/a"}

    assert job_key("drain", spec) == job_key("drain", dict(reversed(spec.items())))


def test_remove_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that can't be removed as a whole is no later run's."""
    run = folder(tmp_path)
    run.write(RUN, SPEC)
    monkeypatch.setattr(run_folder, "list_folder", {}.__getitem__)

    with pytest.raises(KeyError):
        run.remove()

    assert (run.run(), run.spec()) == (None, SPEC)


def test_all_of(tmp_path: Path) -> None:
    """The newest run comes first."""
    now = datetime.now(timezone.utc)
    names = [name_of(now - timedelta(seconds=ago), token) for ago, token in ((0, "a"), (5, "b"))]
    for name in reversed(names):
        folder(tmp_path, name).write(RUN, SPEC)

    assert [run.path.name for run in RunFolder.all_of(locate(tmp_path))] == names


def test_new_removes_old(tmp_path: Path) -> None:
    """A result that nobody has read for a week is removed by the next run."""
    now = datetime.now(timezone.utc)
    for days in (8, 6):
        folder(tmp_path, name_of(now - timedelta(days=days), "x")).write(RUN, SPEC)

    folder(tmp_path, name_of(now, "y"))

    names = [run.path.name for run in RunFolder.all_of(locate(tmp_path))]
    assert names == [name_of(now - timedelta(days=6), "x")]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"start": '{"t":{}}'}, True),
        ({"planned_end": "{}"}, True),
        ({"result_path": "/tmp/2"}, True),
        ({"secrets_path": "/tmp/3"}, True),
        ({"answers_path": "/tmp/4"}, True),
        ({"first_unlisted": 3}, True),
        ({"skipped": [1]}, True),
        ({"log_levels": {}}, True),
        ({"path": "/a/windows/w/data/2"}, True),
        ({"pipeline": "q"}, False),
        ({"writer_options": {"a": "b"}}, False),
    ],
)
def test_job_key_of_attempts(change: dict[str, Any], same: bool) -> None:
    """Two attempts of a job differ in where they resume and answer, not in what they do."""
    assert (job_key("drain", SPEC) == job_key("drain", SPEC | change)) is same
    assert job_key("drain", SPEC) != job_key("window", SPEC)
