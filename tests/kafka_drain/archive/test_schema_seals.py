"""Seals of kept schemas: what is sealed when, and what validation finds afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import RegistryDocument, SchemasDocument
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.schema_seals import (
    SEALS,
    SchemaKey,
    SchemaSeal,
    accept_schemas,
    check_schemas,
    judge_seal,
    parse_schema_seal,
    registry_digests,
    renewed,
    schemas_digests,
    seal_schemas,
)
from kafka_drain.archive.sealed_chain import SealedChain
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import golden_cluster, golden_copy
from tests.tables import each_of

AT = "2026-01-01T00:00:00.000+00:00"
KEY = SchemaKey(document="registry.json", subject="t-value", version=1)


def version(number: int, text: str = '"long"') -> dict[str, Any]:
    return {"version": number, "id": number + 6, "type": "AVRO", "schema": text, "deleted": False}


def registry(*versions: dict[str, Any], mode: str | None = None) -> dict[str, Any]:
    subject = {"name": "t-value", "compatibility": "FULL", "mode": mode, "versions": [*versions]}
    kept = {"url": "http://r", "captured_at": AT, "compatibility": "BACKWARD", "mode": "READWRITE"}
    more = {"subjects": [subject], "seen": [], "read": {}, "notes": []}
    return {"format_version": 1, **kept, **more}


def schemas(*ids: int) -> dict[str, Any]:
    return {"schemas": [{"id": id_, "schema": "long", "subject": None} for id_ in ids]}


def write(root: Path, name: str, document: Any) -> None:
    (root / name).write_text(json.dumps(document))


def kept(root: Path) -> dict[SchemaKey, str]:
    """The hashes of what an archive keeps now."""
    found = registry_digests(RegistryDocument.read(UPath(root / "registry.json")))
    return found | schemas_digests(SchemasDocument.read(UPath(root / "schemas.json")))


def keep(root: Path, *versions: dict[str, Any], mode: str | None = None) -> bool:
    """Keep schemas as a capture does, and seal them."""
    before = kept(root) if (root / "registry.json").exists() else {}
    write(root, "registry.json", registry(*versions, mode=mode))
    write(root, "schemas.json", schemas(7, 8))
    return seal_schemas(UPath(root), before, kept(root), at=AT)


def check(root: Path, named: dict[int, str] | None = None, whole: bool = True) -> list[Finding]:
    return check_schemas(UPath(root), named or {}, SEALS.newest(UPath(root)), whole=whole)


@each_of("sealed, before, now", [*product((None, "a"), (None, "a", "x"), (None, "a", "b", "x"))])
def test_renewed(sealed: str | None, before: str | None, now: str | None) -> None:
    """A new schema is sealed; a sealed one changes only if the run found it intact."""

    def digests(one: str | None) -> dict[SchemaKey, str]:
        return {} if one is None else {KEY: one}

    found = renewed(digests(sealed), digests(before), digests(now)).get(KEY)

    if sealed is None or (before == sealed and now is not None):
        assert found == now
    else:
        assert found == sealed


def test_seal_schemas(tmp_path: Path) -> None:
    """A link is written only if what is kept has changed; it holds everything, and continues."""
    root = UPath(tmp_path)

    assert keep(tmp_path, version(1))
    assert keep(tmp_path, version(1))
    assert keep(tmp_path, version(1), version(2))
    assert keep(tmp_path, version(1), version(2), mode="READONLY")

    links = list(SEALS.links(root))
    assert [link.number for link in links] == [3, 2, 1]
    assert [link.previous for link in links] == [links[1].sha256, links[2].sha256, None]
    assert dict(links[0].schemas) == kept(tmp_path)
    assert [len(link.schemas) for link in links] == [6, 6, 5]
    assert check(tmp_path) == []


def test_seal_schemas_nothing(tmp_path: Path) -> None:
    """An archive that keeps no schema has no seal."""
    assert seal_schemas(UPath(tmp_path), {}, {}, at=AT)
    assert list(tmp_path.iterdir()) == []
    assert check(tmp_path) == []


def test_schemas_without_seal(tmp_path: Path) -> None:
    """Schemas that an older release kept are sealed by the next run, and are no finding before."""
    write(tmp_path, "registry.json", registry(version(1)))
    write(tmp_path, "schemas.json", schemas(7, 8))

    assert check(tmp_path) == []
    assert keep(tmp_path, version(1))
    assert dict(next(SEALS.links(UPath(tmp_path))).schemas) == kept(tmp_path)


def edit_text(root: Path) -> None:
    write(root, "registry.json", registry(version(1, '"int"'), version(2)))


def edit_mode(root: Path) -> None:
    write(root, "registry.json", registry(version(1), version(2), mode="IMPORT"))


def edit_registry(root: Path) -> None:
    path = root / "registry.json"
    path.write_text(path.read_text().replace("BACKWARD", "NONE"))


def drop_version(root: Path) -> None:
    write(root, "registry.json", registry(version(1)))


def drop_registry(root: Path) -> None:
    (root / "registry.json").unlink()


def cut_registry(root: Path) -> None:
    path = root / "registry.json"
    path.write_bytes(path.read_bytes()[:40])


def drop_schema(root: Path) -> None:
    write(root, "schemas.json", schemas(8))


def edit_schema(root: Path) -> None:
    path = root / "schemas.json"
    path.write_text(path.read_text().replace('"long"', '"int"', 1))


DAMAGES = [
    (edit_text, "registry.json", "version 1 of t-value: changed"),
    (edit_mode, "registry.json", "the settings of t-value: changed"),
    (edit_registry, "registry.json", "the settings of the registry: changed"),
    (drop_version, "registry.json", "version 2 of t-value: missing"),
    (drop_registry, "registry.json", "is missing"),
    (cut_registry, "registry.json", "isn't JSON"),
    (drop_schema, "schemas.json", "schema 7: missing"),
    (edit_schema, "schemas.json", "schema 7: changed"),
]


@pytest.mark.parametrize(("harm", "where", "words"), DAMAGES)
def test_validation_finds_changed_schema(
    harm: Callable[[Path], None], where: str, words: str, tmp_path: Path
) -> None:
    """Each kept schema that is changed or gone is found, twice, and nothing else is blamed."""
    archive = golden_copy(tmp_path / "archive")
    root = tmp_path / "archive"
    keep(root, version(1), version(2))
    assert validate(archive).findings == []
    harm(root)

    for scope in ("open", "all"):
        findings = validate(archive, scope=scope).findings

        assert [(f.reason, f.subject) for f in findings] == [(Reason.SCHEMA_CHANGED, where)]
        assert findings[0].detail.startswith(words)
        # What to do is the finding's own.
        assert ";" not in findings[0].detail


def validate(archive: Archive, **options: Any) -> Report:
    return validate_archive(archive, golden_cluster(), **options)


def receipts(archive: Archive) -> list[Receipt]:
    return [*archive.generation(1).receipts()]


def test_validation_names_the_seal(tmp_path: Path) -> None:
    """Receipts name the newest seal, and changed schemas don't stop the sealing of records."""
    archive = golden_copy(tmp_path / "archive")
    keep(tmp_path / "archive", version(1))
    edit_text(tmp_path / "archive")

    report = validate(archive)

    assert report.receipts_written == len(receipts(archive)) > 0
    assert {receipt.schemas for receipt in receipts(archive)} == {SEALS.newest(archive.root)}
    assert [f.reason for f in report.findings] == [Reason.SCHEMA_CHANGED]


