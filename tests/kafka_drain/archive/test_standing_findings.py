"""What earlier validations found stands until one that looks as closely finds it mended."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.standing_findings import KEYS, NAMED, Look, Standing, StandingFinding
from kafka_drain.archive.status import read_overview
from kafka_drain.encryption.data_keys import FOLDER
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.findings import OF_BYTES, OF_KAFKA, OF_WITNESS, Finding, Reason, errors, summary
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof import committed_file
from kafka_drain.proof.report import Report, note_overview
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import golden_cluster, sealed_copy
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.tables import each_of

NOW = datetime(2026, 2, 1, 12, tzinfo=timezone.utc)
LATER = datetime(2026, 2, 1, 13, tzinfo=timezone.utc)
P0 = TopicPartition("orders", 0)
#: A look at everything with everything, and the hourly one at the second generation.
WIDEST = Look(whole=True, deep=True, kafka=True, witness=True, generation=2)
HOURLY = replace(WIDEST, whole=False, deep=False)
FILE = "generations/0001/data/part-0.parquet"
OWN_FILE = "generations/0002/data/part-0.parquet"


def one(reason: Reason = Reason.FILE_CHANGED, **changes: Any) -> StandingFinding:
    """A finding that stands, of a closed generation's file."""
    known: dict[str, Any] = {"where": FILE, "detail": "seen", "found_at": NOW.isoformat()}
    return StandingFinding(reason, **known | changes)


def after(standing: Standing, look: Look, *findings: Finding) -> list[StandingFinding]:
    return standing.following(findings, look, LATER)


@each_of("reason", [reason for reason in Reason if reason.severity == "error"])
def test_is_seen_by(reason: Reason) -> None:
    """Everything must be looked at, by whoever can find such a thing; else it goes on standing."""
    for whole, deep, kafka, witness, named in product((False, True), repeat=5):
        look = Look(whole, deep, kafka, witness, generation=2)
        found = one(reason, more=0 if named else 3)
        can = (
            whole
            and (kafka or reason not in OF_KAFKA)
            and (witness or reason not in OF_WITNESS)
            # The file whose bytes differ is named: they are read again.
            and (deep or named or reason not in OF_BYTES)
        )

        assert found.is_seen_by(look) == can


@pytest.mark.parametrize(
    ("generation", "open_now", "seen"),
    [(2, 2, True), (2, 3, False), (2, None, False), (None, 2, False), (None, None, False)],
)
def test_is_seen_by_narrow_look(generation: int | None, open_now: int | None, seen: bool) -> None:
    """What was found in the open generation is seen there, while it is the open one."""
    found = one(Reason.FILE_MISSING, generation=generation)

    assert found.is_seen_by(replace(HOURLY, generation=open_now)) == seen
    assert Standing([found]).needs_whole(open_now) != seen


@each_of("reason", [r for r in Reason if r.severity == "error" and r is not Reason.KEY_UNAVAILABLE])
def test_following_found(reason: Reason) -> None:
    """What is found stands, once, and since when it was found first."""
    finding = Finding(reason, FILE, "seen")
    first = Standing(tuple(Standing().following([finding], WIDEST, NOW)))

    assert [(f.reason, f.where, f.detail) for f in first.findings] == [(reason, FILE, "seen")]
    assert after(first, WIDEST, finding) == list(first.findings)
    assert after(first, WIDEST) == []
    assert Standing.of(overview(standing=[f.to_dict() for f in first.findings]), "made") == first


def test_following_harmless() -> None:
    """Neither a warning stands nor a key that one validation lacked."""
    warning = Finding(Reason.FILE_ORPHAN, FILE, "")
    locked = Finding(Reason.KEY_UNAVAILABLE, FILE, "")
    assert KEYS == FOLDER

    assert after(Standing(), WIDEST, warning, locked) == []


@pytest.mark.parametrize(
    ("found", "look", "generation"),
    [
        ([Finding(Reason.FILE_MISSING, OWN_FILE, "")], HOURLY, 2),
        ([Finding(Reason.OFFSET_MISSING, P0, "")], HOURLY, 2),
        ([Finding(Reason.OFFSET_MISSING, P0, "")], WIDEST, None),
        ([Finding(Reason.FILE_MISSING, FILE, "")], HOURLY, None),
        ([Finding(Reason.FILE_MISSING, "windows/w/data/part", "")], HOURLY, None),
        ([Finding(Reason.FILE_MISSING, "generations/00020/part", "")], HOURLY, None),
        # These may be the offsets of the window's file.
        (
            [Finding(Reason.OFFSET_MISSING, P0, ""), Finding(Reason.FILE_MISSING, "windows/w", "")],
            HOURLY,
            None,
        ),
    ],
)
def test_following_where_to_look(found: list[Finding], look: Look, generation: int | None) -> None:
    """Only what a look at the open generation has found there needs no other one."""
    assert {each.generation for each in after(Standing(), look, *found)} == {generation}


