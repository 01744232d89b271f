"""The archive's format is what docs/format.md and its JSON Schemas say."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter
from upath import UPath

from kafka_drain.archive import cluster_documents, generation_summary, index, receipts, schema_seals
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import read_closed
from kafka_drain.archive.cluster_documents import parse_moment, parse_settings
from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.archive.copies import keep_copies
from kafka_drain.archive.cut_overs import write_step
from kafka_drain.archive.documents import (
    ArchiveDocument,
    ChainHeadDocument,
    CutOverDocument,
    DrillDocument,
    DrillStarted,
    ErasureDocument,
    ErasureDoneDocument,
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
from kafka_drain.archive.drills import write_result, write_started
from kafka_drain.archive.erasures import next_erasure, parse_done
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.format import ERASED_VERSION
from kafka_drain.archive.frozen_plans import carrying_out
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.generation_summary import parse_summary
from kafka_drain.archive.index_files import make_index, write_index
from kafka_drain.archive.journal import entries
from kafka_drain.archive.journal.entries import Noted, parse_entry
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import KafkaBounds, parse_receipt
from kafka_drain.archive.schema_seals import parse_schema_seal
from kafka_drain.archive.scrubs import ScrubDocument
from kafka_drain.archive.segment_overlaps import Hole
from kafka_drain.archive.soundness import note_of_holes
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.archive.watermarks import observe, write_observations
from kafka_drain.clock import now_text
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cursor import CursorDocument, acknowledge, take
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.data_keys import file_name, parse_key, wrapped_document
from kafka_drain.encryption.kms import FILE_VARIABLE
from kafka_drain.errors import ArchiveError, KafkaDrainError
from kafka_drain.events import begin_publication, note_windows
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer, sign, tell_witness
from kafka_drain.evidence.witness import WitnessFile
from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason
from kafka_drain.kafka.consumer_groups import Committed
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.maintenance import compact as compacting
from kafka_drain.maintenance.approved import freeze_maintenance
from kafka_drain.maintenance.compact import plan_compactions
from kafka_drain.maintenance.erasure_plan import plan_rewrites
from kafka_drain.maintenance.erasure_request import ErasureRequest, scope_of
from kafka_drain.maintenance.retention import plan_deletions, seal_deletions
from kafka_drain.maintenance.scrub import scrub
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.erased_records import FoundRecords
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.topic_ids import ReadFrom, write_read_from
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.approved import freeze_republish
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.changing.function import find_function
from kafka_drain.republish.changing.masks import key_id
from kafka_drain.republish.changing.spec import ChangeSpec
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.translation import Contribution, TranslationPlan
from kafka_drain.republish.planning.openings import claim_opening
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.run import Republish, plan_republish
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap
from kafka_drain.schemas.capture import capture_schemas
from kafka_drain.schemas.decoding import ValuePlan, plan_values
from kafka_drain.schemas.registry import SchemaRegistry, WriterSchema
from kafka_drain.schemas.restore import SchemaRestore
from kafka_drain.spark.run_folder import RunDocument, RunFolder, job_key
from kafka_drain.storage import lease
from kafka_drain.storage.immutability import Immutability
from kafka_drain.storage.json_files import create_document
from kafka_drain.storage.lease import FoundLease, LeaseDocument, find_lease, hold_lease
from kafka_drain.storage.lease_store import NumberedFiles
from kafka_drain.storage.sealed_json import seal as seal_document
from kafka_drain.windows import window_jobs
from kafka_drain.windows.reprocess.approved import freeze_reprocess
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import open_reprocess, plan_reprocess, prepare_group
from scripts.reference import documents as documents_page
from tests.documentation.blocks import ROOT
from tests.fake_registry import fake_registry
from tests.kafka_drain.archive.test_cut_overs import step
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.cluster_states import CLUSTER
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.golden import (
    END,
    NOON,
    P0,
    P1,
    add_batch,
    golden_cluster,
    golden_copy,
    note_batch,
    open_next,
    row,
    seal,
    seal_repair,
    sealed_copy,
)
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.maintenance.test_compact import TARGET, compacted, finish
from tests.kafka_drain.republish.changing import user_functions as functions
from tests.kafka_drain.windows.test_backfill import Backfilled
from tests.tables import each_of

FOLDER = ROOT / "docs" / "format"
PAGE = (ROOT / "docs" / "format.md").read_text()
SCHEMAS: Mapping[str, dict[str, Any]] = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text())
    for path in sorted(FOLDER.iterdir())
}

_BATCH = r"\d{12}"
_PLAN = r"plans/(republish|reprocess|maintain|erase)-\d{8}T\d{6}Z-[0-9a-f]{16}"
_GROUP = r"republish/[^/]+/groups/[^/]+-\d{8}T\d{12}Z"
#: Which schema a document has, by its path in the archive.
PATTERNS: Mapping[str, str] = {
    r"archive\.json": "archive",
    r"identity\.json": "identity",
    r"schemas\.json": "schemas",
    r"registry\.json": "registry",
    r"schema-maps/[^/]+\.json": "schema-map",
    rf"schema-seals/{_BATCH}\.json": "schema-seal",
    r"schema-seals\.json": "schema-seal-head",
    r"topics\.json": "topics",
    r"observed\.json": "observed",
    r"overview\.json": "overview",
    r"((windows|maintenance|maintenance/reprocess|drills)/)?lock\.json": "lease",
    rf"((windows|maintenance|maintenance/reprocess|drills)/)?\.lock/{_BATCH}\.json": "lease",
    r"generations/\d{4,}/generation\.json": "generation",
    rf"generations/\d{{4,}}/receipts/{_BATCH}\.json": "receipt",
    r"generations/\d{4,}/summary\.json": "summary",
    r"index\.json": "index",
    rf"generations/\d{{4,}}/fingerprints/{_BATCH}\.json": "fingerprint",
    r"generations/\d{4,}/read_from\.json": "read-from",
    r"windows/[^/]+/plan\.json": "window-plan",
    r"windows/[^/]+/receipt\.json": "receipt",
    rf"journal/{_BATCH}\.json": "journal-entry",
    r"journal\.json": "journal-head",
    rf"cluster/{_BATCH}\.json": "cluster-moment",
    r"cluster/settings/[0-9a-f]{64}\.json": "cluster-settings",
    r"cluster\.json": "cluster-head",
    r"maintenance/reprocess\.json": "reprocess",
    r"maintenance/scrub\.json": "scrub",
    r"reports/[^/]+\.json": "report",
    r"evidence/(validation|republish|drill)/[^/]+\.json": "evidence",
    r"evidence/witness\.json": "witness-note",
    rf"{_PLAN}\.json": "frozen-plan",
    rf"{_PLAN}\.(started|done)\.json": "frozen-plan-note",
    r"drills/[^/]+/started\.json": "drill-started",
    r"drills/[^/]+/result\.json": "drill-result",
    r"cut-over/[^/]+/\d{8}T\d{12}Z-[a-z_]+\.json": "cut-over-step",
    r"erasures/\d{4,}\.json": "erasure",
    r"erasures/\d{4,}\.done\.json": "erasure-done",
    r"erasures/\d{4,}\.lifted\.json": "erasure-lifted",
    r"keys/[0-9a-f]{16}\.\d{4}\.json": "data-key",
    r"told/generations\.json": "told-generations",
    r"cursors/[^/]+/\d{12}\.json": "cursor",
    r"told/windows/[^/]+\.json": "told-window",
    r"republish/[^/]+/plan(\.\d+)?\.json": "republish-plan",
    r"republish/[^/]+/opened\.json": "republish-opened",
    r"republish/[^/]+/abandoned\.json": "republish-abandoned",
    r"republish/[^/]+/receipt\.json": "republish-receipt",
    r"republish/[^/]+/offset-map\.json": "offset-map",
    rf"{_GROUP}\.json": "group-record",
    rf"{_GROUP}-applied\.json": "group-applied",
    rf"{_GROUP}-undone\.json": "group-undone",
    r"republish/openings/\d{8}\.json": "opening-claim",
    r"runs/[^/]+/run\.json": "run",
    r"runs/[^/]+/progress\.json": "run-progress",
    r"republish/openings/\d{8}\.decided\.json": "opening-decision",
}
#: Files of other formats: records, Spark's own, a report's page, and what a job's two sides share.
OTHERS = (
    r"(generations|windows)/[^/]+/data/.+",
    r"generations/\d{4,}/checkpoint/.+",
    r"reports/[^/]+\.html",
    r"runs/[^/]+/(spec|result)\.json",
)

#: Documents that a reader or a verifier needs: their keys are on the page too.
IN_TABLES = {
    *("archive", "generation", "receipt", "window-plan", "journal-entry", "journal-head"),
}

#: So many values the page shows in place of their type.
FEW = 5

#: Values of every type of JSON; no key of any document takes all of them.
WRONG: tuple[Any, ...] = (None, True, -1.5, "", [[]], {"?": [[]]})

#: Of each document the name of its archive, its path and what it holds.
Documents = list[tuple[str, str, Any]]


def schemas_of(path: str) -> list[str]:
    """Return the schemas whose pattern a path fits; a copy has that of what it is a copy of."""
    path = path.removeprefix("copies/")
    return [name for pattern, name in PATTERNS.items() if re.fullmatch(pattern, path)]


def files_of(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield path and file of everything in an archive that isn't of another format."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not any(re.fullmatch(other, name) for other in OTHERS):
            yield name, path


def is_valid(name: str, document: Any) -> bool:
    """Whether a document is what its schema says."""
    return bool(Draft202012Validator(SCHEMAS[name]).is_valid(document))


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that refuses each key that it doesn't name."""
    shut = {name: value for name, value in schema.items() if name not in ("if", "then", "else")}
    if "properties" in shut:
        shut["properties"] = {name: closed(value) for name, value in shut["properties"].items()}
        shut.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(shut.get(name), dict):
            shut[name] = closed(shut[name])
    return shut


