"""A driver in the cluster: its jobs, its lease, its progress and its results."""

from __future__ import annotations

import io
import sys
import threading
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.errors import LockedError
from kafka_drain.output import say
from kafka_drain.spark.job_spec import ValidateSpec
from kafka_drain.spark.run_folder import RunDocument, RunFolder
from kafka_drain.storage.lease import Lease, find_lease
from kafka_drain.storage.paths import locate
from kafka_drain_spark import driver as driving
from kafka_drain_spark.driver import Printed, drive, keep_lease
from tests.forks import run_forked


def run_of(archive: Path, lease: str) -> RunDocument:
    return RunDocument(kind="drain", key="k", submitted_at="", lease=lease, archive=str(archive))


def lease_of(archive: Path, token: str, *, ago: float = 0) -> Lease:
    """A lease that was taken some seconds ago."""
    then = datetime.now(timezone.utc) - timedelta(seconds=ago)
    lease = Lease(locate(archive), run="r", token=token, clock=lambda: then)
    lease.acquire()
    return lease


@pytest.mark.parametrize("ago", [0, 59, 300])
def test_keep_lease_renewed(tmp_path: Path, ago: float) -> None:
    """A driver renews its caller's lease, also one that ran out, and leaves it to run out."""
    lease_of(tmp_path, "mine", ago=ago)

    with keep_lease(run_of(tmp_path, "mine"), lambda: None) as lease:
        found = find_lease(locate(tmp_path))

        assert found is not None
        assert found.expires_at is not None
        assert (found.token, found.run) == ("mine", "r")
        assert found.expires_at > datetime.now(timezone.utc) + timedelta(seconds=50)
        lease.renew()
        assert not lease.lost.is_set()

    assert find_lease(locate(tmp_path)) is not None


def test_keep_lease_of_another(tmp_path: Path) -> None:
    """A driver that starts when another run has taken the archive, doesn't begin."""
    lease_of(tmp_path, "theirs")

    with (
        pytest.raises(LockedError, match="is being drained by"),
        keep_lease(run_of(tmp_path, "mine"), lambda: None),
    ):
        pass


def test_keep_lease_released(tmp_path: Path) -> None:
    """A driver that starts when its caller has given up, doesn't begin."""
    with (
        pytest.raises(LockedError, match="nobody waits for it"),
        keep_lease(run_of(tmp_path, "mine"), lambda: None),
    ):
        pass


def test_renew_beside_another_holder(tmp_path: Path) -> None:
    """Caller and driver renew the same lease; when both are gone, it belongs to the next one."""
    caller = lease_of(tmp_path, "both")
    with keep_lease(run_of(tmp_path, "both"), lambda: None) as driver:
        for _ in range(3):
            caller.renew()
            driver.renew()
        assert not driver.lost.is_set()

    assert not caller.lost.is_set()