def test_validation_without_schemas(tmp_path: Path) -> None:
    """Receipts of an archive without schemas don't have the key, as before."""
    archive = golden_copy(tmp_path / "archive")

    validate(archive)

    assert {receipt.schemas for receipt in receipts(archive)} == {None}
    assert all(b'"schemas"' not in receipt.to_bytes() for receipt in receipts(archive))


@pytest.mark.parametrize("again", [False, True])
def test_damage_stays_sealed(again: bool, tmp_path: Path) -> None:
    """A run that keeps more schemas doesn't seal what was damaged before; restored, it's sound."""
    keep(tmp_path, version(1), version(2))
    edit_text(tmp_path)
    if again:
        keep(tmp_path, version(1, '"int"'), version(2), version(3))

    assert [f.reason for f in check(tmp_path)] == [Reason.SCHEMA_CHANGED]
    write(tmp_path, "registry.json", registry(version(1), version(2), version(3)))
    assert check(tmp_path) == []


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"t-value", b"u-value", 1))


def reseal(path: Path) -> None:
    """Forget a schema, with a hash that is right."""
    seal = parse_schema_seal(path.read_bytes())
    path.write_bytes(replace(seal, rows=seal.rows[1:]).to_bytes())


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("harm", [remove, cut, edit, reseal])
def test_check_schemas_seal_damaged(
    harm: Callable[[Path], None], number: int, tmp_path: Path
) -> None:
    """A damaged seal is found, twice; the newest one is an error, as nothing can be compared."""
    keep(tmp_path, version(1))
    keep(tmp_path, version(1), version(2))
    where = SEALS.where(number)
    harm(tmp_path / where)

    for _ in range(2):
        [found] = check(tmp_path)
        assert (found.reason, found.subject) == (judge_seal(is_newest=number == 2), where)
        assert found.detail.startswith("is missing" if harm is remove else "was changed: ")
    # No run hides it by sealing what is there.
    assert keep(tmp_path, version(1), version(2), version(3)) == (number == 1)
    assert judge_seal(is_newest=number == 2) in {f.reason for f in check(tmp_path)}


def test_check_schemas_end_gone(tmp_path: Path) -> None:
    """If the newest seals and the head are gone, a receipt still names one of them."""
    keep(tmp_path, version(1))
    keep(tmp_path, version(1), version(2))
    second = SEALS.newest(UPath(tmp_path))
    assert second is not None
    (tmp_path / SEALS.where(2)).unlink()
    (tmp_path / "schema-seals.json").unlink()

    found = check(tmp_path, {2: second.sha256}, whole=False)

    assert [(f.reason, f.subject) for f in found] == [(Reason.SCHEMA_SEAL_LOST, SEALS.where(2))]