def named(schema: dict[str, Any], before: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each key that a schema names, as the page writes it, and whether it is required."""
    for name, value in schema.get("properties", {}).items():
        yield f"{before}{name}", value, name in schema["required"]
        yield from named(value, f"{before}{name}.")
    if isinstance(schema.get("items"), dict):
        yield from named(schema["items"], f"{before.rstrip('.')}[].")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from named(schema["additionalProperties"], f"{before}*.")


def type_of(schema: dict[str, Any]) -> str:
    """Return the type of a value as the page writes it."""
    if "const" in schema:
        return f"`{schema['const']}`"
    values = schema.get("enum", [])
    if 0 < len(values) <= FEW:
        return " or ".join("null" if value is None else f"`{value}`" for value in values)
    types = schema["type"]
    return str(types) if isinstance(types, str) else " or ".join(types)


def places(document: Any, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document that have, or may have, the last of some keys."""
    if len(keys) == 1:
        if isinstance(document, dict):
            yield document
        return
    key, *left = keys
    if key == "*":
        inner = list(document.values()) if isinstance(document, dict) else []
    elif key.endswith("[]"):
        inner = (document.get(key[:-2]) or []) if isinstance(document, dict) else []
    else:
        inner = [document.get(key)] if isinstance(document, dict) else []
    for value in inner:
        yield from places(value, tuple(left))


# archives


def drained(folder: Path) -> Archive:
    """An archive after drains, validations and a repair, with values that are decoded."""
    archive = golden_copy(folder)
    noted_at = "2026-01-01T12:00:00.000+00:00"
    note_moment(archive.root, CLUSTER, asked_at=noted_at, answered_at=noted_at)
    ValuePlan(schemas={7: WriterSchema(7, "long")}, changed=True).keep(archive.root, NOW)
    publication = begin_publication(archive, "run")
    seal(archive)
    generation = open_next(archive, "parquet", ["topic"])
    generation.add_topics({"later": "id-of-later"})
    paths = add_batch(generation, 0, END, END + 3)
    note_batch(
        generation, 0, paths, END, END + 3, skipped={TopicPartition("gone", 0): [OffsetRange(2, 5)]}
    )
    write_read_from(generation, ReadFrom(0, dict(archive.snapshot().document.topics)))
    seal(archive)
    [damaged] = [path for path in archive.generation(2).list_data_files() if "00000" in path]
    seal_repair(
        archive,
        "repair_20260101T000000Z",
        [row(P0, offset) for offset in range(END, END + 3)],
        [f"{generation.data_name}/{damaged}"],
    )
    for consumer in ("waits", "loaded"):
        batch = take(archive, consumer)
        assert batch is not None
    acknowledge(archive, consumer, batch.id)
    # Of an unsealed batch, a file is lost.
    add_batch(generation, 1, END + 3, END + 6)[0].unlink()
    settings = {
        "flights": TopicSettings(2, 1, config={"retention.ms": "604800000"}, compacted=False)
    }
    write_topic_settings(archive.root, settings)
    bounds = {P0: KafkaBounds(0, 50, 60), P1: KafkaBounds(0, 60, 60)}
    write_observations(archive, observe({}, bounds, "run", 1_767_268_800.5))
    report = validate_archive(archive, None)
    report.kafka = {"bootstrap_servers": "kafka:9092", "cluster_id": "cluster-1"}
    note_overview(archive, report, write_report(archive, report, "scheduled__2026-01-01"))
    publication.note(publication.receipts())
    # The run before it may be cleared.
    begin_publication(archive, "next").note([])
    note_windows(archive, [window.receipt for window in archive.snapshot().windows], "run")
    hole = Hole("generations/0002", "generations/0001", "id", P0, OffsetRange(3, 5))
    note_sealed(archive.root, note_of_holes([hole]))
    note_sealed(archive.root, Noted(forgotten={"windows/gone/receipt.json": "0" * 64}))
    keep_copies(archive.root, ["archive.json", "windows/repair_20260101T000000Z/plan.json"])
    return archive


def decoded(folder: Path) -> Archive:
    """An archive whose values are decoded, with the schemas that a registry and a file have."""
    reader = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    schema = folder.parent / "orders.avsc"
    schema.write_text(json.dumps(reader))
    archive = Archive.at(str(folder))
    values = {
        "encoding": "avro",
        "registry_conn_id": "registry",
        "subjects": ["orders-value"],
        "schema_files": {7: str(schema)},
        "reader_schema": str(schema),
    }
    pipeline = Pipeline(name="orders", topics=["orders"], archive=str(folder), values=values)
    with fake_registry() as registry:
        registry.register("orders-value", 9, reader)
        plan = plan_values(pipeline, archive, None, SchemaRegistry({"url": registry.url}))
    archive.create(
        pipeline="orders",
        cluster_id="cluster-1",
        topic_ids={"orders": "id"},
        source=pipeline.source,
        retention="30 days",
        immutable=Immutability("compliance", 30),
    )
    plan.keep(archive.root, NOW)
    json_values = {"encoding": "json", "columns": "id BIGINT"}
    in_json = pipeline.model_validate(
        {"name": "orders", "topics": ["orders"], "archive": str(folder), "values": json_values}
    )
    for number, frozen in ((1, plan.frozen), (2, plan_values(in_json, archive, None, None).frozen)):
        archive.generation(number).write(
            starting_offsets={TopicPartition("orders", 0): 5},
            file_format="orc",
            partition_by=["topic", "date", "hour"],
            topic_ids={"orders": "id"},
            reason="first",
            values=frozen,
        )
    return archive


def with_schemas(folder: Path) -> Archive:
    """An archive that keeps its schemas, restored to another registry, and a republish there."""
    made = MadeArchive(folder, {"flights": "id-1"})
    with fake_registry(has_guids=True) as source, fake_registry(has_guids=True) as target:
        city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
        source.register("city", 3, city)
        references = [{"name": "City", "subject": "city", "version": 1}]
        source.register("flights-value", 5, city | {"name": "Flight"}, references=references)
        source.compatibility["city"], source.modes["city"] = "FULL", "READWRITE"
        guid = UUID(source._subjects["city"][1]["guid"]).bytes
        header = [
            {"key": "__key_schema_id", "value": b"\1" + guid},
            {"key": "trace", "value": b"t"},
        ]
        tp = TopicPartition("flights", 0)
        made.seal({tp: dense(0, 5)}, value=b"\0\0\0\0\5\2x", key=b"k", headers=header)
        capture_schemas(made.archive, SchemaRegistry({"url": source.url}), now=NOW)
        # A capture that failed notes why.
        path = made.root / "registry.json"
        document = RegistryDocument.read(path)
        document.model_copy(update={"notes": ["no answer"]}).write(path)
        restore = SchemaRestore(made.archive, SchemaRegistry({"url": target.url}), "dr", "new")
        restore.apply(restore.plan(), now=NOW)
    logs = {TopicPartition("copy", 0): Log(end=5)}
    cluster: Any = FakeCluster(logs, id="elsewhere", configs={"copy": {"retention.ms": "-1"}})
    request = RepublishRequest(
        target_topic="copy",
        schema_map="dr",
        keep_ids=("flights:value",),
        run_name="translated",
        filters=("key=k", "not $.none"),
        hash_fields=("key",),
        drop_headers=("trace",),
        change=f"{functions.__name__}:by_rows",
    )
    function = find_function(request.wanted.function)
    change = Change(ChangeSpec(request.wanted, function.id, key_id(b"k")), key=b"k")
    plan = make_plan(
        made.archive.snapshot(), cluster, request, run="r", now=NOW, files=made.files, change=change
    )
    RepublishRun(made.root, plan.key).write_plan(plan)
    return made.archive


def maintained(folder: Path) -> Archive:
    """An archive of which a part was compacted and a part was deleted as too old."""
    made = MadeArchive(folder, {"flights": "id-1"})
    tp = TopicPartition("flights", 0)
    for n in range(4):
        made.seal({tp: dense(10 * n, 10 * n + 10)})
    made.seal({tp: dense(40, 50), TopicPartition("flights", 1): dense(0, 10, first_ms=1_000)})
    made.open_generation()
    closed_ones = made.archive.snapshot().generations[:-1]
    deletions = plan_deletions(made.archive.snapshot(), closed_ones, 30, NOW)
    seal_deletions(made.archive, deletions, run="tests")
    pipeline = Pipeline(name="made", topics=["flights"], archive=str(made.root))
    _, frozen = freeze_maintenance(pipeline, now=NOW)
    with carrying_out(made.root, frozen, "tests", lambda: NOW):
        pass
    [compaction] = plan_compactions(made.archive.snapshot(), closed_ones, TARGET)
    job = compacted(made, compaction, folder.parent / "compact")
    finish(made, compaction, job)
    scrub(made.archive, 30, NOW)
    scrub(made.archive, 30, NOW + timedelta(days=31))
    # As of an archive with many more generations and windows.
    snapshot = made.archive.snapshot()
    write_index(snapshot, make_index(snapshot, index.Index()))
    return made.archive


class WithWholePlan(Backfilled):
    """A backfilled interval whose first window has a plan as the product writes it."""

    def in_plan(self) -> dict[str, object]:
        """Return what the plan of a window of the interval says."""
        return {**super().in_plan(), "opened_at": NOW.isoformat()}


def backfilled(folder: Path) -> Archive:
    """An archive with the window of an interval that was drained again, and another's place."""
    folder.mkdir()
    filled = WithWholePlan(folder)
    plan = filled.plan()
    rows = {TopicPartition("flights", p): dense(0, 10) for p in (0, 1)}
    filled.finish(plan, filled.drained(plan, rows))
    return filled.made.archive


def reprocessed(folder: Path) -> Archive:
    """An archive of which a part is drained again; nothing of it is sealed yet."""
    archive = sealed_copy(folder)
    name = archive.snapshot().document.pipeline
    pipeline = Pipeline(name=name, topics=["flights"], archive=str(archive.root))
    cluster: Any = golden_cluster()
    freeze_reprocess(pipeline, cluster, Cut(batch=(1, 12)), now=NOW)
    plan = plan_reprocess(pipeline, cluster, Cut(batch=(1, 12)), offsets_per_group=1)
    open_reprocess(plan, cluster, run="tests")
    spec = folder.parent / "reprocess"
    spec.mkdir(mode=0o700)
    prepare_group(plan, next(iter(plan.groups)), pipeline, cluster, spec)
    return archive


class Engine:
    """Sends nothing, and finds all of it."""

    def __call__(self, plan: RepublishPlan, groups: object, tick: object) -> None:
        """Send nothing."""

    def verify(self, plan: RepublishPlan, jobs: object) -> dict[TopicPartition, PartitionMatch]:
        """Find every record."""
        found = {}
        for shard in plan.shards:
            assert shard.target_partition is not None
            tp = TopicPartition(shard.target_topic, shard.target_partition)
            block = Block(shard.first, shard.end, 0, shard.records, shard.records)
            mappings = {shard.number: (block,)}
            numbers = (shard.records, shard.records, 0, 0, 0, 0, 0)
            found[tp] = PartitionMatch(*numbers, "0" * 32, mappings, ("a note",))
        return found


def republished(folder: Path) -> Archive:
    """An archive that was republished: in full, as a follower, in part, and given up."""
    archive = sealed_copy(folder)
    logs = {TopicPartition(topic, p): Log(end=5) for topic in ("copy", "mirror") for p in (0, 1)}
    configs = {topic: {"retention.ms": "-1"} for topic in ("copy", "mirror")}
    cluster: Any = FakeCluster(logs, id="elsewhere", configs=configs)
    for target, follow in (("copy", False), ("mirror", True)):
        request = RepublishRequest(
            target_topic=target,
            topics=("flights",),
            partitions=(0, 1),
            delivery="at_least_once",
            run_name=target,
            follow=follow,
        )
        planned: Republish = plan_republish(archive, cluster, request, now=NOW, apply=True)
        planned.execute(Engine(), lambda: NOW)
        folder_of_run = planned.run
    by_key = RepublishRequest(
        target_topic=None,
        rename={"flights": "copy"},
        topics=("flights",),
        partitions=(0,),
        offsets=("flights:0:3-9",),
        from_time=NOON,
        to_time=NOON.replace(hour=13),
        placement="key",
        repeat=True,
    )
    part = make_plan(
        archive.snapshot(), cluster, by_key, run="part", now=NOW, identify=archive.identify
    )
    run = RepublishRun(archive.root, part.key)
    first = run.write_plan(part)
    again = make_plan(archive.snapshot(), cluster, by_key, run="part", now=NOW)
    run.write_plan(again, replacing=first)
    freeze_republish(archive, cluster, RepublishRequest(target_topic="copy", repeat=True), now=NOW)
    claim_opening(archive.root, part, repeat=True).withdraw("copy")
    run.abandon(NOW)
    translate(folder_of_run, cluster.cluster_id())
    return archive


def translate(run: RepublishRun, cluster_id: str) -> None:
    """Leave what a translation of a group leaves that is applied and undone."""
    source = TopicPartition("flights", 0)
    plan = TranslationPlan(
        run=run.key,
        cluster_id=cluster_id,
        group="readers",
        to_group="readers/2",
        committed={source: 5},
        rows=tuple(
            Contribution(
                source, 5, TopicPartition("mirror", partition), 7, 7, "exact", metadata="of 5"
            )
            for partition in (0, 1)
        ),
    )
    records = GroupRecords(run.folder, plan.to_group)
    before = {TopicPartition("mirror", 0): Committed(3, "metadata")}
    record = records.write(plan, before, group_existed=True)
    records.mark_applied(record)
    records.mark_undone(record)


def leave_run(root: UPath) -> None:
    """Leave what a job in the cluster leaves that was killed."""
    run = RunDocument(
        kind="drain",
        key=job_key("drain", {}),
        submitted_at=now_text(),
        lease=uuid4().hex,
        archive=str(root),
    )
    folder = RunFolder.new(root, "one")
    folder.write(run, {})
    folder.write_progress(1, ["drain flights: 9 offsets planned"])


def drilled(folder: Path) -> Archive:
    """An archive after drills of which one was killed, and with evidence of another."""
    archive = sealed_copy(folder)
    document: Any = golden_cluster()
    started = DrillStarted(
        format_version=1,
        drill="20260101T000000Z-00000001",
        started_at=NOW.isoformat(),
        cluster_id=document.cluster_id(),
        run="a run",
        topics={"kafka-drain-drill.20260101T000000Z-00000001.flights": "id"},
    )
    write_started(archive.root, started)
    decoded = {
        "values": 2,
        "decoded": 1,
        "without_schema": 0,
        "unknown_schemas": [7],
        "undecodable": 1,
    }
    for number, verdict in enumerate(("passed", "failed"), 2):
        name = f"20260101T000000Z-0000000{number}"
        result = drill(number, verdict, drill=name, decoded=decoded, left=["a topic"])
        where = write_result(archive.root, result)
        key = SigningKey.create(folder.parent / verdict)
        signer = Signer(key, witness=WitnessFile(folder.parent / f"{verdict}.jsonl"))
        sign(archive, signer, "drill", name, result.content(), [where], NOW)
        tell_witness(archive, signer, NOW)
    return archive


def cut_over(folder: Path) -> Archive:
    """An archive after steps of a cut-over of which one was refused."""
    archive = sealed_copy(folder)
    offsets = [{"topic": "flights", "partition": 0, "offset": 5}]
    groups = [{"group": "g", "read_again": 0, "offsets": offsets}]
    write_step(archive.root, "a", step("mirror", verdict="refused", problems=["late"]), NOW)
    later = NOW + timedelta(seconds=1)
    write_step(archive.root, "a", step("groups", groups=groups, notes=["seen"]), later)
    return archive


def wrapped(root: UPath) -> dict[str, Any]:
    """Return the document of a data key that a file's master key wraps."""
    path = Path(str(root.parent / "master-keys.json"))
    path.touch(mode=0o600)
    path.write_text(json.dumps({"m": base64.b64encode(bytes(32)).decode()}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FILE_VARIABLE, str(path))
        return wrapped_document("0123456789abcdef", bytes(32), "file", "m")


def erased(folder: Path) -> Archive:
    """An archive of which some records were erased, by an erasure that was lifted since.

    It has a data key, too.
    """
    made = MadeArchive(folder, {"flights": "id-1"})
    tp = TopicPartition("flights", 0)
    for n in range(5):
        made.seal({tp: dense(10 * n, 10 * n + 10)})
    made.open_generation()
    request = ErasureRequest(
        "r",
        "b",
        keys=frozenset({b"k"}),
        headers=frozenset({("h", b"1")}),
        topics=frozenset({"flights"}),
        from_ms=0,
    )
    scope = scope_of([("flights", "id-1")], {("flights", "id-1"): {0: 60}})
    made.archive.raise_format(ERASED_VERSION)
    erasure = next_erasure(made.root, request.document(bytes(32), scope, NOW.isoformat()))
    erasure.accept()
    closed_ones = made.archive.snapshot().generations[:-1]
    [segments] = read_closed(made.archive.snapshot(), closed_ones)
    found = {
        file.path: FoundRecords(file, {tp: [OffsetRange(10 * n, 10 * n + 2)]}, {1: 2})
        for n, file in enumerate(segments.files)
    }
    [rewrite] = plan_rewrites(segments, found, [erasure], lambda receipt: frozenset(), TARGET)
    job = compacted(made, rewrite, folder.parent / "erase")
    finish(made, rewrite, job)
    sealed = made.archive.snapshot().fold.windows
    erasure.finish(
        ErasureDoneDocument(
            erasure=erasure.number,
            done_at=NOW.isoformat(),
            records=10,
            windows={window.key: window.receipt.sha256 for window in sealed},
            generations={"1": "000000000004.json"},
            searched=[window.key for window in sealed],
        )
    )
    document = wrapped(made.root)
    create_document(made.root / "keys" / file_name(document["id"], 1), document)
    erasure.lift(ErasureLiftedDocument(format_version=1, by="b", lifted_at=NOW.isoformat()))
    write_report(made.archive, validate_archive(made.archive, None), "erased")
    return made.archive


MADE: Mapping[str, Callable[[Path], Archive]] = {
    "cut_over": cut_over,
    "drained": drained,
    "drilled": drilled,
    "erased": erased,
    "decoded": decoded,
    "with_schemas": with_schemas,
    "maintained": maintained,
    "backfilled": backfilled,
    "reprocessed": reprocessed,
    "republished": republished,
}


def leave_lease(root: UPath) -> None:
    """Leave what a lease leaves on HDFS when it is released."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "lease_store", lambda root: NumberedFiles(root / ".lock"))
        with hold_lease(root, run="tests"):
            pass


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Every document of archives that were drained, maintained, reprocessed and republished."""
    found: Documents = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (compacting, window_jobs):
            patch.setattr(module, "prepare_application", fake_application)
        for name, make in MADE.items():
            root = make(tmp_path_factory.mktemp(name) / "archive").root
            leave_run(root)
            leave_lease(root)
            with (
                hold_lease(root, run="tests"),
                hold_lease(root / "windows", run="tests"),
                hold_lease(root / "maintenance" / "reprocess", run="tests"),
            ):
                found += [
                    (name, path, json.loads(file.read_bytes()))
                    for path, file in files_of(Path(str(root)))
                ]
    return found


# schemas


@each_of("name", SCHEMAS)
def test_schema_valid(name: str) -> None:
    """Each schema is one of draft 2020-12, and says what it is of."""
    schema = SCHEMAS[name]

    Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["description"]


@each_of("name", SCHEMAS)
def test_schema_open(name: str) -> None:
    """Each schema takes keys that are added later, and describes each key that it names."""
    assert '"additionalProperties": false' not in json.dumps(SCHEMAS[name])
    assert all(value["description"].endswith(".") for _, value, _ in named(SCHEMAS[name]))


def test_schema_reasons() -> None:
    """The reasons of gaps and findings in the schemas are those of the code."""
    partition = SCHEMAS["receipt"]["properties"]["partitions"]["items"]["properties"]
    finding = SCHEMAS["report"]["properties"]["findings"]["items"]["properties"]

    assert partition["gaps"]["propertyNames"]["enum"] == list(map(str, GapReason))
    assert finding["reason"]["enum"] == list(map(str, Reason))


def test_schema_of_each_pattern() -> None:
    """Each schema is that of some path, and no path has one that isn't there."""
    assert set(PATTERNS.values()) == SCHEMAS.keys()


# documents


def test_document_of_each_schema(documents: Documents) -> None:
    """The archives hold a document of each schema."""
    assert {name for _, path, _ in documents for name in schemas_of(path)} == SCHEMAS.keys()


def test_document_has_one_schema(documents: Documents) -> None:
    """Each file that isn't Spark's, records or a page is a document of exactly one schema."""
    assert [path for _, path, _ in documents if len(schemas_of(path)) != 1] == []


def test_document_valid(documents: Documents) -> None:
    """Each document is what its schema says."""
    for archive, path, document in documents:
        [name] = schemas_of(path)
        errors = Draft202012Validator(SCHEMAS[name]).iter_errors(document)

        assert [error.message for error in errors] == [], f"{path} of {archive}"


def test_document_has_only_named_keys(documents: Documents) -> None:
    """No document has a key that its schema doesn't name."""
    for archive, path, document in documents:
        [name] = schemas_of(path)
        errors = Draft202012Validator(closed(SCHEMAS[name])).iter_errors(document)

        assert [error.message for error in errors] == [], f"{path} of {archive}"


KEYS_OF_RECEIPT = {path for path, _, _ in named(SCHEMAS["republish-receipt"])}

#: Keys that these archives lack: two of three ways to name topics; what a republish is asked for
#: that needs Kafka's transactions, which its plan has as well.
UNSEEN = {
    # Of other registries, and of single ids.
    "republish-plan": {f"schema_ids.counts[].{k}" for k in ("kept", "framings")},
    "archive": {"source.topic_pattern", "source.assign"},
    # The archives' drains are older.
    "topics": {"*.topic_id", "*.compacted_from", "*.compacted_until", "*.retention_ms"},
    "republish-receipt": {f"request.selection.{k}" for k in ("offsets", "from_time", "to_time")}
    | {"request.schema_map", "request.keep_ids"}
    | {path for path in KEYS_OF_RECEIPT if "change" in path},
}


@each_of("name", SCHEMAS)
def test_key_seen(name: str, documents: Documents) -> None:
    """Each key that a schema names is in some document, so that none is named that isn't there."""
    mine = [document for _, path, document in documents if schemas_of(path) == [name]]
    unseen = set()
    for path, _, _ in named(SCHEMAS[name]):
        keys = tuple(path.split("."))
        if not any(keys[-1] in place for each in mine for place in places(each, keys)):
            unseen.add(path)

    assert unseen == UNSEEN.get(name, set())


@each_of("name", SCHEMAS)
def test_key_required(name: str, documents: Documents) -> None:
    """A document without a key that is always there is refused."""
    mine = [document for _, path, document in documents if schemas_of(path) == [name]]
    for path, _, is_required in named(SCHEMAS[name]):
        keys = tuple(path.split("."))
        for document in mine if is_required else ():
            without = copy.deepcopy(document)
            held = [place for place in places(without, keys) if keys[-1] in place]
            if held:
                del held[0][keys[-1]]

                assert not is_valid(name, without), path
                break


@each_of("name", SCHEMAS)
def test_key_wrong_type(name: str, documents: Documents) -> None:
    """Each key refuses values of other types."""
    mine = [document for _, path, document in documents if schemas_of(path) == [name]]
    for path, _, _ in named(SCHEMAS[name]):
        keys = tuple(path.split("."))
        for document in mine:
            changed = copy.deepcopy(document)
            held = [place for place in places(changed, keys) if keys[-1] in place]
            if held:
                refused = 0
                for value in WRONG:
                    held[0][keys[-1]] = value
                    refused += not is_valid(name, changed)

                assert refused >= 2, path
                break
    assert not any(is_valid(name, value) for value in (*WRONG[:-1], []))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("archive", "format_version", 3),
        ("receipt", "sha256", "0" * 63),
        ("receipt", "generation", 0),
        ("receipt", "sealed_at", "2026-01-01T00:00:00"),
        ("receipt", "first_batch", -1),
        ("generation", "format", "csv"),
        ("journal-entry", "documents", {"archive.json": "gone"}),
        ("window-plan", "interval", ["2026-01-01T00:00:00Z"]),
        ("offset-map", "partitions", [{"blocks": [[0, 1, 2, 3]]}]),
        ("report", "verdict", "perhaps"),
        ("lease", "expires_at", 0),
        ("republish-plan", "format_version", 5),
        ("frozen-plan", "kind", "drain"),
        ("frozen-plan-note", "plan", "archive"),
    ],
)
def test_document_wrong(name: str, key: str, value: Any, documents: Documents) -> None:
    """A document of another version, or with a hash, offset or time that is none, is refused."""
    document = next(d for _, path, d in documents if schemas_of(path) == [name])

    assert is_valid(name, document)
    assert not is_valid(name, {**document, key: value})


