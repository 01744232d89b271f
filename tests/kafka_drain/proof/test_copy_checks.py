"""Copies that a repair couldn't use are found before they are needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.copies import KEPT, copied_paths
from kafka_drain.archive.journal.digests import digest_of
from kafka_drain.archive.journal.entries import REMOVED
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.findings import Finding, Reason
from kafka_drain.proof.copy_checks import check_copies, copy_problem
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.receipt_repair import repair_documents
from tests.kafka_drain.archives import BACKFILL, G1
from tests.kafka_drain.golden import golden_cluster
from tests.tables import each_of

RECEIPT = f"{G1}/receipts/000000000012.json"
COPIED = [
    "archive.json",
    f"{G1}/generation.json",
    RECEIPT,
    f"windows/{BACKFILL}/plan.json",
    f"windows/{BACKFILL}/receipt.json",
]


def document(**keys: Any) -> bytes:
    return json.dumps({"pipeline": "p", "cluster_id": "c", **keys}).encode()


def digest(content: bytes) -> str:
    return digest_of("archive.json", content)


SOUND = document()
OTHER = document(pipeline="q")
TORN = SOUND[:-1]


@each_of("original", [SOUND, OTHER, TORN, None])
@each_of("named", [SOUND, OTHER, None])
@each_of("copy", [SOUND, document(topics={"t": "1"}), OTHER, TORN, b"", b"[]"])
def test_copy_problem(copy: bytes, named: bytes | None, original: bytes | None) -> None:
    """A copy is good if it has the digest that the journal names, or else that of the original.

    What isn't in the digest may differ. A copy like its original needs no second look: what is
    wrong with both is a finding about the original.
    """
    name = digest(named) if named else None

    found = copy_problem("archive.json", copy, original, name)

    if copy == original:
        assert found == ""
    elif copy in (TORN, b"", b"[]"):
        assert found.startswith("can't be read: ")
    else:
        expected = named or (original if original != TORN else None)
        differs = expected is not None and digest(copy) != digest(expected)
        words = [f"digest {digest(each)[:12]}" for each in (copy, expected or copy)]
        told = f"has {words[0]}, but {words[1].removeprefix('digest ')} was sealed"
        assert found == (told if differs else "")


@pytest.mark.parametrize("original", [SOUND, None])
@pytest.mark.parametrize("copy", [OTHER, TORN])
def test_copy_problem_removed(copy: bytes, original: bytes | None) -> None:
    """Of a window that was removed for good, a copy that a kill left behind doesn't matter."""
    assert copy_problem("archive.json", copy, original, REMOVED) == ""


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "archive")


def copy_findings(root: Path, **how: Any) -> list[str]:
    """Return which copies a validation warns of."""
    report = validate_archive(Archive.at(str(root)), golden_cluster(), **how)
    return [str(f.subject) for f in report.findings if f.reason == Reason.COPY_DAMAGED]


def changed(path: Path) -> None:
    """Change a byte of what is sealed."""
    content = path.read_bytes()
    at = content.index(b"flights") + 2
    path.write_bytes(content[:at] + b"X" + content[at + 1 :])


def emptied(path: Path) -> None:
    """Leave the file as a power cut does."""
    path.write_bytes(b"")


DAMAGES = [changed, emptied]


def test_copied_paths(root: Path) -> None:
    """There is a copy of what decides, and no file that was never finished counts as one."""
    (root / "copies" / ".archive.json.123.tmp").write_bytes(b"")
    (root / "copies" / "archive.json.tmp").write_bytes(b"")

    found = copied_paths(UPath(root))

    assert set(COPIED) < set(found)
    assert all((root / where).is_file() for where in found)
    assert len(found) < 5 * KEPT
    assert copied_paths(UPath(root / "nowhere")) == []


def test_validate_copies_sound(root: Path) -> None:
    """Nothing is said of copies that are good."""
    assert copy_findings(root, deep=True) == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("where", COPIED)