def test_following_many() -> None:
    """Of very many, some are named; that there are more stands until all bytes are read."""
    many = [Finding(Reason.FILE_CHANGED, f"part-{n}", "") for n in range(NAMED + 34)]

    found = after(Standing(), WIDEST, *many, Finding(Reason.FILE_SIZE, FILE, ""))

    assert len(found) == NAMED + 2
    assert [each.more for each in found if each.more] == [33]
    standing = Standing(found)
    mended = replace(WIDEST, deep=False)
    assert after(standing, mended) == [each for each in found if each.more]
    # The first of those that aren't named is looked at like a named one, the others aren't.
    again = after(standing, mended, many[NAMED])
    assert [(each.where, each.more) for each in again] == [
        (many[NAMED].where, 0),
        (many[NAMED].where, 33),
    ]
    assert after(standing, WIDEST) == []


def overview(**keys: Any) -> dict[str, Any]:
    known = {"pipeline": "made", "verdict": "findings", "report": "reports/r.json"}
    return known | {"validated_at": NOW.isoformat(), "findings": {}} | keys


@pytest.mark.parametrize(
    "told",
    [
        overview(pipeline="other", standing=[]),
        overview(standing=[one().to_dict() | {"reason": "of_another_release"}]),
        overview(findings={"of_another_release": 1}),
    ],
)
def test_standing_unknown(told: dict[str, Any]) -> None:
    """Where it can't be told what stands, everything is looked at."""
    standing = Standing.of(told, "made")

    assert not standing.is_known
    assert standing.needs_whole(2)


def test_standing_of_later_release() -> None:
    """A release that writes more of each is understood by what is known here."""
    rows = [{**one().to_dict(), "new": 1}]

    assert Standing.of(overview(standing=rows), "made") == Standing((one(),))


def test_standing_of_earlier_release() -> None:
    """A release that only counted its findings leaves something to look for."""
    found = {"file_changed": 2, "file_missing": 1, "file_orphan": 3}
    standing = Standing.of(overview(findings=found), "made")

    assert [(f.reason, f.more) for f in standing.findings] == [
        (Reason.FILE_CHANGED, 2),
        (Reason.FILE_MISSING, 1),
    ]
    assert standing.needs_whole(2)
    assert [f.reason for f in after(standing, replace(WIDEST, deep=False))] == [Reason.FILE_CHANGED]
    complete = overview(verdict="complete", findings={"file_orphan": 3})
    assert Standing.of(complete, "made") == Standing.of(None, "made") == Standing()


# Validations


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive of two generations with a file each."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"})
    made.seal({P0: dense(0, 5)})
    made.open_generation()
    made.start_at({P0: 5})
    made.seal({P0: dense(5, 9)})
    return made


def validated(made: MadeArchive, **how: Any) -> Report:
    """Validate, and note the outcome."""
    report = validate_archive(made.archive, None, **how)
    note_overview(made.archive, report, "reports/r.json")
    return report


def reasons(report: Report) -> set[Reason]:
    return {finding.reason for finding in errors(report.all_findings)}


def test_validate_damage_in_closed_generation(made: MadeArchive) -> None:
    """What a deep validation found in a closed generation is looked at each time until mended."""
    before = reasons(validated(made, scope="open"))
    path = Path(str(made.root / made.files()[0].path))
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(8) + content[-32:])
    assert Reason.FILE_CHANGED not in reasons(validated(made))
    assert Reason.FILE_CHANGED in reasons(validated(made, deep=True))

    for how in ({"scope": "open"}, {"scope": "all"}, {"scope": "open"}):
        assert Reason.FILE_CHANGED in reasons(validated(made, **how))

    path.write_bytes(content)
    report = validated(made, scope="open")
    assert (report.scope, report.deep, reasons(report)) == ("all", False, before)
    assert validated(made, scope="open").scope == ("all" if before else "open")


def test_validate_without_kafka(made: MadeArchive) -> None:
    """What only Kafka tells stands where it isn't asked, and is said again."""
    report = validated(made)
    report.findings = [Finding(Reason.LOG_REWRITTEN, P0, "rewritten at 7")]
    assert report.look is not None
    report.look = replace(report.look, kafka=True)
    note_overview(made.archive, report, "reports/r.json")

    again = validated(made)

    assert not again.complete
    assert "log_rewritten" in again.summary()["reasons"]
    [said] = [f for f in again.all_findings if f.reason == Reason.LOG_REWRITTEN]
    assert "rewritten at 7; found " in said.detail
    assert said.detail.endswith("and not looked at since: Kafka wasn't asked")
    assert said not in again.findings
    noted = read_overview(made.root)
    assert noted is not None
    assert [row["detail"] for row in noted["standing"] if row["reason"] == "log_rewritten"] == [
        "rewritten at 7"
    ]