def test_receipt_of_window_in_a_chain(documents: Documents) -> None:
    """A window's receipt with a predecessor is refused, and one of a batch that replaces files."""
    receipts = [(path, d) for _, path, d in documents if schemas_of(path) == ["receipt"]]
    of_window = next(d for path, d in receipts if path.startswith("windows/"))
    of_batch = next(d for path, d in receipts if path.startswith("generations/"))

    assert not is_valid("receipt", {**of_window, "previous": "0" * 64})
    assert not is_valid("receipt", {**of_batch, "replaces": ["a file"]})


# the types


def of_sealed(parse: Callable[[bytes, str], object]) -> Callable[[UPath, bytes], object]:
    """Return a reader of documents that are sealed again after each edit."""

    def read(path: UPath, content: bytes) -> object:
        document = None
        with suppress(ValueError):
            document = json.loads(content)
        if isinstance(document, dict):
            document.pop("sha256", None)
            content = seal_document(document)
        return parse(content, str(path))

    return read


def read_lease(path: UPath, content: bytes) -> FoundLease:
    """Read a lease; one that isn't known is refused here."""
    path.write_bytes(content)
    found = find_lease(path.parent)
    assert found is not None
    if found.token is None:
        raise ArchiveError(f"{path} {found}")
    return found


#: Reads a document of each schema; those of republishes have readers of their own.
READERS: Mapping[str, Callable[[UPath, bytes], object]] = {
    "archive": ArchiveDocument.parse,
    "cursor": CursorDocument.parse,
    "cut-over-step": CutOverDocument.parse,
    "erasure": ErasureDocument.parse,
    "erasure-done": of_sealed(lambda content, name: parse_done(UPath(name), content)),
    "erasure-lifted": ErasureLiftedDocument.parse,
    "drill-result": DrillDocument.parse,
    "drill-started": DrillStarted.parse,
    "cluster-head": ChainHeadDocument.parse,
    "cluster-moment": of_sealed(parse_moment),
    "cluster-settings": of_sealed(parse_settings),
    "data-key": parse_key,
    "generation": GenerationDocument.parse,
    "identity": IdentityDocument.parse,
    "journal-entry": of_sealed(lambda content, name: parse_entry(content)),
    "journal-head": HeadDocument.parse,
    "lease": read_lease,
    "observed": ObservedDocument.parse,
    "overview": OverviewDocument.parse,
    "read-from": ReadFromDocument.parse,
    "receipt": of_sealed(parse_receipt),
    "report": ReportDocument.parse,
    "reprocess": ReprocessDocument.parse,
    "registry": RegistryDocument.parse,
    "scrub": ScrubDocument.parse,
    "schema-map": SchemaMapDocument.parse,
    "schema-seal": of_sealed(parse_schema_seal),
    "schema-seal-head": ChainHeadDocument.parse,
    "schemas": SchemasDocument.parse,
    "summary": of_sealed(lambda content, name: parse_summary(content)),
    "index": of_sealed(lambda content, name: index.parse_index(content)),
    "told-generations": ToldDocument.parse,
    "told-window": ToldWindowDocument.parse,
    "topics": TopicsDocument.parse,
    "window-plan": WindowPlan.parse,
    "witness-note": WitnessDocument.parse,
}
#: Those whose readers get bytes without a path.
OF_VALUES = ("index", "journal-entry", "summary")
#: The types of sealed documents.
SEALED: Mapping[str, Any] = {
    "receipt": receipts.Receipt,
    "journal-entry": entries.Entry,
    "summary": generation_summary.Summary,
    "index": index.Index,
    "cluster-moment": cluster_documents.Moment,
    "cluster-settings": cluster_documents._SettingsFile,
    "schema-seal": schema_seals.SchemaSeal,
}
#: Keys that no reader needs: sealing computes the first anew.
NOT_NEEDED = {
    "cluster-moment": {"sha256"},
    "cluster-settings": {"sha256"},
    "erasure-done": {"sha256"},
    "generation": {"format_version", "generation", "topics"},
    "index": {"sha256"},
    "journal-entry": {"sha256"},
    "receipt": {"sha256"},
    "registry": {"format_version"},
    "schema-map": {"format_version"},
    "schema-seal": {"sha256"},
    "summary": {"sha256"},
    "window-plan": {"partition_by", "opened_at"},
}


