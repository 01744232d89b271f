"""A manifest written anew from receipts, read by our own reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.findings import summary
from kafka_drain.windows import manifest_rebuild as rebuilding
from kafka_drain.windows.manifest_rebuild import newest_damaged, rebuild_manifest
from tests.kafka_drain.golden import (
    END,
    MANIFEST,
    RECEIPTS,
    add_batch,
    golden_copy,
    open_next,
    seal,
    sealed_copy,
    state_of,
)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A copy of the golden archive, sealed up to its last batch, 13."""
    return sealed_copy(tmp_path / "moved \u00e9 100% archive")


@pytest.fixture
def generation(archive: Archive) -> Generation:
    """The archive's one generation."""
    return archive.generation(1)


@pytest.fixture
def manifest(archive: Archive) -> Path:
    """The folder of the manifest."""
    return Path(str(archive.root / MANIFEST))


def sizes(generation: Generation) -> dict[str, int]:
    """Return path and size of each file that the manifest lists."""
    found, findings = generation.read_manifest()
    assert findings == []
    return {path: sink_file.size for path, sink_file in found.files.items()}


def entries(log: Path) -> list[dict[str, Any]]:
    header, *lines = log.read_text().split("\n")
    assert header == "v1"
    return [json.loads(line) for line in lines]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def beside(manifest: Path, what: str) -> list[Path]:
    """Return the folders that a rebuild has left beside the manifest."""
    return sorted(manifest.parent.glob(f"_spark_metadata.{what}-*"))


def test_rebuild_manifest_gone(generation: Generation, manifest: Path) -> None:
    """The same files with the same sizes are listed, and nothing contradicts the receipts."""
    before = sizes(generation)
    shutil.rmtree(manifest)

    assert rebuild_manifest(generation) == 28

    assert sizes(generation) == before
    state = state_of(generation)
    assert state.findings == []
    assert (len(state.sealed), len(state.new), state.last_committed) == (28, 0, 13)
    assert beside(manifest, "new") == beside(manifest, "damaged") == []


def test_rebuild_manifest_form(generation: Generation, manifest: Path) -> None:
    """Lines are as Spark writes them, with the folder where the archive lies now."""
    written = {entry["path"].rpartition("/")[2]: entry for entry in entries(manifest / "13")}

    rebuild_manifest(generation)

    assert names(manifest) == {"9.compact", "10", "11", "12", "13"}
    for entry in entries(manifest / "13"):
        name = entry["path"].rpartition("/")[2]
        place = {"path": None, "modificationTime": None}
        assert list(entry) == list(written[name])
        assert entry | place == written[name] | place
        assert "%25" in entry["path"]
        assert unquote(entry["path"]) == f"file://{generation.data}/topic=flights/{name}"
        assert entry["modificationTime"] > 1_700_000_000_000
    assert generation.read_manifest()[0].roots == {f"file://{generation.root}"}


def test_rebuild_manifest_damaged(generation: Generation, manifest: Path) -> None:
    """The damaged manifest is put aside, byte for byte; none of it is deleted."""
    before = sizes(generation)
    (manifest / "12").write_text("v1")
    damaged = {path.name: path.read_bytes() for path in manifest.iterdir()}

    rebuild_manifest(generation)

    assert sizes(generation) == before
    [aside] = beside(manifest, "damaged")
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == damaged
    assert state_of(generation).findings == []