@pytest.mark.parametrize("is_newest", [False, True])
def test_judge_seal(is_newest: bool) -> None:
    """Only the newest seal is needed: it holds everything."""
    reason = judge_seal(is_newest=is_newest)

    assert (reason.value, reason.severity) == (
        ("schema_seal_lost", "error") if is_newest else ("schema_seal_damaged", "warning")
    )


@pytest.mark.parametrize(
    ("harm", "left"),
    [
        (edit_schema, []),
        (edit_text, []),
        (drop_version, []),
        (drop_registry, []),
        (lambda root: remove(root / SEALS.where(2)), [Reason.SCHEMA_SEAL_DAMAGED]),
        (lambda root: edit(root / SEALS.where(2)), [Reason.SCHEMA_SEAL_DAMAGED]),
    ],
)
def test_accept_schemas(harm: Callable[[Path], None], left: list[Reason], tmp_path: Path) -> None:
    """What can't be restored can be accepted; a seal that is gone is still noted."""
    keep(tmp_path, version(1))
    keep(tmp_path, version(1), version(2))
    harm(tmp_path)

    accept_schemas(UPath(tmp_path), at=AT)

    assert [f.reason for f in check(tmp_path)] == left
    newest = SEALS.newest(UPath(tmp_path))
    if harm is not drop_registry:
        assert dict(next(SEALS.links(UPath(tmp_path))).schemas) == kept(tmp_path)
    accept_schemas(UPath(tmp_path), at=AT)
    assert SEALS.newest(UPath(tmp_path)) == newest


def test_seal_as_documented(tmp_path: Path) -> None:
    """The hashes are those that the format's description tells others to compute."""

    def canonical(value: Any) -> str:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    keep(tmp_path, version(1))
    document = json.loads((tmp_path / SEALS.where(1)).read_bytes())
    own = {"compatibility": "BACKWARD", "mode": "READWRITE"}
    subject = {"compatibility": "FULL", "mode": None}

    assert document["sealed_at"] == AT
    found = [tuple(row.values()) for row in document["schemas"]]
    assert set(found) == {
        ("registry.json", None, None, None, canonical(own)),
        ("registry.json", "t-value", None, None, canonical(subject)),
        ("registry.json", "t-value", 1, None, canonical(version(1))),
        ("schemas.json", None, None, 7, canonical(schemas(7)["schemas"][0])),
        ("schemas.json", None, None, 8, canonical(schemas(8)["schemas"][0])),
    }
    assert next(SEALS.links(UPath(tmp_path))).sealed_at == AT


@pytest.mark.parametrize(("number", "more"), [(5, ""), (6, ", and 1 more")])
def test_check_schemas_many(number: int, more: str, tmp_path: Path) -> None:
    """A finding names the first five."""
    keep(tmp_path, *map(version, range(1, number + 1)))
    write(tmp_path, "registry.json", registry())

    [found] = check(tmp_path)

    named = ", ".join(f"version {n} of t-value: missing" for n in range(1, 6))
    assert found.detail == named + more


@pytest.mark.parametrize("value", [b"", b"{}", b"[]\n"])
def test_parse_schema_seal_other(value: bytes) -> None:
    """Bytes that were never sealed are refused."""
    with pytest.raises(ValueError, match=r"^a seal of schemas is damaged: .*restore it from a co"):
        parse_schema_seal(value)


def test_seal_same_bytes() -> None:
    """The order in which schemas were found doesn't matter."""
    keys = [replace(KEY, version=number) for number in (1, 2)] + [SchemaKey(document="a", id=3)]
    seals = [SchemaSeal.of(1, None, AT, dict.fromkeys(order, "x")) for order in permutations(keys)]

    assert len({seal.to_bytes() for seal in seals}) == 1


@pytest.mark.parametrize(
    "seal",
    [
        lambda root: seal_schemas(root, {}, {KEY: "x"}, at=AT),
        lambda root: accept_schemas(root, at=AT),
    ],
)
def test_seal_schemas_busy(
    seal: Callable[[UPath], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If other runs are always faster, the error names the chain."""
    monkeypatch.setattr(SealedChain, "append", lambda *_: False)
    write(tmp_path, "schemas.json", schemas(7))

    with pytest.raises(ArchiveError) as busy:
        seal(UPath(tmp_path))

    said = "schema-seals: 100 other runs sealed schemas; try again"
    assert str(busy.value) == f"{tmp_path}/{said}"


def test_accept_schemas_no_folder(tmp_path: Path) -> None:
    """Where there is no archive, nothing is accepted or created."""
    path = tmp_path / "file"
    path.write_text("")

    accept_schemas(UPath(path), at=AT)

    assert check(path) == []
    assert list(tmp_path.iterdir()) == [path]