def encoded(document: Any) -> bytes:
    """Return a document as a file holds it."""
    return json.dumps(document).encode()


def edits(name: str, documents: Documents) -> Iterator[tuple[str, bool, Any, dict[str, Any]]]:
    """Yield each key of a schema, whether it is required, a document, and the object with it."""
    mine = [document for _, path, document in documents if schemas_of(path) == [name]]
    for path, _, is_required in named(SCHEMAS[name]):
        keys = tuple(path.split("."))
        for document in mine:
            changed = copy.deepcopy(document)
            held = [place for place in places(changed, keys) if keys[-1] in place]
            if held:
                yield path, is_required, changed, held[0]
                break


@each_of("name", READERS)
def test_reader_document(name: str, documents: Documents, tmp_path: Path) -> None:
    """Each document is read, also with a key of a later release in each of its objects."""
    path = UPath(tmp_path / "lock.json")
    for _, where, document in documents:
        if schemas_of(where) == [name]:
            READERS[name](path, encoded(document))
    for key, _, changed, held in edits(name, documents):
        if name != "topics" and not key.startswith(("topics", "source")):
            READERS[name](path, encoded(changed))
            held["of_a_later_release"] = [None]
            READERS[name](path, encoded(changed))


@each_of("name", READERS)
def test_reader_key_missing(name: str, documents: Documents, tmp_path: Path) -> None:
    """A document without a key is refused, naming the key, if its schema requires the key."""
    path = UPath(tmp_path / "lock.json")
    for key, is_required, changed, held in edits(name, documents):
        last = key.rpartition(".")[2].removesuffix("[]")
        del held[last]
        if not is_required or key in NOT_NEEDED.get(name, ()):
            READERS[name](path, encoded(changed))
            continue
        with pytest.raises(ValueError if name in OF_VALUES else KafkaDrainError) as caught:
            READERS[name](path, encoded(changed))
        if name != "lease":
            assert ("format" if last == "format_version" else last) in str(caught.value), key
            assert name in OF_VALUES or "lock.json" in str(caught.value)