def test_validate_found_again_without_kafka(tmp_path: Path) -> None:
    """What only Kafka mends, and is found without it too, is one finding, however often."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"})

    for _ in range(3):
        report = validated(made)

        assert report.summary()["reasons"] == {"nothing_drained": 1}
        noted = read_overview(made.root)
        assert noted is not None
        assert noted["findings"] == {"nothing_drained": 1}
        assert [row["reason"] for row in noted["standing"]] == ["nothing_drained"]


@pytest.mark.parametrize("in_window", [False, True])
def test_validate_content_without_key(
    in_window: bool, made: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that differ from Spark's stand while the key to compare them is missing."""
    read_all, sealed = committed_file.read_all, "00000000000000aa"
    if in_window:
        [file] = made.seal_window("repair_1", {P0: dense(20, 25)})
        where = "windows/repair_1/receipt.json"
        sealed = str(made.archive.snapshot().folders["repair_1"].receipt.fingerprint)
    else:
        [file] = made.seal({P0: dense(9, 12)}, fingerprint=sealed)
        where = "generations/0002/receipts/000000000001.json"
    made.open_generation()
    made.start_at({P0: 12})

    def holding(fingerprint: str | None, locked: str = "") -> None:
        def read(path: Any, *how: Any) -> Any:
            found = read_all(path, *how)
            if not str(path).endswith(file.path):
                return found
            return found._replace(fingerprint=fingerprint, locked=locked)

        monkeypatch.setattr(committed_file, "read_all", read)

    holding("00000000000000bb")
    assert where in changed(validated(made, deep=True))
    holding(None, locked="key k isn't there")
    for how in ({"scope": "open"}, {"scope": "open"}, {"deep": True}, {"scope": "open"}):
        report = validated(made, **how)
        assert where in changed(report)
        assert Reason.KEY_UNAVAILABLE in reasons(report)
    holding(sealed)
    report = validated(made, scope="open")
    assert changed(report) == []
    assert Reason.KEY_UNAVAILABLE not in reasons(report)


def test_validate_damaged_key(tmp_path: Path) -> None:
    """A data key's damaged document stands until it is restored, unlike a key that is missing."""
    archive, cluster = sealed_copy(tmp_path / "archive"), golden_cluster()
    path = tmp_path / "archive" / FOLDER / f"{'0' * 16}.0001.json"
    path.parent.mkdir()
    path.write_text("{")

    def found(**how: Any) -> list[Reason]:
        report = validate_archive(archive, cluster, **how)  # type: ignore[arg-type]
        note_overview(archive, report, "reports/r.json")
        return [finding.reason for finding in errors(report.all_findings)]

    for how in ({"scope": "all"}, {"scope": "open"}, {"scope": "open"}):
        assert found(**how) == [Reason.KEY_UNAVAILABLE]
    path.unlink()
    assert found(scope="open") == []


def changed(report: Report) -> list[str]:
    return [f.where for f in report.all_findings if f.reason == Reason.CONTENT_CHANGED]


def test_validate_meanwhile(made: MadeArchive) -> None:
    """What another validation found while this one ran isn't forgotten."""
    hourly = validate_archive(made.archive, None, scope="open")
    path = Path(str(made.root / made.files()[0].path))
    path.write_bytes(path.read_bytes()[:-40] + bytes(8) + path.read_bytes()[-32:])
    validated(made, deep=True)

    note_overview(made.archive, hourly, "reports/r.json")

    assert Reason.FILE_CHANGED in reasons(validated(made, scope="open"))


@pytest.mark.parametrize("hourly", ["open", "all"])
def test_overview_meanwhile(hourly: Any, tmp_path: Path) -> None:
    """Nor is the overview green after it: status, pages and metrics read nothing else."""
    archive = sealed_copy(tmp_path / "archive")
    green = validate_archive(archive, golden_cluster(), scope=hourly)
    path = sorted((tmp_path / "archive").glob("generations/*/data/**/part-*"))[0]
    path.write_bytes(path.read_bytes()[:-40] + bytes(8) + path.read_bytes()[-32:])
    deep = validate_archive(archive, None, deep=True)
    assert green.complete
    assert not deep.complete

    note_overview(archive, deep, "reports/deep.json")
    for _ in range(2):
        told = note_overview(archive, green, "reports/green.json")

        assert told["verdict"] == "findings"
        assert told["findings"] == summary(errors(deep.all_findings))
        assert "file_changed" in told["findings"]
        assert told == read_overview(archive.root)


def test_validate_signed_without_witness(tmp_path: Path) -> None:
    """Whoever only signs has compared no witness: what it contradicts goes on standing."""
    archive = sealed_copy(tmp_path / "archive")
    report = validate_archive(archive, golden_cluster())
    report.findings = [Finding(Reason.WITNESS_DIFFERS, "journal/000000000001.json", "is missing")]
    assert report.look is not None
    report.look = replace(report.look, witness=True)
    note_overview(archive, report, "reports/r.json")

    for signer in (None, Signer(SigningKey.create(tmp_path / "key"))):
        again = validate_archive(archive, golden_cluster(), signer=signer)

        assert reasons(again) == {Reason.WITNESS_DIFFERS}
        assert note_overview(archive, again, "reports/r.json")["verdict"] == "findings"


def test_validate_damaged_overview(made: MadeArchive) -> None:
    """Where the overview can't be read, everything is looked at, once."""
    path = Path(str(made.root / "overview.json"))
    validated(made)
    for content in ("{", json.dumps({})):
        path.write_text(content)

        assert validated(made, scope="open").scope == "all"
