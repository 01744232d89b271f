"""What somebody has edited, writing all hashes again: what is left contradicts itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_drain import verify_archive
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import errors
from kafka_drain.proof.validation import validate_archive
from tests.agreement.mutations import Copy
from tests.kafka_drain.archives import WINDOWS

REPAIR, REPROCESS, COMPACT, RETENTION = (f"windows/{name}" for name in WINDOWS[1:])
TAIL = "generations/0002/receipts/000000000002.json"
OLDER = "generations/0002/receipts/000000000001.json"
LIVE = "generations/0002/data/topic=flights/part-00000-1.parquet"
ENTRY = "journal/000000000008.json"
ERASURE = {"erasure": 7, "request": "r", "by": "b", "records": 0}
Edit = Callable[[Any], object]


def both(window: str, edit: Edit) -> dict[str, Edit]:
    return {f"{window}/receipt.json": edit, f"{window}/plan.json": edit}


def without_plans(entry: Any) -> None:
    for path in [path for path in entry["documents"] if path.endswith("/plan.json")]:
        del entry["documents"][path]


#: Edits of documents, and what is said of them.
FORGED: dict[str, tuple[dict[str, Edit], str]] = {
    "a plan's range": (
        {f"{REPAIR}/plan.json": lambda plan: plan["ranges"][0].update(end=99)},
        "but its receipt",
    ),
    "a plan's files": (
        {f"{REPAIR}/plan.json": lambda plan: plan["replaces"].append(LIVE)},
        "replaces other files than its receipt",
    ),
    "a plan's topic ids": (
        {f"windows/{WINDOWS[0]}/plan.json": lambda plan: plan.update(topics={})},
        "says topic flights has no id",
    ),
    "a plan's erasure": (
        {f"{COMPACT}/plan.json": lambda plan: plan.update(erasures=[ERASURE])},
        "names erasures/0007.json, which isn't there",
    ),
    "a start": (
        {"generations/0002/generation.json": lambda it: it["starting_offsets"].clear()},
        "starts flights-0 at 0, but its receipts at 42",
    ),
    "a topic id": ({TAIL: lambda receipt: receipt["topics"].clear()}, "no topic id of flights"),
    "the contents of an older receipt": (
        {OLDER: lambda receipt: receipt["files"][0]["contents"][0].update(first_offset=44)},
        "has first_offset 52 of flights-0, but its files have 44",
    ),
    "a time": (
        {TAIL: lambda receipt: receipt["partitions"][0].update(last_timestamp=1)},
        "has last_timestamp 1 of flights-0",
    ),
    "a hidden file": (
        both(REPAIR, lambda it: it["replaces"].append(LIVE)),
        f"replaces {LIVE} without having its offset 52 of flights-0",
    ),
    "a file that nobody had": (
        both(COMPACT, lambda it: it["replaces"].append("generations/0001/data/none")),
        "replaces generations/0001/data/none, which no receipt tells of",
    ),
    "a window in the journal without its plan": (
        {"journal": without_plans},
        "without its plan",
    ),
    "a generation in the journal without receipts": (
        {"journal": lambda entry: entry["receipts"].clear()},
        "names only the document of generations/0001",
    ),
    "columns of folders": (
        {"generations/0002/generation.json": lambda it: it.update(partition_by=["topi"])},
        "expected topic, date or hour",
    ),
    "a name in the journal": (
        {"journal": lambda entry: _tips(entry, newest="1.jsonx")},
        "newest is 1.jsonx",
    ),
    "a count in the journal": (
        {"journal": lambda entry: _tips(entry, receipts=1)},
        "expected 1",
    ),
    "a higher count in the journal": (
        {"journal": lambda entry: _tips(entry, receipts=9)},
        "expected 9",
    ),
    "no count in the journal": (
        {"journal": lambda entry: _tips(entry, receipts=0)},
        "receipts is 0",
    ),
    "what stands for settings in the journal": (
        {"journal": lambda entry: _settings(entry)},
        "accepte0",
    ),
    "a topic id of an older receipt": (
        {OLDER: lambda receipt: receipt["topics"].update(flights="A" * 22)},
        "has another id of topic flights",
    ),
}


def _settings(entry: Any) -> None:
    for path in entry["documents"]:
        if path.startswith("settings/"):
            entry["documents"][path] = "accepte0"


def _tips(entry: Any, **changes: Any) -> None:
    for tip in entry["receipts"].values():
        tip.update(changes)


def forge(root: Path, edits: dict[str, Edit]) -> None:
    it = Copy(root, Random(0))
    for path, edit in edits.items():
        for each in it.files(["entry"]) if path == "journal" else [path]:
            document = it.load(each)
            edit(document)
            it.dump(each, document)
    it.hash_again()


def said_of(root: Path) -> list[str]:
    """Return what a validation finds, that must agree with the verifier's verdict."""
    report = validate_archive(Archive.at(str(root)), None, writes=False)
    verifier = verify_archive.Verifier(str(root), deep=False)
    verifier.run()
    assert (verifier.report()["verdict"] == "complete") is report.complete
    return list(map(str, errors(report.findings)))


@pytest.mark.parametrize("what", FORGED)
def test_forged(what: str, copy: Path) -> None:
    """Validations, the verifier and readers refuse it alike."""
    edits, told = FORGED[what]
    assert said_of(copy) == []
    forge(copy, edits)

    found = said_of(copy)

    assert any(told in each for each in found), found
    with pytest.raises(ManifestInvalidError):
        archive_files(Archive.at(str(copy)).snapshot())


def test_forged_not(copy: Path) -> None:
    """All hashes written again, and nothing else: nobody can tell, and nothing is wrong."""
    forge(copy, {})

    assert said_of(copy) == []
    assert archive_files(Archive.at(str(copy)).snapshot())


def test_forged_format(copy: Path) -> None:
    """An archive with erasures isn't of a format that knows none: its release would undo them."""
    erasures = copy / "erasures"
    erasures.mkdir()
    example = Path(__file__).parents[2] / "data" / "documents" / "erasure.1.json"
    (erasures / "0001.json").write_bytes(example.read_bytes())
    noted = {"erasures/0001.json": "0" * 64}
    forge(copy, {"journal": lambda entry: entry["documents"].update(noted)})

    found = said_of(copy)

    assert "archive.json: has format_version 1, but there are erasures" in found[0]


def test_forged_count_of_deletion(copy: Path) -> None:
    """A deletion that lets go of a file doesn't bring its records back."""
    forge(copy, both(RETENTION, lambda it: it["replaces"].clear()))

    assert any("replaces 0 records of flights-0 by 0" in each for each in said_of(copy))


def test_forged_topic_id_of_repair(copy: Path) -> None:
    """A repair with records of another topic of this name doesn't replace the lost ones."""
    forge(copy, {f"{REPAIR}/receipt.json": lambda it: it["topics"].update(flights="A" * 22)})

    assert any("which has records of another topic flights" in each for each in said_of(copy))
