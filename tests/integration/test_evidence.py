"""Evidence by the commands, and a witness that is a topic of a real broker."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.witness import WitnessTopic
from kafka_drain.evidence.witness_lines import check_lines
from kafka_drain.findings import Reason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from tests.integration.command_line import kafka_drain
from tests.kafka_drain.evidence.test_signing import add_generation, made_anew, reasons, validated
from tests.kafka_drain.golden import sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense

pytestmark = pytest.mark.integration


def test_commands(tmp_path: Path) -> None:
    """A key is created, a validation signed and witnessed, and all of it verified."""
    archive = sealed_copy(tmp_path / "archive")
    key, witness = tmp_path / "key", tmp_path / "witness.jsonl"
    assert kafka_drain("evidence-key", key).code == 0
    signed = ("--evidence-key", key, "--witness", witness, "--json")
    done = kafka_drain("validate", archive.root, *signed)
    assert done.code == 0, done.err
    path = json.loads(done.out)["evidence"]

    for file in (path, witness):
        verify = ("verify-evidence", file, "--public-key", f"{key}.pub", "--archive", archive.root)
        done = kafka_drain(*verify)
        assert done.code == 0, done.err
        assert "the archive still has every receipt that is named" in done.out
    secret = key.read_text().splitlines()[1]
    assert all(secret not in file.read_text() for file in (Path(path), witness))
    made_anew(archive)
    done = kafka_drain("validate", archive.root, *signed)
    assert done.code == 1
    assert json.loads(done.out)["reasons"]["witness_differs"] > 0
    assert len(witness.read_bytes().splitlines()) == 1


def test_commands_refused(tmp_path: Path) -> None:
    """A witness without a key, and a key that others can read, are refused before anything."""
    archive = sealed_copy(tmp_path / "archive")
    key = tmp_path / "key"
    assert kafka_drain("evidence-key", key).code == 0
    done = kafka_drain("validate", archive.root, "--witness", tmp_path / "w")
    assert (done.code, "--witness needs --evidence-key" in done.err) == (2, True)
    key.chmod(0o644)
    done = kafka_drain("validate", archive.root, "--evidence-key", key)

    assert (done.code, "so that others can use the key" in done.err) == (2, True)
    assert not (tmp_path / "archive" / "evidence").exists()


def test_republish_signed(tmp_path: Path, cluster: KafkaCluster, make_topic: Any) -> None:
    """The receipt of a republish is signed, with the hashes of its files; a retry signs again."""
    source = f"source-{uuid4().hex[:8]}"
    made = MadeArchive(tmp_path / "archive", {source: "id"})
    made.seal({TopicPartition(source, 0): dense(0, 20)})
    made.open_generation()
    key, target = tmp_path / "key", make_topic(1, **{"retention.ms": "-1"})
    assert kafka_drain("evidence-key", key).code == 0
    servers = ("--bootstrap-servers", cluster.config.bootstrap_servers, "--target-topic", target)
    command = ("republish", made.root, *servers, "--evidence-key", key, "--json")
    assert "evidence" not in json.loads(kafka_drain(*command).out)
    for _ in range(2):
        done = kafka_drain(*command, "--apply")
        assert done.code == 0, done.err
        path = json.loads(done.out)["evidence"]
        done = kafka_drain("verify-evidence", path, "--public-key", f"{key}.pub", "--json")
        signed = json.loads(done.out)

        assert (signed["kind"], signed["document"]["records"]) == ("republish", 20)
        assert signed["document"]["verification"]["is_exact"] is True
        for file, digest in signed["files"].items():
            content = (tmp_path / "archive" / file).read_bytes()
            assert hashlib.sha256(content).hexdigest() == digest
        assert len(signed["files"]) == 2


def test_topic_as_witness(tmp_path: Path, cluster: KafkaCluster, make_topic: Any) -> None:
    """A topic keeps the lines as a file does, and finds an archive made anew."""
    topic = make_topic(1, **{"retention.ms": "-1"})
    witness = WitnessTopic(cluster, topic)
    signer = Signer(SigningKey.create(tmp_path / "key"), witness=witness)
    archive = sealed_copy(tmp_path / "archive")
    assert witness.lines() == []
    assert reasons(validated(archive, signer)) == set()
    add_generation(archive)
    assert reasons(validated(archive, signer)) == set()
    assert reasons(validated(archive, signer)) == set()
    before = witness.lines()
    assert len(before) == 2
    assert check_lines(signer.lines(archive.identity() or "", "", before)) == ""
    made_anew(archive)
    report = validated(archive, signer)

    assert reasons(report) == {Reason.WITNESS_DIFFERS}
    assert witness.lines() == before


def test_topic_as_witness_at_once(tmp_path: Path, cluster: KafkaCluster, make_topic: Any) -> None:
    """Validations at the same moment may follow one line; the witness stays whole."""
    topic = make_topic(1, **{"retention.ms": "-1"})
    key = SigningKey.create(tmp_path / "key")
    archive = sealed_copy(tmp_path / "archive")
    signers = [Signer(key, witness=WitnessTopic(cluster, topic)) for _ in range(2)]
    reports: list[Any] = []
    threads = [
        threading.Thread(target=lambda s=signer: reports.append(validated(archive, s)))
        for signer in signers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    add_generation(archive)

    assert [reasons(report) for report in reports] == [set(), set()]
    assert reasons(validated(archive, signers[0])) == set()
    assert len(WitnessTopic(cluster, topic).lines()) in (2, 3)