def test_validate_copy_damaged(root: Path, where: str, damage: Callable[[Path], None]) -> None:
    """A deep validation warns once, and rewrites the copy, so that a repair can use it."""
    copy = root / "copies" / where
    damage(copy)

    assert copy_findings(root) == []
    assert copy_findings(root, deep=True, writes=False) == [f"copies/{where}"]
    assert copy_findings(root, deep=True) == [f"copies/{where}"]
    assert copy_findings(root, deep=True) == []
    assert copy.read_bytes() == (root / where).read_bytes()
    (root / where).unlink()
    repair_documents(UPath(root))
    assert copy.read_bytes() == (root / where).read_bytes()


@pytest.mark.parametrize(
    ("edit", "detail"),
    [
        ({"retention": "9 days"}, "says isolation_level 'read_committed' and retention '9 days'"),
        ({"topics": {}}, "says topic flights has id None, but it was sealed as "),
        ({"topics": "flights"}, "/copies/archive.json"),
        ({"retention": None}, ""),
        ({"a key of a later release": 1}, ""),
    ],
    ids=["settings", "topics", "not a document", "unchanged", "more"],
)
def test_check_copies_identity(root: Path, edit: dict[str, Any], detail: str) -> None:
    """Of archive.json, a repair also wants settings that drains used, and ids that were sealed."""
    copy = root / "copies" / "archive.json"
    copy.write_text(json.dumps(json.loads(copy.read_text()) | edit))
    sealed = check_sealed_state(Archive.at(str(root)).snapshot())

    found = check_copies(UPath(root), sealed.journal.noted, sealed.topic_ids)

    assert [str(each.subject) for each in found] == ["copies/archive.json"] * bool(detail)
    assert all(detail in each.detail for each in found)


def test_check_copies_gone(root: Path) -> None:
    """A copy that goes while they are listed doesn't hide what is wrong with the others."""
    (root / "copies" / "a.json").symlink_to("nowhere")
    emptied(root / "copies" / RECEIPT)

    [found] = check_copies(UPath(root), read_journal(UPath(root)).noted, {"flights": {"other"}})[1:]

    assert found.subject == f"copies/{RECEIPT}"


def test_check_copies_original_missing(root: Path) -> None:
    """A copy is good without its original too; that one is missing is another finding."""
    for where in COPIED:
        (root / where).unlink()

    assert check_copies(UPath(root), read_journal(UPath(root)).noted, {}) == []


def test_check_copies_receipt(root: Path) -> None:
    """A receipt's copy is compared with the journal, or where that names a later one, its place."""
    receipts = root / "copies" / G1 / "receipts"
    for path in receipts.iterdir():
        path.write_bytes((receipts / "000000000011.json").read_bytes())
    newest = max(path.name for path in receipts.iterdir())
    (root / G1 / "receipts" / newest).unlink()

    found = check_copies(UPath(root), read_journal(UPath(root)).noted, {})

    names = [path.name for path in sorted(receipts.iterdir()) if path.name != "000000000011.json"]
    assert [str(f.subject) for f in found if "receipts" in str(f.subject)] == [
        f"copies/{G1}/receipts/{name}" for name in names
    ]


def test_validate_copy_and_original_damaged(root: Path) -> None:
    """A copy is never rewritten from an original about which there is a finding."""
    where = f"windows/{BACKFILL}/plan.json"
    (root / where).write_bytes(b"{}")
    emptied(root / "copies" / where)

    for _ in range(2):
        assert copy_findings(root, deep=True) == [f"copies/{where}"]
    assert (root / "copies" / where).read_bytes() == b""


def test_validate_copy_beside_damage_elsewhere(root: Path) -> None:
    """While anything sealed is missing or changed, nothing is written, not even a copy."""
    (root / f"windows/{BACKFILL}/receipt.json").unlink()
    emptied(root / "copies" / RECEIPT)

    for _ in range(2):
        assert copy_findings(root, deep=True) == [f"copies/{RECEIPT}"]


def test_validate_copy_is_a_warning(root: Path) -> None:
    """The archive is as complete as it was; without Kafka, nothing is mended."""
    emptied(root / "copies" / RECEIPT)

    validate_archive(Archive.at(str(root)), None, deep=True)
    assert (root / "copies" / RECEIPT).read_bytes() == b""
    report = validate_archive(Archive.at(str(root)), golden_cluster(), deep=True)

    assert report.complete
    [found] = [f for f in report.findings if f.reason == Reason.COPY_DAMAGED]
    assert isinstance(found, Finding)
    assert found.detail.startswith("can't be read: ")
