"""A document of each kind, as release 0.2 wrote it, is read, and written again byte by byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from upath import UPath

from kafka_drain.archive.cluster_documents import parse_moment, parse_settings, settings_bytes
from kafka_drain.archive.documents import (
    ArchiveDocument,
    ChainHeadDocument,
    CutOverDocument,
    Document,
    DrillDocument,
    DrillStarted,
    ErasureDocument,
    ErasureLiftedDocument,
    GenerationDocument,
    HeadDocument,
    IdentityDocument,
    ObservedDocument,
    OverviewDocument,
    ReadFromDocument,
    RegistryDocument,
    ReportDocument,
    ReprocessDocument,
    SchemaMapDocument,
    SchemasDocument,
    ToldDocument,
    ToldWindowDocument,
    TopicsDocument,
    WindowPlan,
    WitnessDocument,
)
from kafka_drain.archive.erasures import parse_done
from kafka_drain.archive.frozen_plan import FrozenPlan
from kafka_drain.archive.generation_summary import parse_summary
from kafka_drain.archive.index import parse_index
from kafka_drain.archive.journal.entries import parse_entry
from kafka_drain.archive.receipts import parse_receipt
from kafka_drain.archive.schema_seals import parse_schema_seal
from kafka_drain.archive.scrubs import ScrubDocument
from kafka_drain.cursor import CursorDocument
from kafka_drain.encryption.data_keys import VERSION, parse_key
from kafka_drain.evidence.envelope import Envelope
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.planning.documents import (
    AbandonedJson,
    ClaimJson,
    DecisionJson,
    OpenedJson,
    ReceiptJson,
    parse_sealed,
)
from kafka_drain.republish.planning.documents import parse as parse_note
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.verifying.offset_map import OffsetMap
from kafka_drain.spark.run_folder import ProgressDocument, RunDocument
from kafka_drain.storage.lease import LeaseDocument
from kafka_drain.storage.sealed_json import seal
from kafka_drain.storage.typed_json import Row, parse
from tests.tables import each_of

DATA = Path(__file__).parent / "data" / "documents"
SCHEMAS = Path(__file__).parents[1] / "docs" / "format"

Again = Callable[[bytes, Path], bytes]


def in_lines(document: Mapping[str, Any]) -> bytes:
    """Return the form that documents have which aren't sealed."""
    return (json.dumps(document, indent=2) + "\n").encode()


def document(kind: type[Document]) -> Again:
    """Return how a document that isn't sealed is read and written."""
    return lambda content, _: in_lines(kind.parse(UPath("a document"), content).content())


def row(kind: type[Row]) -> Again:
    """Return how a document of a run's two sides is read and written."""
    return lambda content, _: in_lines(parse(kind, content).content())


def typed(kind: Any) -> Again:
    """Return how a note of a republish is read and written."""
    return lambda content, _: in_lines(parse_note(kind, content))


def group_record(content: bytes, folder: Path) -> bytes:
    """Read a group's record from a run's folder, which is the only way to read one."""
    group = json.loads(content)["group"]
    name = f"{group.replace('/', '%2F')}-20260101T000000000000Z.json"
    (folder / "groups").mkdir()
    (folder / "groups" / name).write_bytes(content)
    [record] = GroupRecords(UPath(folder), group).all()
    return in_lines(record.to_dict())


def as_json(content: bytes, _: Path) -> bytes:
    """Write what no type stands for: only the form is compared."""
    return in_lines(json.loads(content))


def data_key(content: bytes, _: Path) -> bytes:
    """Read a data key; its version isn't among what is read."""
    return in_lines({"format_version": VERSION, **parse_key(UPath("a key"), content)})


def without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was sealed."""
    return {name: value for name, value in document.items() if name != "sha256"}


#: How a document of each schema is read and written.
KINDS: Mapping[str, Again] = {
    "archive": document(ArchiveDocument),
    "cluster-head": document(ChainHeadDocument),
    "cluster-moment": lambda content, _: parse_moment(content).to_bytes(),
    "cluster-settings": lambda content, _: settings_bytes(parse_settings(content)[1]),
    "cursor": document(CursorDocument),
    "cut-over-step": document(CutOverDocument),
    "data-key": data_key,
    "drill-result": document(DrillDocument),
    "drill-started": document(DrillStarted),
    "erasure": document(ErasureDocument),
    "erasure-done": lambda content, _: parse_done(UPath("a document"), content).to_bytes(),
    "erasure-lifted": document(ErasureLiftedDocument),
    "evidence": lambda content, _: Envelope.parse(content).to_bytes(),
    "fingerprint": as_json,
    "frozen-plan": lambda content, _: FrozenPlan.parse(content).to_bytes(),
    "frozen-plan-note": as_json,
    "generation": document(GenerationDocument),
    "group-applied": as_json,
    "group-record": group_record,
    "group-undone": as_json,
    "identity": document(IdentityDocument),
    "index": lambda content, _: parse_index(content).to_bytes(),
    "journal-entry": lambda content, _: parse_entry(content).to_bytes(),
    "journal-head": document(HeadDocument),
    "lease": row(LeaseDocument),
    "observed": document(ObservedDocument),
    "offset-map": lambda content, _: OffsetMap.parse(content).to_bytes(),
    "opening-claim": typed(ClaimJson),
    "opening-decision": typed(DecisionJson),
    "overview": document(OverviewDocument),
    "read-from": document(ReadFromDocument),
    "receipt": lambda content, _: parse_receipt(content).to_bytes(),
    "registry": document(RegistryDocument),
    "report": document(ReportDocument),
    "reprocess": document(ReprocessDocument),
    "republish-abandoned": typed(AbandonedJson),
    "republish-opened": typed(OpenedJson),
    "republish-plan": lambda content, _: RepublishPlan.parse(content).to_bytes(),
    "republish-receipt": lambda content, _: seal(without_seal(parse_sealed(ReceiptJson, content))),
    "run": row(RunDocument),
    "run-progress": row(ProgressDocument),
    "schema-map": document(SchemaMapDocument),
    "schema-seal": lambda content, _: parse_schema_seal(content).to_bytes(),
    "schema-seal-head": document(ChainHeadDocument),
    "schemas": document(SchemasDocument),
    "scrub": document(ScrubDocument),
    "summary": lambda content, _: parse_summary(content).to_bytes(),
    "told-generations": document(ToldDocument),
    "told-window": document(ToldWindowDocument),
    "topics": document(TopicsDocument),
    "window-plan": document(WindowPlan),
    "witness-note": document(WitnessDocument),
}
FILES = sorted(DATA.iterdir())


def kind_of(path: Path) -> str:
    """Return the schema of a document, by its name."""
    return path.name.partition(".")[0]


def test_documents_of_each_schema() -> None:
    """There are documents of all kinds, and several of those that take several forms."""
    found = Counter(map(kind_of, FILES))

    assert set(found) == set(KINDS) == {path.name.partition(".")[0] for path in SCHEMAS.iterdir()}
    assert min(found[kind] for kind in ("receipt", "journal-entry", "window-plan")) > 4


@each_of("path", FILES)
def test_document_written_again(path: Path, tmp_path: Path) -> None:
    """A document that is read and written again has the bytes that it had."""
    content = path.read_bytes()

    assert KINDS[kind_of(path)](content, tmp_path) == content
