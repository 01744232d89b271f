"""Archives in folders with odd names: proven, listed, searched and read, through links too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.proof.report import write_report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.storage.lease import hold_lease
from kafka_drain.storage.paths import list_folder, size_of
from tests.kafka_drain.golden import sealed_copy
from tests.odd_paths import WORKS


def refuse_unreadable(path: str, records: int) -> None:
    """Prove, list, search and read an archive, and write to it."""
    archive = Archive.at(path)
    report = validate_archive(archive, None, deep=True)
    assert (report.complete, report.records) == (True, records)
    files = archive_files(archive.snapshot())
    assert sum(size_of(archive.root, file.path) or 0 for file in files) == report.bytes
    assert len(list(Search(archive, Criteria.of(), limit=10_000).matches())) == records
    assert archive_dataset(path).count_rows() == records
    assert archive_dataset(archive).count_rows() == records
    with hold_lease(archive.root, run="t"):
        assert "lock.json" in list_folder(archive.root)
    assert Path(write_report(archive, report)).is_file()
    # Airflow's run ids have up to 250 characters; those of two runs may differ at the end only.
    runs = [f"{'r' * 249}{number}" for number in range(2)]
    assert len({write_report(archive, report, run) for run in runs}) == 2


@pytest.mark.parametrize("what", WORKS)
def test_archive_odd_path(tmp_path: Path, what: str) -> None:
    """Whatever the folder above is called."""
    folder = tmp_path / WORKS[what]
    folder.mkdir()
    made = sealed_copy(folder / "archive")
    records = validate_archive(made, None).records
    # What a pattern, a list of paths, or a URL would find instead.
    (tmp_path / "co:lon beside").mkdir()

    refuse_unreadable(str(folder / "archive"), records)


def test_archive_written_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By links, relative paths, two slashes and `..`, it is the same archive."""
    records = validate_archive(sealed_copy(tmp_path / "real" / "archive"), None).records
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "inner").mkdir()
    (tmp_path / "far").symlink_to(tmp_path / "real" / "inner")
    monkeypatch.chdir(tmp_path / "link")
    for path in (
        f"{tmp_path}/link/archive",
        f"/{tmp_path}//real//archive/",
        f"{tmp_path}/real/./archive",
        # Where the link leads to, not where it lies.
        f"{tmp_path}/far/../archive",
        "archive",
        "./archive/",
        "../real/archive",
        f"file://{tmp_path}/real/archive",
    ):
        refuse_unreadable(path, records)
        assert not str(Archive.at(path).root).startswith("//")
        assert ".." not in str(Archive.at(path).root)