@pytest.mark.parametrize("lease", ["", "mine"])
def test_drive_refused(tmp_path: Path, lease: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What keeps a driver from beginning is its jobs' result, with its type."""
    folder = RunFolder.new(locate(tmp_path), "one")
    if lease:
        folder.write(run_of(tmp_path, lease), {})

    assert drive("drain", [str(folder.path)], lambda *_: {}) == 1

    result = folder.result()
    assert result is not None
    assert result["error_type"] == ("LockedError" if lease else "ArchiveError")
    assert "ERROR " in capsys.readouterr().out
    assert folder.progress().lines == [f"ERROR {result['error']}"]


def test_drive_prints_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens in a driver, such as the loss of its lease, goes to where its lines are read."""
    folder = RunFolder.new(locate(tmp_path), "one")
    monkeypatch.setattr(driving, "_document", lambda run: say("THE LEASE IS LOST"))

    with pytest.raises(AttributeError):
        drive("drain", [str(folder.path)], lambda *_: {})

    assert "THE LEASE IS LOST" in folder.progress().lines


def test_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job's result and answers are left in its own folder, while its lease is kept."""
    folders = [RunFolder.new(locate(tmp_path / "runs"), name) for name in ("one", "two")]
    for number, folder in enumerate(folders):
        archive, answers = tmp_path / f"archive{number}", tmp_path / f"answers{number}"
        archive.mkdir()
        lease_of(archive, f"token{number}")
        if number:
            answers.write_text("what was read\n")
        spec = ValidateSpec(
            archive=str(archive),
            data_name="d",
            file_format="parquet",
            files=[],
            answers_path=str(answers),
            result_path="",
            log_levels={},
        )
        folder.write(run_of(archive, f"token{number}"), asdict(spec))
    renewing: list[int] = []

    def threads() -> int:
        return [thread.name for thread in threading.enumerate()].count("lease")

    def run_jobs(specs: Any, work: Any, write: Any) -> int:
        renewing.append(threads())
        for spec in reversed(specs):
            write(spec, work(None, spec))
        return 7

    monkeypatch.setattr(driving, "run_jobs", run_jobs)

    code = drive(
        "validate", [str(folder.path) for folder in folders], lambda _, spec: {"of": spec.archive}
    )

    assert code == 7
    assert (renewing, threads()) == ([2], 0)
    assert [folder.result() for folder in folders] == [
        {"of": str(tmp_path / f"archive{number}")} for number in range(2)
    ]
    assert folders[1].answers() == "what was read\n"
    assert not (folders[0].path / "answers.jsonl").exists()


def test_keep_lease_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that has lost its lease is told: it may commit nothing more."""
    lease_of(tmp_path, "mine")
    told = threading.Event()

    def keep(lease: Lease, ended: threading.Event) -> None:
        lease.lost.set()

    monkeypatch.setattr(Lease, "keep", keep)

    with keep_lease(run_of(tmp_path, "mine"), told.set):
        assert told.wait(10)


def end_in_thread() -> None:
    """End as a driver that has lost its lease does; return if nothing ends the process."""
    thread = threading.Thread(target=driving._end)
    thread.start()
    thread.join(60)


def test_end_in_thread() -> None:
    """A driver that has lost its lease ends at once, from whichever thread, and as a failure."""
    assert run_forked(end_in_thread) != 0


def test_keep_lease_kept(tmp_path: Path) -> None:
    """A driver that has kept its lease isn't told that it has lost it."""
    lease_of(tmp_path, "mine")
    told = threading.Event()

    with keep_lease(run_of(tmp_path, "mine"), told.set):
        pass

    assert not told.is_set()


def test_printed_lines(tmp_path: Path) -> None:
    """Whole lines go to the folder, the last ones, and all of them to where they went before."""
    folder, output = RunFolder.new(locate(tmp_path), "one"), io.StringIO()
    printed = Printed([folder], output)

    printed.write("one\ntw")
    printed.show()
    assert (folder.progress().printed, folder.progress().lines) == (1, ["one"])
    printed.write("o\n" + "more\n" * 200)
    printed.show()

    assert output.getvalue() == "one\ntwo\n" + "more\n" * 200
    assert folder.progress().printed == 202
    assert folder.progress().lines == ["more"] * 100


def test_printed_shown(tmp_path: Path) -> None:
    """What is printed in the place of standard output is shown at the latest at the end."""
    folder, before = RunFolder.new(locate(tmp_path), "one"), sys.stdout

    with Printed([folder], io.StringIO()).shown():
        sys.stdout.write("hello\n")

    assert sys.stdout is before
    assert folder.progress().lines == ["hello"]


def test_printed_folder_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress that can't be written ends no job."""
    folder = RunFolder.new(locate(tmp_path), "one")
    (tmp_path / "runs").write_text("a file")
    printed = Printed([folder], io.StringIO())

    printed.write("one\n")
    printed.show()

    assert "WARNING" in capsys.readouterr().err


def test_printed_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store's own exception doesn't fail a driver that has done its work; shown again later."""
    run = RunFolder(locate(tmp_path / "run"))
    printed = Printed([run], io.StringIO())

    def fail(*_: object) -> None:
        raise RuntimeError("EndpointConnectionError")

    with monkeypatch.context() as failing:
        failing.setattr(RunFolder, "write_progress", fail)
        with printed.shown():
            sys.stdout.write("one\n")
    assert "WARNING EndpointConnectionError" in capsys.readouterr().err

    printed.show()
    assert run.progress().lines == ["one"]