@each_of("name", READERS)
def test_reader_wrong_type(name: str, documents: Documents, tmp_path: Path) -> None:
    """A value is refused, naming its key, if its type isn't the schema's."""
    path = UPath(tmp_path / "lock.json")
    for key, is_required, changed, held in edits(name, documents):
        may_be_null = not is_required or key in NOT_NEEDED.get(name, ())
        if key == "sha256" and key in NOT_NEEDED.get(name, ()):
            continue
        last = key.rpartition(".")[2].removesuffix("[]")
        allowed = next(schema for each, schema, _ in named(SCHEMAS[name]) if each == key)
        for value in WRONG:
            if fits(value, allowed) or (value is None and may_be_null):
                continue
            held[last] = value
            kind = ValueError if name in OF_VALUES else KafkaDrainError
            with pytest.raises(kind) as caught:
                READERS[name](path, encoded(changed))
            if name != "lease":
                shown = "format" if last == "format_version" else last
                assert shown in str(caught.value), key


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value has a schema's type, whatever else the schema asks of it."""
    if "const" in schema:
        return False
    return bool(Draft202012Validator({"type": schema["type"]}).is_valid(value))


@each_of("name", READERS)
@each_of("content", [b"", b"{", b"[]", b'"text"', b"\xff", b"null"])
def test_reader_something_else(name: str, content: bytes, tmp_path: Path) -> None:
    """A file that isn't a JSON object is refused."""
    reader = READERS[name]
    kind = ValueError if name in OF_VALUES else KafkaDrainError
    if name in SEALED:
        parse: Callable[[bytes], Any] = {
            "receipt": parse_receipt,
            "journal-entry": parse_entry,
            "summary": parse_summary,
        }.get(name, parse_moment)
        with pytest.raises(kind):
            parse(content)
        return
    with pytest.raises(kind, match=r"lock\.json"):
        reader(UPath(tmp_path / "lock.json"), content)


