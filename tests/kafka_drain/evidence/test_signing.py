"""Signed validations, and a witness that finds an archive made anew as a whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.heads import heads_of
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer, refuse_inside, sign, tell_witness
from kafka_drain.evidence.verifying import verify_evidence
from kafka_drain.evidence.witness import WitnessFile, WitnessTopic
from kafka_drain.findings import Reason, errors
from kafka_drain.proof.report import Report, sign_report, write_report
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.fake_cluster import FakeCluster
from tests.kafka_drain.golden import (
    END,
    add_batch,
    golden_cluster,
    golden_copy,
    note_batch,
    open_next,
    seal,
    sealed_copy,
)

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    """A key and a witness that has seen nothing."""
    key = SigningKey.create(tmp_path / "key")
    return Signer(key, witness=WitnessFile(tmp_path / "witness.jsonl"))


def validated(archive: Archive, signer: Signer, **how: bool) -> Report:
    """Validate an archive with its witness, and sign the report."""
    report = validate_archive(archive, golden_cluster(), signer=signer, **how)
    sign_report(archive, report, write_report(archive, report, "run"), signer, NOW)
    return report


def reasons(report: Report) -> set[Reason]:
    """The reasons of a report's errors."""
    return {finding.reason for finding in errors(report.findings)}


def add_generation(archive: Archive) -> None:
    """Drain another batch, in another generation."""
    generation = open_next(archive, "parquet", ["topic"])
    note_batch(generation, 0, add_batch(generation, 0, END, END + 3), END, END + 3)


def test_sign_report(tmp_path: Path, signer: Signer) -> None:
    """A report is signed with the newest receipts; the public key alone verifies it."""
    archive = sealed_copy(tmp_path / "archive")
    report = validated(archive, signer)
    path = tmp_path / "archive/evidence/validation/run.json"
    keys = {signer.key.public.id: signer.key.public}
    verified = verify_evidence("it", path.read_bytes(), keys)
    newest = archive.generation(1).last_receipt()
    assert newest is not None

    assert report.complete
    assert verified.statement.document == json.loads(
        (tmp_path / "archive/reports/run.json").read_text()
    )
    assert verified.statement.archive_id == archive.identity()
    assert newest.sha256 in verified.statement.heads.values()
    content = (tmp_path / "archive/reports/run.json").read_bytes()
    assert verified.statement.files == {"reports/run.json": hashlib.sha256(content).hexdigest()}
    assert verified.statement.pipeline == "golden"
    assert verified.statement.signed_at == "2026-01-01T00:00:00.000+00:00"


def test_sign_names(tmp_path: Path, signer: Signer) -> None:
    """A run's name is no path: its statement lies in the folder of its kind, and says the kind."""
    archive = sealed_copy(tmp_path / "archive")

    path = sign(archive, signer, "drill", "../a:b+c/d é", {}, [], NOW)

    assert path == str(tmp_path / "archive/evidence/drill/.._a_b_c_d__.json")
    keys = {signer.key.public.id: signer.key.public}
    said = verify_evidence("it", Path(path).read_bytes(), keys).statement
    assert (said.kind, said.files, said.document) == ("drill", {}, {})


def test_signer_without_kafka(signer: Signer) -> None:
    """Where Kafka doesn't answer, a witness that is a file is asked all the same, a topic isn't."""
    cluster: Any = FakeCluster({})
    in_topic = Signer(signer.key, [signer.key.public], WitnessTopic(cluster, "w"))

    assert signer.without_kafka() == signer
    assert in_topic.without_kafka() == Signer(signer.key, [signer.key.public])
    assert Signer(signer.key).without_kafka() == Signer(signer.key)


