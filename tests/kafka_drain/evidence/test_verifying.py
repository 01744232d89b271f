"""Verification of evidence offline: by the file and a public key alone."""

from __future__ import annotations

import hashlib
import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.heads import heads_of
from kafka_drain.evidence.keys import SigningKey, trusted
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.statement import MEANINGS, Statement
from kafka_drain.evidence.verifying import compare_with_archive, verify_evidence
from kafka_drain.evidence.witness import WitnessFile
from kafka_drain.pages.evidence import evidence_page, said_of
from tests.kafka_drain.evidence.test_signing import add_generation, made_anew, validated
from tests.kafka_drain.golden import END, add_batch, note_batch, sealed_copy

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def evidence(tmp_path: Path) -> tuple[Path, Path, SigningKey, Archive]:
    """A signed report, a witness of two lines, the key, and the archive."""
    key = SigningKey.create(tmp_path / "key")
    signer = Signer(key, witness=WitnessFile(tmp_path / "witness.jsonl"))
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    add_generation(archive)
    validated(archive, signer)
    report = tmp_path / "archive/evidence/validation/run.json"
    return report, tmp_path / "witness.jsonl", key, archive


Evidence = tuple[Path, Path, SigningKey, Archive]


def test_verify_evidence(evidence: Evidence) -> None:
    """What is verified says what it proves, what it doesn't, and what was signed."""
    report, _, key, archive = evidence
    found = verify_evidence("it", report.read_bytes(), trusted([key.public])).to_dict()

    assert found["verified"] is True
    assert found["kind"] == "validation"
    assert found["key"] == key.public.id
    assert (found["file"], found["lines"]) == ("it", 1)
    assert found["sha256"] == hashlib.sha256(report.read_bytes()).hexdigest()
    assert (found["archive"], found["pipeline"]) == (archive.identity(), "golden")
    assert found["signed_at"] == "2026-01-01T00:00:00.000+00:00"
    assert found["heads"] == heads_of(read_journal(archive.root))
    assert [*found["files"]] == ["reports/run.json"]
    assert found["document"]["verdict"] == "complete"
    assert "no byte was changed since" in found["proven"][0]
    assert any("pass --archive" in text for text in found["not_proven"])


def test_verify_evidence_changed_byte(evidence: Evidence) -> None:
    """A report with one byte changed, anywhere, isn't verified; the file is named."""
    report, _, key, _ = evidence
    content = report.read_bytes()
    keys = trusted([key.public])
    some = random.Random(1)
    for place in [0, len(content) - 1, *some.sample(range(len(content)), 200)]:
        changed = bytearray(content)
        changed[place] ^= 1 << some.randrange(8)
        # A byte that became a newline makes two lines: "it has a line 1 that isn't signed …".
        with pytest.raises(EvidenceError, match=r"^it (was changed|.*isn't signed|names key)"):
            verify_evidence("it", bytes(changed), keys)


def test_verify_witness(evidence: Evidence) -> None:
    """A witness is verified as a whole; a changed byte, or a line that is gone, is found."""
    _, witness, key, _ = evidence
    content, keys = witness.read_bytes(), trusted([key.public])
    first, second = content.splitlines(keepends=True)
    found = verify_evidence("it", content, keys)

    assert found.to_dict()["lines"] == 2
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert (found.statement, found.key_id) == (found.lines[-1].statement, key.public.id)
    assert "2 lines, none changed" in found.proven[0]
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(EvidenceError, match=r"^it "):
            verify_evidence("it", bytes(changed), keys)
    for rest in (second, second * 2):
        with pytest.raises(EvidenceError, match="line 1 follows a line that is gone"):
            verify_evidence("it", rest, keys)
    assert verify_evidence("it", first, keys).to_dict()["lines"] == 1
    with pytest.raises(EvidenceError, match="has a line 2 that isn't signed evidence"):
        verify_evidence("it", first + b"{}\n", keys)