@each_of("version", [0, 3, 99, "1", True, 1.0, None, [1]])
@each_of("name", ["archive", "generation", "receipt", "journal-entry"])
def test_reader_unknown_version(
    name: str, version: Any, documents: Documents, tmp_path: Path
) -> None:
    """A document of a version that isn't known is refused by its version."""
    document = next(d for _, path, d in documents if schemas_of(path) == [name])

    with pytest.raises((KafkaDrainError, ValueError), match=r"format (version )?\S+"):
        READERS[name](UPath(tmp_path / "a.json"), encoded({**document, "format_version": version}))


def model_keys(schema: dict[str, Any], root: dict[str, Any], before: str = "") -> set[str]:
    """Return the keys that a generated schema names, as the page writes them."""
    schema = root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    found = set()
    for option in schema.get("anyOf", ()):
        found |= model_keys(option, root, before)
    for name, value in schema.get("properties", {}).items():
        found |= {f"{before}{name}"} | model_keys(value, root, f"{before}{name}.")
    if isinstance(schema.get("items"), dict):
        found |= model_keys(schema["items"], root, f"{before.rstrip('.')}[].")
    if isinstance(schema.get("additionalProperties"), dict):
        found |= model_keys(schema["additionalProperties"], root, f"{before}*.")
    return found