def test_witness_of_archive_that_grows(tmp_path: Path, signer: Signer) -> None:
    """Each validation with something new appends a line; an archive that only grows agrees.

    The line has the newest receipts, and the time.
    """
    archive = golden_copy(tmp_path / "archive")
    numbers = []
    for step in (lambda: None, lambda: None, lambda: add_generation(archive), lambda: None):
        step()
        assert reasons(validated(archive, signer)) == set()
        assert signer.witness is not None
        numbers.append(len(signer.witness.lines()))

    assert numbers == [1, 1, 2, 2]
    assert signer.witness is not None
    [_, second] = signer.lines(archive.identify(), "golden", signer.witness.lines())
    assert second.statement.heads == heads_of(read_journal(archive.root))
    assert second.statement.signed_at == "2026-01-01T00:00:00.000+00:00"
    for deep in (True, False):
        report = validate_archive(archive, golden_cluster(), signer=signer, deep=deep, scope="open")
        assert reasons(report) == set()


def test_witness_on_full_disk(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes only a part of a line is said; with space again, the witness goes on."""
    archive = golden_copy(tmp_path / "archive")
    validated(archive, signer)
    add_generation(archive)
    left, write = [40], os.write

    def filling(file: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, content[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(os, "write", filling)
        with pytest.raises(EvidenceError, match="can't be written: No space left"):
            validated(archive, signer)

    report = validated(archive, signer)
    assert reasons(report) == set()
    assert signer.witness is not None
    lines = signer.lines(archive.identity() or "", "", signer.witness.lines())
    assert [line.number for line in lines] == [1, 3]


def made_anew(archive: Archive) -> None:
    """Rewrite all receipts and the journal consistently, as if drained at another time."""
    root = Path(str(archive.root))
    identity = (root / "identity.json").read_bytes()
    shutil.rmtree(root)
    golden_copy(root)
    (root / "identity.json").write_bytes(identity)
    seal(archive)


def older_copy(archive: Archive) -> None:
    """Go back to what the archive was before its second generation."""
    root = Path(str(archive.root))
    shutil.rmtree(root)
    shutil.copytree(root.with_name("older"), root)


def other_archive(archive: Archive) -> None:
    """Put another archive of the same pipeline in its place."""
    root = Path(str(archive.root))
    shutil.rmtree(root)
    sealed_copy(root).identify()


@pytest.mark.parametrize("change", [made_anew, older_copy, other_archive])
@pytest.mark.parametrize("scope", ["all", "open"])
def test_archive_rewritten(
    change: Callable[[Archive], None], scope: str, tmp_path: Path, signer: Signer
) -> None:
    """An archive rewritten as a whole is green by itself, and found by the witness.

    Then nothing is sealed, nothing noted, and the witness isn't told.
    """
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    shutil.copytree(tmp_path / "archive", tmp_path / "older")
    add_generation(archive)
    validated(archive, signer)
    witness = (tmp_path / "witness.jsonl").read_bytes()
    change(archive)
    add_generation(archive)
    before = sorted(Path(str(archive.root)).rglob("receipts/*.json"))
    report = validate_archive(
        archive,
        golden_cluster(),
        signer=signer,
        scope=scope,  # type: ignore[arg-type]
    )
    sign_report(archive, report, write_report(archive, report, "run"), signer, NOW)

    assert reasons(report) == {Reason.WITNESS_DIFFERS}
    assert report.receipts_written == 0
    assert sorted(Path(str(archive.root)).rglob("receipts/*.json")) == before
    assert (tmp_path / "witness.jsonl").read_bytes() == witness
    # Without the witness, nothing is wrong with it.
    assert reasons(validate_archive(archive, golden_cluster(), deep=True)) == set()


def test_archive_rewritten_and_told(tmp_path: Path, signer: Signer) -> None:
    """If the rewritten archive was told to the witness, older lines still contradict it."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    made_anew(archive)
    assert tell_witness(archive, signer, NOW)

    assert (
        reasons(validate_archive(archive, golden_cluster(), signer=signer, scope="open")) == set()
    )
    whole = validate_archive(archive, golden_cluster(), signer=signer)
    assert reasons(whole) == {Reason.WITNESS_DIFFERS}


@pytest.mark.parametrize("identity", ['{"id": "00000000000000000000000000000000"}', None])
def test_archive_of_another_id(tmp_path: Path, signer: Signer, identity: str | None) -> None:
    """An archive with the same receipts and another id, or none, isn't the one that is known."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    path = tmp_path / "archive" / "identity.json"
    if identity is None:
        path.unlink()
    else:
        path.write_text(identity)
    [found] = errors(validate_archive(archive, golden_cluster(), signer=signer).findings)

    assert (found.reason, found.subject) == (Reason.WITNESS_DIFFERS, "identity.json")


def test_witness_changed(tmp_path: Path, signer: Signer) -> None:
    """A witness with a line changed is an error of its own, and is told nothing."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    add_generation(archive)
    validated(archive, signer)
    path = tmp_path / "witness.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b"a", b"b", 1) + second)
    report = validated(archive, signer)

    assert reasons(report) == {Reason.WITNESS_DAMAGED}
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("left", [0, 1])
def test_witness_cut_off(left: int, tmp_path: Path, signer: Signer) -> None:
    """A witness without its newest lines, or without any as if not mounted, isn't a new one."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    add_generation(archive)
    validated(archive, signer)
    path = tmp_path / "witness.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:left]))

    assert reasons(validated(archive, signer)) == {Reason.WITNESS_DAMAGED}
    assert len(path.read_bytes().splitlines()) == left
    # A witness of another name is a new one.
    other = Signer(signer.key, witness=WitnessFile(tmp_path / "other.jsonl"))
    assert reasons(validated(archive, other)) == set()
    assert len((tmp_path / "other.jsonl").read_bytes().splitlines()) == 1


def test_witness_after_rotation(tmp_path: Path, signer: Signer) -> None:
    """With another key, a witness is continued if the former public key is named."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    key = SigningKey.create(tmp_path / "new")
    unnamed = Signer(key, witness=signer.witness)
    named = Signer(key, [signer.key.public], signer.witness)
    add_generation(archive)

    assert reasons(validate_archive(archive, None, signer=unnamed)) >= {Reason.WITNESS_DAMAGED}
    assert reasons(validated(archive, named)) == set()
    assert reasons(validated(archive, unnamed)) == set()
    assert len((tmp_path / "witness.jsonl").read_bytes().splitlines()) == 2


def test_witness_inside_archive(tmp_path: Path, signer: Signer) -> None:
    """A witness inside the archive is refused."""
    archive = sealed_copy(tmp_path / "archive")
    inside = Signer(signer.key, witness=WitnessFile(tmp_path / "archive" / "witness.jsonl"))

    with pytest.raises(ConfigError, match="is inside the archive"):
        validate_archive(archive, golden_cluster(), signer=inside)
    refuse_inside(archive, None)
    # Beside it, with a name that begins alike.
    refuse_inside(archive, WitnessFile(tmp_path / "archive.jsonl"))
    assert not (tmp_path / "archive" / "witness.jsonl").exists()


def test_no_witness(tmp_path: Path, signer: Signer) -> None:
    """Without a witness, reports are signed all the same."""
    archive = sealed_copy(tmp_path / "archive")
    alone = Signer(signer.key)

    assert reasons(validated(archive, alone)) == set()
    assert not tell_witness(archive, alone, NOW)
    assert (tmp_path / "archive/evidence/validation/run.json").is_file()


def test_witness_gone_meanwhile(tmp_path: Path, signer: Signer) -> None:
    """A witness that was checked when the validation began may be another one at its end."""
    archive = sealed_copy(tmp_path / "archive")
    validated(archive, signer)
    add_generation(archive)
    seal(archive)
    note = (tmp_path / "archive/evidence/witness.json").read_bytes()
    (tmp_path / "witness.jsonl").unlink()

    with pytest.raises(EvidenceError, match="lacks the line"):
        tell_witness(archive, signer, NOW)

    assert (tmp_path / "archive/evidence/witness.json").read_bytes() == note