def test_verify_witness_unfinished(evidence: Evidence) -> None:
    """Half a line, which a killed run has left, doesn't make a witness wrong for ever."""
    _, witness, key, archive = evidence
    keys = trusted([key.public])
    first, second = witness.read_bytes().splitlines(keepends=True)
    # As the next run goes on.
    half = second[:200]
    witness.write_bytes(first + half)
    WitnessFile(witness).append(lambda lines: second)
    content = witness.read_bytes()
    assert content == first + half + b"\n" + second

    found = verify_evidence("it", content, keys)

    assert found.to_dict()["lines"] == 2
    assert any("1 unfinished lines" in text for text in found.not_proven)
    compared = compare_with_archive(found, str(archive.root))
    assert "the archive still has every receipt" in compared.proven[1]
    assert compared.unfinished == 1
    # At the end, in place of a line, or something else.
    for wrong in (first + second + half, first + half + b"\n" * 2 + second):
        with pytest.raises(EvidenceError, match="has a line 3 that isn't signed evidence"):
            verify_evidence("it", wrong, keys)
    for wrong in (b"half\n", second[:9] + second[10:], b"\n"):
        with pytest.raises(EvidenceError, match="has a line 2 that isn't signed evidence"):
            verify_evidence("it", first + wrong + second, keys)
    with pytest.raises(EvidenceError, match="line 2 follows a line that is gone"):
        verify_evidence("it", first[:200] + b"\n" + second, keys)


def test_verify_evidence_rotated(evidence: Evidence, tmp_path: Path) -> None:
    """Old evidence verifies with the old key; new evidence by a rotation that it signed."""
    report, _, old, archive = evidence
    new = SigningKey.create(tmp_path / "new")
    before = report.read_bytes()
    validated(archive, Signer(new))
    after = report.read_bytes()
    rotation = old.rotate_to(new.public, NOW)

    assert verify_evidence("it", before, trusted([old.public])).key_id == old.public.id
    assert verify_evidence("it", after, trusted([old.public], [rotation])).key_id == new.public.id
    said = verify_evidence("it", rotation.to_bytes(), trusted([old.public]))
    assert said.statement.document["key"] == new.public.id
    with pytest.raises(EvidenceError, match="isn't among the given ones"):
        verify_evidence("it", after, trusted([old.public]))
    with pytest.raises(ConfigError, match="is about a key, not an archive"):
        compare_with_archive(said, str(archive.root))


def test_compare_with_archive(evidence: Evidence, tmp_path: Path) -> None:
    """Evidence agrees with its archive, also when it has grown; not with one made anew."""
    report, witness, key, archive = evidence
    keys, root = trusted([key.public]), str(archive.root)
    found = [verify_evidence("it", path.read_bytes(), keys) for path in (report, witness)]

    for each in found:
        compared = compare_with_archive(each, root)
        assert "the archive still has every receipt" in compared.proven[1]
        assert not any("--archive" in text for text in compared.not_proven)
    made_anew(archive)
    for each in found:
        with pytest.raises(EvidenceError, match="isn't the archive that it is about: generations"):
            compare_with_archive(each, root)
    other = sealed_copy(tmp_path / "other")
    other.identify()
    with pytest.raises(EvidenceError, match=r"but .*other has id"):
        compare_with_archive(found[0], str(other.root))


def test_compare_with_archive_earlier_line(evidence: Evidence) -> None:
    """A receipt that only an earlier line of a witness names has to be in the archive, too."""
    _, witness, key, archive = evidence
    generation = archive.generation(2)
    files = add_batch(generation, 1, END + 3, END + 6)
    note_batch(generation, 1, files, END + 3, END + 6)
    validated(archive, Signer(key, witness=WitnessFile(witness)))
    found = verify_evidence("it", witness.read_bytes(), trusted([key.public]))
    earlier = "generations/0002/receipts/000000000000.json"
    assert [earlier in line.statement.heads for line in found.lines] == [False, True, False]
    assert earlier in (compare_with_archive(found, str(archive.root)).compared or ())
    (archive.root / earlier).unlink()

    with pytest.raises(EvidenceError, match=f"isn't the archive .*: {earlier} is missing"):
        compare_with_archive(found, str(archive.root))


@pytest.mark.parametrize("kind", MEANINGS)
def test_evidence_page_kinds(kind: Any, tmp_path: Path) -> None:
    """Each kind that can be signed has a page, with what a person reads first."""
    key, document = SigningKey.create(tmp_path / "key"), {"verdict": "refused", "key": "k"}
    content = key.sign(Statement(kind, "now", document=document)).to_bytes()
    shown = verify_evidence("it", content, trusted([key.public])).to_dict()

    assert MEANINGS[kind] in evidence_page(shown).replace("&#39;", "'")
    assert set(said_of(shown)) <= set(document)


def test_evidence_page(evidence: Evidence) -> None:
    """The page says what is proven; whatever was signed is escaped."""
    report, witness, key, _ = evidence
    keys = trusted([key.public])
    for path in (report, witness):
        shown = verify_evidence(str(path), path.read_bytes(), keys).to_dict()
        shown["document"]["odd"] = "<script>alert(1)</script>"
        page = evidence_page(shown)

        assert "The signature is correct" in page
        assert key.public.id in page
        assert "<script>" not in page