@each_of("name", READERS)
def test_type_names_keys_of_schema(name: str) -> None:
    """The type of a document names the keys of its schema, and no other."""
    expected = {key for key, _, _ in named(SCHEMAS[name])}
    if name == "data-key":
        # Executors read it without pydantic.
        assert {"format_version", *data_keys._TEXTS} == expected
        return
    kind = SEALED.get(name)
    own = {"lease": LeaseDocument, "erasure-done": ErasureDoneDocument}
    kind = kind or own.get(name) or getattr(READERS[name], "__self__", None)
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    found = model_keys(schema, schema) | ({"sha256"} if name in SEALED else set())
    if name == "window-plan":
        found -= {"format_version"}
    assert found == expected


# the page


@each_of("name", SCHEMAS)
def test_page_has_table(name: str) -> None:
    """Each schema has a section with its link; of what verifiers read, with a row for each key."""
    section = PAGE.partition(f"\n### {SCHEMAS[name]['title']}\n")[2].partition("\n### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]

    assert f"(format/{name}.schema.json)" in section
    assert rows == [
        f"| `{path}` | {type_of(value)} | {'yes' if must else 'no'} | {value['description']} |"
        for path, value, must in named(SCHEMAS[name])
        if name in IN_TABLES
    ]


def test_reference_has_each_key() -> None:
    """The site's tables, made of the schemas, have every key of every document, in order."""
    for schema in SCHEMAS.values():
        section = documents_page().partition(f"## {schema['title']}\n")[2].partition("\n## ")[0]
        rows = [line.split(" | ")[:3] for line in section.splitlines() if line.startswith("| `")]

        assert rows == [
            [f"| `{path}`", type_of(value), "yes" if must else "no"]
            for path, value, must in named(schema)
        ]


def test_page_names_gap_reasons() -> None:
    """Each reason of gaps is in the page's table, with its meaning."""
    for reason in GapReason:
        assert re.search(rf"^\| `{reason}` \| (yes|no\b.*) \| ", PAGE, flags=re.M)


def test_page_shows_each_path(documents: Documents) -> None:
    """Each kind of document is in the page's tree: its file name, or what stands for a number."""
    tree = PAGE.partition("```text\n")[2].partition("```")[0]
    for _, path, _ in documents:
        name = path.rpartition("/")[2]
        shown = re.sub(r"^\d{12}\.json$", "00000000000", name)
        shown = re.sub(r"^[0-9a-f]{64}\.json$", "<sha256>.json", shown)
        shown = re.sub(r"^\d{8}(\.decided)?\.json$", r"00000001\1.json", shown)
        shown = re.sub(r"^plan\.\d+\.json$", "plan.2.json", shown)
        shown = re.sub(r"^.+-\d{8}T\d{12}Z(.*)$", r"<group>-<time>\1", shown)
        shown = re.sub(r"^[a-z]+-\d{8}T\d{6}Z-[0-9a-f]{16}\.", "<id>.", shown)
        shown_as = {
            "reports/": "<run>.json",
            "told/windows/": "<name>.json",
            "evidence/drill/": "<name>.json",
            "schema-maps/": "<name>.json",
            "cut-over/": "<time>-<step>.json",
            "keys/": "<id>.<version>.json",
        }
        for folder, stands_for in shown_as.items():
            shown = stands_for if path.startswith(folder) else shown

        assert shown in tree, path


# versions


def resealed(path: Path, **changes: Any) -> bytes:
    """Return a sealed document with some keys changed or added."""
    document = json.loads(path.read_bytes())
    del document["sha256"]
    return seal_document({**document, **changes})


def test_added_key_ignored(tmp_path: Path) -> None:
    """Documents with a key that is added later are read as before."""
    root = Path(str(republished(tmp_path / "archive").root))
    [receipt, *_] = sorted((root / "generations/0001/receipts").iterdir())
    [entry, *_] = sorted((root / "journal").iterdir())
    [plan, *_] = sorted(root.glob("republish/*/plan.json"))
    [offset_map, *_] = sorted(root.glob("republish/*/offset-map.json"))

    assert parse_receipt(resealed(receipt, later=1)) == parse_receipt(receipt.read_bytes())
    assert parse_entry(resealed(entry, later=1)) == parse_entry(entry.read_bytes())
    for path, parse in ((plan, RepublishPlan.parse), (offset_map, OffsetMap.parse)):
        assert parse(resealed(path, later=1)) == parse(path.read_bytes())


def test_newer_version_refused(tmp_path: Path) -> None:
    """Documents of a version that is higher than known are refused."""
    archive = republished(tmp_path / "archive")
    root = Path(str(archive.root))
    [receipt, *_] = sorted((root / "generations/0001/receipts").iterdir())
    [entry, *_] = sorted((root / "journal").iterdir())
    [plan, *_] = sorted(root.glob("republish/*/plan.json"))
    [offset_map, *_] = sorted(root.glob("republish/*/offset-map.json"))
    document = {**archive.snapshot().document.content(), "format_version": 3}
    (root / "archive.json").write_text(json.dumps(document))

    for path, parse in (
        (receipt, parse_receipt),
        (entry, parse_entry),
        (plan, RepublishPlan.parse),
        (offset_map, OffsetMap.parse),
    ):
        with pytest.raises(ValueError, match="format version 5"):
            parse(resealed(path, format_version=5))
    with pytest.raises(
        ArchiveError, match="has archive format 3, but this kafka-drain reads format 1 or 2"
    ):
        archive.require()


# how hashes are computed


def test_canonical_digest_of_page(tmp_path: Path) -> None:
    """Digests of the journal and of file sets come out by the page's words alone."""
    archive = sealed_copy(tmp_path / "archive")
    root = Path(str(archive.root))
    written = [json.loads(path.read_bytes()) for path in sorted((root / "journal").iterdir())]

    assert by_the_page(root) == {
        path: value for entry in written for path, value in entry["documents"].items()
    }


def by_the_page(root: Path) -> dict[str, str]:
    """Compute the digests of archive.json and generation.json as the page says."""
    archive = json.loads((root / "archive.json").read_text())
    generation = json.loads((root / "generations/0001/generation.json").read_text())
    generation.pop("topics", None)
    settings = [archive.get("isolation_level", "read_committed"), archive.get("retention")]
    settings += [archive["immutable"]] if archive.get("immutable") else []
    return {
        "archive.json": canonical([archive["pipeline"], archive["cluster_id"]]),
        f"settings/{canonical(settings)}": "accepted",
        "generations/0001/generation.json": canonical(generation),
    }


def canonical(value: object) -> str:
    """Return SHA-256 of a value's canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def test_seals_and_chain_of_page(tmp_path: Path) -> None:
    """Seals, the chain of receipts and the digest of file sets come out by the page's words."""
    archive = sealed_copy(tmp_path / "archive")
    folder = Path(str(archive.root)) / "generations" / "0001" / "receipts"
    previous, total = None, 0
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        receipt = json.loads(content)
        for file in receipt["files"]:
            named_file = f"{file['path']}\0{file['bytes']}".encode()
            hashed = hashlib.blake2b(named_file, digest_size=16).digest()
            total = (total + int.from_bytes(hashed, "big")) % 2**128

        assert receipt["previous"] == previous
        assert receipt["files_so_far"]["digest"] == f"{total:032x}"
        body = content[: content.rindex(b',"sha256":')]
        previous = receipt["sha256"]
        assert previous == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("name", ["drained", "maintained", "backfilled", "reprocessed"])
def test_live_files_of_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the page's words alone, receipts' files without replaced ones are those readers take."""
    for module in (compacting, window_jobs):
        monkeypatch.setattr(module, "prepare_application", fake_application)
    archive = MADE[name](tmp_path / "archive")
    receipts = [
        json.loads(path.read_bytes())
        for pattern in ("generations/*/receipts/*.json", "windows/*/receipt.json")
        for path in Path(str(archive.root)).glob(pattern)
    ]
    sizes = {file["path"]: file["bytes"] for receipt in receipts for file in receipt["files"]}
    live = sizes.keys() - {path for receipt in receipts for path in receipt["replaces"]}
    # Readers compare the size of each file; of some batches here, only the receipts were made.
    for generation in archive.snapshot().generations:
        listed = read_state(archive.snapshot(), generation).manifest.files.values()
        sizes |= {f"{generation.data_name}/{file.path}": file.size for file in listed}
    for where, size in sizes.items():
        path = Path(str(archive.root)) / where
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(size))

    assert live == {
        file.path for file in archive_files(archive.snapshot()) if file.sealed is not None
    }