def test_rebuild_manifest_suspended(
    generation: Generation, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended until another run has rebuilt it and drained on, it leaves that manifest."""
    (manifest / "12").write_text("v1")
    build = rebuilding._logs

    def suspended(*arguments: Any) -> dict[str, str]:
        logs = build(*arguments)
        monkeypatch.undo()
        rebuild_manifest(generation)
        add_batch(generation, 14, END, 50)
        return logs

    monkeypatch.setattr(rebuilding, "_logs", suspended)

    with pytest.raises(LockedError, match="manifest was changed by another run"):
        rebuild_manifest(generation)

    assert state_of(generation).last_committed == 14
    assert state_of(generation).findings == []


@pytest.mark.parametrize("killed", ["before", "between", "between, without the new one"])
def test_rebuild_manifest_killed(generation: Generation, manifest: Path, killed: str) -> None:
    """Killed before or between the two renames and run again, it ends with the same manifest."""
    before = sizes(generation) | {
        str(path.relative_to(str(generation.data))): path.stat().st_size
        for path in add_batch(generation, 14, END, 50)
    }
    half = manifest.with_name("_spark_metadata.new-0123abcd")
    shutil.copytree(manifest, half)
    (half / "14").unlink()
    if killed != "before":
        manifest.rename(manifest.with_name("_spark_metadata.damaged-20130101T120000000000Z"))
        assert summary(state_of(generation).findings) == {"manifest_missing": 1}
    if killed.endswith("without the new one"):
        shutil.rmtree(half)

    rebuild_manifest(generation)

    assert sizes(generation) == before
    assert state_of(generation).findings == []
    assert set(generation.list_data_files()) == set(before)


@pytest.mark.parametrize("store", ["memory://bucket", ""])
def test_newest_damaged_odd_path(tmp_path: Path, store: str) -> None:
    """A folder that looks like a pattern has a damaged manifest, in a store too."""
    data = UPath(store or tmp_path) / f"{tmp_path.name} [prod] st*r" / "data"
    assert newest_damaged(data) is None
    for name in ("_spark_metadata.damaged-2", "_spark_metadata.damaged-1", "topic=t"):
        (data / name).mkdir(parents=True)
        (data / name / "0").write_text("v1")

    found = newest_damaged(data)

    assert found is not None
    assert found.name == "_spark_metadata.damaged-2"


def test_rebuild_manifest_unsealed(archive: Archive, manifest: Path) -> None:
    """Batches that no receipt seals yet keep their lines, and are sealed in their turn."""
    generation = archive.generation(1)
    add_batch(generation, 14, END, 50)
    add_batch(generation, 15, 50, 53)
    kept = {name: (manifest / name).read_bytes() for name in ("14", "15")}
    (manifest / "12").unlink()

    assert rebuild_manifest(generation) == 28

    assert {name: (manifest / name).read_bytes() for name in ("14", "15")} == kept
    assert [sink_file.log for sink_file in state_of(generation).new] == ["14", "14", "15", "15"]
    report = seal(archive)
    assert (report.receipts_written, report.records) == (2, 2 * 53)


def test_rebuild_manifest_unsealed_compacted(archive: Archive, manifest: Path) -> None:
    """Lines of unsealed batches are kept also where a compaction has mixed them with sealed ones.

    A sealed line that it lost is written anew.
    """
    generation = archive.generation(1)
    for batch in range(14, 22):
        add_batch(generation, batch, END + batch - 14, END + batch - 13)
    before = sizes(generation)
    compacted = [manifest / name for name in ("9.compact", *map(str, range(10, 20)))]
    lines = [line for log in compacted for line in log.read_text().split("\n")[1:]]
    (manifest / "19.compact").write_text("\n".join(["v1", *lines[1:]]))
    for log in compacted:
        log.unlink()
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    assert summary(state_of(generation).findings) == {"manifest_truncated": 1}

    assert rebuild_manifest(generation) == 28

    assert sizes(generation) == before
    assert names(manifest) == {"19.compact", "20", "21"}
    state = state_of(generation)
    assert (state.findings, len(state.sealed), len(state.new)) == ([], 28, 16)
    report = seal(archive)
    assert (report.complete, report.receipts_written, report.records) == (True, 8, 2 * 50)


def test_rebuild_manifest_again(archive: Archive, generation: Generation, manifest: Path) -> None:
    """A manifest that is damaged a second time is written anew a second time."""
    before = sizes(generation)
    for name in ("12", "13"):
        (manifest / name).unlink()
        rebuild_manifest(generation)

    assert sizes(generation) == before
    assert len(beside(manifest, "damaged")) == 2
    assert len(archive_files(archive.snapshot())) == 28


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (1, ["0"]),
        (9, [str(batch) for batch in range(9)]),
        (10, ["9.compact"]),
        (12, ["9.compact", "10", "11"]),
        (20, ["19.compact"]),
    ],
)
def test_rebuild_manifest_compacted(tmp_path: Path, batches: int, expected: list[str]) -> None:
    """Every tenth batch is a compacted one, where Spark would look for it."""
    archive = sealed_copy(tmp_path / "archive")
    generation = open_next(archive, "parquet", ["topic"])
    for batch in range(batches):
        add_batch(generation, batch, END + batch, END + batch + 1)
    seal(archive)
    before = sizes(generation)
    manifest = Path(str(generation.data)) / "_spark_metadata"
    shutil.rmtree(manifest)

    assert rebuild_manifest(generation) == 2 * batches

    assert names(manifest) == set(expected)
    assert sizes(generation) == before
    assert state_of(generation).findings == []
    add_batch(generation, batches, END + batches, END + batches + 1)
    assert seal(archive).receipts_written == 1


def test_rebuild_manifest_file_gone(generation: Generation, manifest: Path) -> None:
    """A sealed file that is gone is listed all the same: the manifest says what was written."""
    before = sizes(generation)
    next(Path(str(generation.data)).rglob("part-*")).unlink()

    rebuild_manifest(generation)

    assert sizes(generation) == before


def test_rebuild_manifest_nothing_sealed(tmp_path: Path) -> None:
    """Without receipts there is nothing to write a manifest from; it stays as it is."""
    generation = golden_copy(tmp_path / "archive").generation(1)
    before = sizes(generation)

    with pytest.raises(ArchiveError, match="has no receipts"):
        rebuild_manifest(generation)

    assert sizes(generation) == before


def test_rebuild_manifest_receipt_corrupt(
    archive: Archive, generation: Generation, manifest: Path
) -> None:
    """Receipts that can't be trusted make no manifest; the one that is there stays."""
    path = archive.root / RECEIPTS / "000000000011.json"
    path.write_text(path.read_text().replace("part-00000", "part-00009", 1))
    before = sizes(generation)

    with pytest.raises(ReceiptError):
        rebuild_manifest(generation)

    assert sizes(generation) == before
    assert beside(manifest, "new") == beside(manifest, "damaged") == []


def test_rebuild_manifest_compact_empty(archive: Archive, manifest: Path) -> None:
    """What a damaged compacted file has lost is taken from the files that it stands for."""
    generation = archive.generation(1)
    for batch in range(14, 22):
        add_batch(generation, batch, END + batch - 14, END + batch - 13)
    before = sizes(generation)
    (manifest / "19.compact").write_text("")

    assert rebuild_manifest(generation) == 28

    assert sizes(generation) == before
    assert names(manifest) == {"19.compact", "20", "21"}
    assert seal(archive).receipts_written == 8
