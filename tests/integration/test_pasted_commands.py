"""What an archive's page in Airflow says to do, pasted into a shell as it stands there.

For each reason of a finding: an archive with that damage, the page that a real Airflow makes of it,
and each of its commands in `bash`. The archives' folders have a space and an apostrophe.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from demo.airflow_pages import VIEWER, Scene, ask
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.fingerprints import note_name
from kafka_drain.proof.report import Report, note_overview, write_report
from kafka_drain_airflow.observability.archive_events import archive_asset
from tests.fake_registry import FakeRegistry, fake_registry, in_wire_format
from tests.faults.injection import wait_for
from tests.integration.command_line import kafka_drain
from tests.pseudo_terminal import at_terminal
from tests.spark_connect import Server, environment

pytestmark = [pytest.mark.integration, pytest.mark.soak]

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
G1, G2 = "generations/0001", "generations/0002"
DATA, LOG, CHECKPOINT = f"{G2}/data", f"{G2}/data/_spark_metadata", f"{G2}/checkpoint"
#: Batches of generation 2: the first ones are sealed, the last one isn't.
SEALED, OPEN = 3, 4
#: Offsets of each partition that a batch drains.
BATCH = 20

Damage = Callable[[Path], object]


# how archives are damaged


def unlink(*names: str) -> Damage:
    """Remove files, with Hadoop's checksums beside them."""

    def damage(root: Path) -> None:
        for name in names:
            path = root / name
            path.unlink()
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)

    return damage


def write(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change a file's content, as somebody does who leaves no checksum beside it."""

    def damage(root: Path) -> None:
        path = root / name
        path.write_bytes(change(path.read_bytes()))
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)

    return damage


def remove(name: str) -> Damage:
    return lambda root: shutil.rmtree(root / name)


def of_batch(root: Path, batch: int, partition: int = 0) -> Path:
    """Return the data file that a batch of generation 2 wrote for a partition."""
    for line in (root / LOG / f"{batch}").read_text().splitlines()[1:]:
        # The manifest has the path that the archive had when it was drained.
        [path] = (root / DATA).rglob(json.loads(line)["path"].rpartition("/")[2])
        if pq.read_table(path, partitioning=None)["partition"][0].as_py() == partition:
            return path
    raise AssertionError(f"batch {batch} wrote nothing of partition {partition}")


def on_file(batch: int, change: Callable[[Path], object]) -> Damage:
    """Damage the data file of a batch."""

    def damage(root: Path) -> None:
        path = of_batch(root, batch)
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
        change(path)

    return damage


def in_the_middle(path: Path) -> None:
    """Change a byte of a file's records, not of its footer."""
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)


def without_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100] + b"\0" * 100)


def line_twice(content: bytes) -> bytes:
    return content + b"\n" + content.split(b"\n")[1]


def other_line(root: Path) -> None:
    """List a copy of a data file in the manifest file of a sealed batch."""
    path = of_batch(root, 1)
    shutil.copy(path, path.with_name(f"copy-{path.name}"))
    log = root / LOG / "1"
    line = log.read_text().split("\n")[1]
    name = json.loads(line)["path"].rpartition("/")[2]
    log.write_text(log.read_text() + "\n" + line.replace(name, f"copy-{path.name}"))
    (log.parent / ".1.crc").unlink(missing_ok=True)


def other_values(root: Path) -> None:
    """Write other values than Spark read to a file that isn't sealed, and to the manifest."""
    path = of_batch(root, OPEN)
    before, table = path.stat().st_size, pq.read_table(path, partitioning=None)
    value = pa.array([b"forged"] * len(table), table.schema.field("value").type)
    pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", value), path)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    after = path.stat().st_size
    log = root / LOG / f"{OPEN}"
    lines = log.read_text().split("\n")
    changed = [
        line.replace(f'"size":{before}', f'"size":{after}') if path.name in line else line
        for line in lines
    ]
    assert changed != lines
    log.write_text("\n".join(changed))
    (log.parent / f".{OPEN}.crc").unlink(missing_ok=True)


def orphan(root: Path) -> None:
    path = of_batch(root, 1)
    shutil.copy(path, path.with_name(f"part-copy-{path.name}"))


def copy_tree(source: str, target: str) -> Damage:
    return lambda root: shutil.copytree(root / source, root / target)


def receipt(number: int) -> str:
    return f"{G2}/receipts/{number:012d}.json"


def edited(name: str, **changes: Any) -> Damage:
    """Edit a JSON document, as somebody does by hand."""
    return write(name, lambda content: json.dumps(json.loads(content) | changes).encode())


def newest_of(folder: str, damage: Callable[[str], Damage]) -> Damage:
    """Damage the file of a folder whose name is the greatest."""

    def run(root: Path) -> None:
        name = max(path.name for path in (root / folder).iterdir() if path.suffix == ".json")
        damage(f"{folder}/{name}")(root)

    return run


def unfinished_entry(root: Path) -> None:
    """Leave an entry of the journal as a power cut does, which nothing refers to yet."""
    newest = max((root / "journal").glob("*.json"))
    (newest.parent / f"{int(newest.stem) + 1:012d}.json").write_bytes(newest.read_bytes()[:100])


def resealed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Change what a document says, and seal it again."""

    def change(content: bytes) -> bytes:
        assert old in content
        body, _, rest = content.replace(old, new).rpartition(b',"sha256":"')
        digest = hashlib.sha256(body).hexdigest().encode()
        return body + b',"sha256":"' + digest + rest[len(digest) :]

    return change


def unsealed_window(root: Path) -> None:
    window = root / "windows" / "20120101T000000Z_20120101T010000Z" / "data"
    window.mkdir(parents=True)
    shutil.copy(of_batch(root, 1), window)


def manifest_path(root: Path) -> None:
    """Let the manifest file of the open batch name a file elsewhere."""
    log = root / LOG / f"{OPEN}"
    lines = log.read_text().split("\n")
    entry = json.loads(lines[1])
    lines.append(json.dumps(entry | {"path": "file:///elsewhere/part-00000-x.parquet"}))
    log.write_text("\n".join(lines))
    (log.parent / f".{OPEN}.crc").unlink(missing_ok=True)


def starts(shift: int) -> Damage:
    """Open the next generation at other offsets than those where the newest one ends."""

    def damage(root: Path) -> None:
        path = root / "generations" / "0003" / "generation.json"
        document = json.loads(path.read_bytes())
        [partitions] = document["starting_offsets"].values()
        partitions["0"] += shift
        path.write_text(json.dumps(document))

    return damage


#: The damage of each reason that can be made with files of a copied archive.
DAMAGES: Mapping[Reason, Damage] = {
    Reason.MANIFEST_MISSING: remove(LOG),
    Reason.MANIFEST_EMPTY: write(f"{LOG}/1", lambda content: b""),
    Reason.MANIFEST_TRUNCATED: write(f"{LOG}/1", lambda content: b"v1"),
    Reason.MANIFEST_CORRUPT: write(f"{LOG}/1", lambda content: content + b"\n<<<<<<< HEAD"),
    Reason.MANIFEST_HOLE: unlink(f"{LOG}/1"),
    Reason.MANIFEST_CHANGED: other_line,
    Reason.MANIFEST_DUPLICATE: write(f"{LOG}/{OPEN}", line_twice),
    Reason.MANIFEST_BEHIND: unlink(f"{LOG}/{OPEN}"),
    Reason.MANIFEST_AHEAD: unlink(f"{CHECKPOINT}/offsets/{OPEN}", f"{CHECKPOINT}/commits/{OPEN}"),
    Reason.CHECKPOINT_MISSING: remove(CHECKPOINT),
    Reason.CHECKPOINT_CORRUPT: write(f"{CHECKPOINT}/offsets/{OPEN}", lambda content: b""),
    Reason.CHECKPOINT_BEHIND: unlink(
        *(
            f"{folder}/{batch}"
            for folder in (f"{CHECKPOINT}/offsets", f"{CHECKPOINT}/commits", LOG)
            for batch in (SEALED, OPEN)
        )
    ),
    Reason.CHECKPOINT_HOLE: unlink(f"{CHECKPOINT}/commits/1"),
    Reason.FILE_MISSING: on_file(1, Path.unlink),
    Reason.FILE_OUTSIDE: manifest_path,
    Reason.FILE_SIZE: on_file(1, lambda path: path.write_bytes(path.read_bytes()[:-1])),
    Reason.FILE_CORRUPT: on_file(OPEN, without_footer),
    Reason.FILE_CHANGED: on_file(1, in_the_middle),
    Reason.FILE_REPLACED: on_file(1, Path.unlink),
    Reason.FILE_ORPHAN: orphan,
    Reason.COPY_IGNORED: copy_tree(G1, f"{G1} (1)"),
    Reason.WINDOW_UNSEALED: unsealed_window,
    Reason.OFFSET_MISSING: on_file(OPEN, Path.unlink),
    Reason.RECORDS_CHANGED: other_values,
    Reason.RECEIPT_CORRUPT: write(receipt(1), lambda content: content[:200]),
    Reason.RECEIPT_CHANGED: write(receipt(1), resealed(b'"sealed_at":"20', b'"sealed_at":"19')),
    Reason.RECEIPT_HOLE: unlink(receipt(1)),
    Reason.RECEIPT_MISPLACED: copy_tree(G1, "generations/0009"),
    Reason.RECEIPT_MISSING: unlink(receipt(SEALED)),
    Reason.DOCUMENT_CHANGED: edited(f"{G1}/generation.json", format="orc"),
    Reason.SEGMENT_HOLE: starts(3),
    Reason.SEGMENT_EARLY: starts(-3),
    Reason.JOURNAL_DAMAGED: unfinished_entry,
    Reason.SUMMARY_CHANGED: write(f"{G1}/summary.json", resealed(b'"records":40', b'"records":41')),
    Reason.COPY_DAMAGED: write(f"copies/{receipt(1)}", lambda content: content[:200]),
    Reason.CLUSTER_STATE_LOST: newest_of("cluster", unlink),
    Reason.SCHEMA_CHANGED: write(
        "registry.json", lambda content: content.replace(b'\\"to\\"', b'\\"at\\"')
    ),
    Reason.SCHEMA_SEAL_LOST: newest_of("schema-seals", unlink),
}

#: Commands that are run before an archive is damaged, or between that and its page.
ROLLED = ("validate", "roll")
PREPARED: Mapping[Reason, Sequence[str]] = {
    Reason.SEGMENT_HOLE: ROLLED,
    Reason.SEGMENT_EARLY: ROLLED,
}
#: What is to be done by hand before the command.
BY_HAND: Mapping[Reason, Damage] = {
    Reason.SEGMENT_EARLY: remove("generations/0003"),
    Reason.SCHEMA_CHANGED: lambda root: (root / "registry.json").unlink(),
}
#: Reasons that only a validation of all bytes finds.
DEEP = {Reason.FILE_CHANGED, Reason.COPY_DAMAGED}
#: Reasons that are found only as long as Kafka can't be asked.
ALONE = {Reason.CLUSTER_STATE_LOST}
#: Reasons whose commands need the Schema Registry, which a validation at the terminal doesn't name.
OF_REGISTRY = {Reason.SCHEMA_CHANGED, Reason.SCHEMA_SEAL_LOST}
#: Damages of a batch that isn't sealed, by the case's name.
OPEN_DAMAGES: Mapping[str, Damage] = {
    "manifest_empty open": write(f"{LOG}/{OPEN}", lambda content: b""),
    "manifest_truncated open": write(f"{LOG}/{OPEN}", lambda content: b"v1"),
    "manifest_corrupt open": write(f"{LOG}/{OPEN}", lambda content: content + b"\n<<<<<<< HEAD"),
}
#: What doesn't end with 0 and without the finding: exit code, and whether the finding is gone. By
#: the case and a part of the command.
OTHERWISE: Mapping[tuple[str, str], tuple[int, bool]] = {
    # What is left has a remedy of its own.
    ("manifest_missing", "repair"): (1, True),
    # Of a batch without a receipt; the other command mends it.
    ("manifest_duplicate", "repair"): (1, False),
    ("manifest_empty open", "repair"): (1, False),
    ("manifest_truncated open", "repair"): (1, False),
    ("manifest_corrupt open", "repair"): (1, False),
    # Kafka no longer has everything; the other command accepts that.
    ("file_missing expired, sealed", "repair"): (1, False),
    ("offset_missing expired", "--apply"): (1, False),
    ("offset_missing expired, sealed", "repair"): (1, False),
    ("offset_missing expired before", "--apply"): (1, False),
    ("content_unknown expired", "reprocess"): (1, False),
    # A warning that stays.
    ("file_replaced", "files"): (0, False),
    # Refused, because the archive isn't in the state that was only said.
    ("content_unknown", "reprocess"): (1, True),
    ("topic_made_again", "roll"): (1, True),
    ("topic_made_again", "--leave-unsealed"): (0, True),
    ("log_rewritten", "roll"): (2, True),
    ("status failed", "roll"): (1, True),
    # As without the command for expired offsets.
    ("offset_missing expired", "--acknowledge-expired"): (0, True),
    ("offset_missing expired before", "--acknowledge-expired"): (0, True),
}


def expected(name: str, command: str) -> tuple[int, bool]:
    """Return the exit code of a case's command, and whether its finding is gone after it."""
    found = (0, True)
    for (case, part), said in OTHERWISE.items():
        if case == name and part in command:
            found = said
    return found


@dataclass
class Built:
    """What all tests of the module share.

    Attributes:
        pages: What Airflow shows, by the case's name.
        archives: Where the damaged archives are, by the case's name.
        failed: Why some couldn't be made.
        found: The reasons that a validation finds in them, by the case's name.
    """

    folder: Path
    servers: str
    master: str
    registry: str
    pages: dict[str, str] = field(default_factory=dict)
    archives: dict[str, Path] = field(default_factory=dict)
    found: dict[str, set[str]] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)

    def place(self, name: str) -> Path:
        """Return the folder of a damaged archive."""
        return self.folder / f"it's {name}" / "an archive"

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note an error in the body: only the tests of this archive fail."""
        try:
            yield
        except Exception as error:
            self.failed[name] = error

    def kept(self, name: str) -> Path:
        """Return where a damaged archive is kept as it was when its page was made."""
        return self.folder / "kept" / name

    def keep(self, name: str) -> None:
        """Keep an archive as it is."""
        self.archives[name] = self.place(name)
        shutil.copytree(self.place(name), self.kept(name))

    def bash(self, command: str) -> subprocess.CompletedProcess[str]:
        """Paste a command into a shell."""
        programs = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        return subprocess.run(
            ["bash", "-c", command],
            env=environment(PATH=programs, COLUMNS="200"),
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )

    def validate(self, root: Path, *, deep: bool = False, asks: bool = True) -> dict[str, Any]:
        """Validate an archive, and return the result."""
        options = ["--master", self.master, *(["--deep"] if deep else [])]
        options += ["--bootstrap-servers", self.servers] if asks else []
        ended = kafka_drain("validate", root, *options, "--json")
        assert ended.code in (0, 1), ended.err
        return dict(json.loads(ended.out))


def run(*arguments: object) -> None:
    """Run a command that has to succeed."""
    ended = kafka_drain(*arguments)
    assert ended.code == 0, (arguments, ended.err)


def reasons_of(result: Mapping[str, Any]) -> set[str]:
    return {finding["reason"] for finding in result["findings"]}


# the archives


SCHEMA = {"type": "record", "name": "Flight", "fields": [{"name": "to", "type": "string"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """The registry of the records' schema."""
    with fake_registry() as found:
        found.register("flights-value", 1, SCHEMA)
        yield found


@pytest.fixture(scope="module")
def once() -> list[Built]:
    """What was built for the first test of this module."""
    return []


@pytest.fixture
def built(
    once: list[Built],
    tmp_path_factory: pytest.TempPathFactory,
    server: Server,
    registry: FakeRegistry,
    bootstrap_servers: str,
    make_topic: Any,
    send: Any,
) -> Built:
    """The damaged archives, and what Airflow shows of each."""
    if not once:
        folder = tmp_path_factory.mktemp("pasted")
        found = Built(folder, bootstrap_servers, server.master, registry.url)
        # Once, even if it fails: it takes minutes.
        once.append(found)
        make_programs(folder / "bin")
        topic = make_topic(partitions=2)
        flights = Flights(found, topic, send)
        flights.make(folder / "base")
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        for reason in Reason:
            with found.noting(reason.value):
                add_finding(found, reason)
        for name, damage_open in OPEN_DAMAGES.items():
            with found.noting(name):
                shutil.copytree(folder / "base", found.place(name))
                damage_open(found.place(name))
                add(found, name, found.place(name))
        for name, damage in OWN_TOPICS.items():
            with found.noting(name):
                its = Flights(found, make_topic(partitions=2), send)
                damage(OwnTopic(found, found.place(name), its, admin, make_topic))
                add(found, name, found.place(name))
        for name, damage in STATUSES.items():
            shutil.copytree(folder / "base", found.place(name))
            damage(found.place(name))
            found.keep(name)
        show(found)
    return once[0]


def make_programs(folder: Path) -> None:
    """Make the programs that are pasted: this checkout's, and a stand-in for one of Kafka's own."""
    folder.mkdir()
    for name, text in (
        ("kafka-drain", f'exec "{sys.executable}" -m kafka_drain.cli "$@"'),
        ("kafka-transactions.sh", 'printf "%s\\n" "$@"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


@dataclass
class Flights:
    """A topic, and drains of it."""

    built: Built
    topic: str
    send: Any
    sent: int = 0

    @property
    def options(self) -> tuple[str, ...]:
        return ("--bootstrap-servers", self.built.servers, "--master", self.built.master)

    def fill(self, records: int) -> None:
        for partition in (0, 1):
            values = [
                (b"%d" % n, in_wire_format(1, SCHEMA, {"to": f"{n:05d}"}), None, NOON + n)
                for n in range(self.sent, self.sent + records)
            ]
            self.send(self.topic, values, partition=partition)
        self.sent += records

    def drain(self, root: Path, records: int, *more: str) -> None:
        """Send records, and drain them in batches."""
        self.fill(records)
        batches = ("--source-option", f"maxOffsetsPerTrigger={2 * BATCH}")
        run("drain", root, "--topic", self.topic, *self.options, *batches, *more)

    def make(self, root: Path) -> None:
        """Make a closed generation, and an open one of which the last batch isn't sealed."""
        self.drain(root, 2 * BATCH)
        run("validate", root, "--bootstrap-servers", self.built.servers)
        run("roll", root, "--bootstrap-servers", self.built.servers)
        self.drain(root, (SEALED + 1) * BATCH)
        run("validate", root, "--bootstrap-servers", self.built.servers)
        run("capture-schemas", root, "--registry", self.built.registry)
        self.drain(root, BATCH)
        # For the next drain.
        self.fill(BATCH)


def add_finding(built: Built, reason: Reason) -> None:
    """Make an archive with a finding: by its damage, or said by a report of an intact one."""
    root = built.place(reason.value)
    shutil.copytree(built.folder / "base", root)
    for command in PREPARED.get(reason, ()):
        run(command, root, "--bootstrap-servers", built.servers)
    if reason in DAMAGES:
        DAMAGES[reason](root)
    else:
        say(root, reason)
    if reason is Reason.FILE_REPLACED:
        options = ("--bootstrap-servers", built.servers, "--master", built.master)
        run("repair", root, "--apply", *options)
    add(built, reason.value, root)


def say(root: Path, reason: Reason) -> None:
    """Note a finding as a validation does."""
    archive = Archive.at(str(root))
    topic = next(iter(archive.snapshot().document.topics), "flights")
    tp = TopicPartition(topic, 0)
    note = note_name(archive.generation(2), 1)
    subject = note if reason is Reason.CONTENT_UNKNOWN else tp
    report = Report(str(root), "flights", findings=[Finding(reason, subject, "as it is said")])
    if reason is Reason.OFFSET_UNEXPLAINED:
        report.add_gaps([Gap(tp, OffsetRange(3, 7), GapReason.UNEXPLAINED)], {})
    note_overview(archive, report, write_report(archive, report))


def add(built: Built, name: str, root: Path) -> None:
    """Validate a damaged archive, and keep a copy of it."""
    reason = Reason(name.partition(" ")[0])  # type: ignore[call-arg]
    if reason in DAMAGES or name != reason.value:
        found = built.validate(root, deep=reason in DEEP, asks=reason not in ALONE)
        built.found[name] = reasons_of(found)
    built.keep(name)


@dataclass
class OwnTopic:
    """An archive whose damage is in Kafka, with a topic of its own."""

    built: Built
    root: Path
    flights: Flights
    admin: AdminClient
    make_topic: Any

    def drain(self) -> None:
        self.flights.drain(self.root, BATCH)

    def delete(self, before: int) -> None:
        """Let the first records of partition 0 expire."""
        wanted = [KafkaTopicPartition(self.flights.topic, 0, before)]
        for future in self.admin.delete_records(wanted).values():
            future.result(30)

    def make_again(self) -> None:
        """Delete the topic, and make it again."""
        topic = self.flights.topic
        self.admin.delete_topics([topic])[topic].result(30)
        wait_for(self._is_made, "the topic anew")

    def _is_made(self) -> bool:
        try:
            self.make_topic(partitions=2, name=self.flights.topic)
        except KafkaException:
            return False
        return True


def expired(own: OwnTopic) -> None:
    """Lose a file that isn't sealed, of whose records Kafka has deleted some since."""
    own.drain()
    on_first(own.root, Path.unlink)
    own.delete(7)


def expired_sealed(own: OwnTopic) -> None:
    """Lose a sealed file, of whose records Kafka has deleted some since."""
    own.drain()
    own.built.validate(own.root)
    on_first(own.root, Path.unlink)
    own.delete(7)


def expired_before(own: OwnTopic) -> None:
    """Let records expire before they are drained, and drain what is left nevertheless."""
    own.drain()
    own.built.validate(own.root)
    own.flights.fill(BATCH)
    own.delete(BATCH + 7)
    own.flights.drain(own.root, BATCH, "--source-option", "failOnDataLoss=false")


def unknown(own: OwnTopic) -> None:
    """Let a drain be killed before it has noted what Spark read, and records of it expire."""
    own.drain()
    shutil.rmtree(own.root / G1 / "fingerprints")
    own.delete(3)


def recreated(own: OwnTopic) -> None:
    """Make a topic again before it was noted from which one a batch was read."""
    own.drain()
    (own.root / G1 / "read_from.json").unlink()
    own.make_again()
    own.flights.fill(BATCH)


def unreadable_overview(root: Path) -> None:
    (root / "overview.json").write_text("{")


def never_validated(root: Path) -> None:
    (root / "overview.json").unlink()


#: Archives without findings, by what their page says of them.
STATUSES: Mapping[str, Damage] = {
    "status damaged": unreadable_overview,
    "status not validated": never_validated,
    "status failed": never_validated,
}
#: By the case's name, which begins with the reason.
OWN_TOPICS: Mapping[str, Callable[[OwnTopic], None]] = {
    "offset_missing expired": expired,
    "offset_missing expired, sealed": expired_sealed,
    "offset_missing expired before": expired_before,
    "file_missing expired, sealed": expired_sealed,
    "content_unknown expired": unknown,
    "topic_made_again recreated": recreated,
}


def on_first(root: Path, change: Callable[[Path], object]) -> None:
    """Damage the data file that the first generation has of partition 0."""
    [path] = [
        path
        for path in (root / G1 / "data").rglob("part-*.parquet")
        if pq.read_table(path, partitioning=None)["partition"][0].as_py() == 0
    ]
    change(path)


# the pages


def show(built: Built) -> None:
    """Ask a real Airflow for the pages, with its connections."""
    dags = {f"drain_{number}": name for number, name in enumerate(built.archives)}
    pipelines = {
        dag_id: Pipeline(
            name=f"p{dag_id}",
            topics=["flights"],
            archive=str(built.archives[name]),
            kafka_conn_id="kafka_here",
            spark_conn_id="spark_here",
            registry_conn_id="registry_here",
        )
        for dag_id, name in dags.items()
    }
    assets = {dag_id: archive_asset(pipeline) for dag_id, pipeline in pipelines.items()}
    failed = {
        dag_id: f"no topic; run `kafka-drain roll {shlex.quote(str(built.archives[name]))}`"
        for dag_id, name in dags.items()
        if name == "status failed"
    }
    scene: Scene = {
        "dags": {dag_id: asset.uri for dag_id, asset in assets.items()},
        "extras": {dag_id: asset.extra for dag_id, asset in assets.items()},
        "runs": {
            dag_id: {"run 1": "success" if name == "status not validated" else "failed"}
            for dag_id, name in dags.items()
        },
        "tasks": [(dag_id, "run 1", "drain", "failed") for dag_id in failed],
        "xcoms": [
            {
                "dag_id": dag_id,
                "run_id": "run 1",
                "task_id": "drain",
                "key": "problem",
                "value": said,
            }
            for dag_id, said in failed.items()
        ],
    }
    host, _, port = built.master.removeprefix("sc://").partition(":")
    connections = {
        "kafka_here": {"conn_type": "kafka", "extra": {"bootstrap.servers": built.servers}},
        "spark_here": {"conn_type": "spark_connect", "host": host, "port": int(port)},
        "registry_here": {"conn_type": "generic", "extra": {"url": built.registry}},
    }
    requests = {name: (VIEWER, f"/kafka-drain/archives/{dag}") for dag, name in dags.items()}
    requests |= {
        f"{name}, report": (VIEWER, f"/kafka-drain/archives/{dag}/report")
        for dag, name in dags.items()
        if not name.startswith("status")
    }
    requests["list"] = (VIEWER, "/kafka-drain/archives")
    variables = {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps(values) for name, values in connections.items()
    }
    answers = ask(built.folder, scene, requests, variables)
    for name, answer in answers.items():
        assert answer.status == 200, (name, answer.text)
        built.pages[name] = answer.text


def commands_on(page: str) -> list[str]:
    """Return the commands that somebody copies from a page: the text of its code."""
    shown = map(html.unescape, re.findall("<code>([^<]*)</code>", page))
    return [*dict.fromkeys(text for text in shown if re.match(r"kafka-[a-z.-]+", text))]


def remedy_on(page: str, reason: Reason) -> str:
    """Return the part of an archive's page about a reason."""
    parts = re.findall('<div class="remedy">.*?</div>', page, re.DOTALL)
    [found] = [part for part in parts if f"<code>{reason.value}</code>" in part]
    return str(found)


@dataclass(frozen=True)
class Pasted:
    """What came of a pasted command."""

    name: str
    command: str
    code: int
    is_gone: bool
    said: str

    def __str__(self) -> str:
        short = re.sub(r"('[^']*'\"'\"'[^']*'|'[^']*'|\S*://\S+|127\S+)", "…", self.command)
        return f"| {self.name} | {short} | {self.code} | {'yes' if self.is_gone else 'no'} |"


@pytest.fixture(scope="module")
def table() -> Iterator[list[Pasted]]:
    """What came of all commands; printed in the end."""
    rows: list[Pasted] = []
    yield rows
    head = ["", "| finding | command | exit code | gone |", "| --- | --- | --- | --- |"]
    sys.stderr.write("\n".join([*head, *map(str, rows), ""]))


def paste(built: Built, name: str, reason: Reason | None, command: str) -> Pasted:
    """Paste a command, with the archive as it was when its page was made, and validate."""
    root = built.archives[name]
    shutil.rmtree(root)
    shutil.copytree(built.kept(name), root)
    if reason in BY_HAND and "--reseal" not in command:
        BY_HAND[reason](root)
    ended = built.bash(command)
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said, said
    assert "usage:" not in said, said
    left = reasons_of(built.validate(root, deep=reason in DEEP))
    sys.stderr.write(f"$ {command}\n{said}\nleft: {sorted(left)}\n")
    return Pasted(name, command, ended.returncode, reason is None or reason.value not in left, said)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_pasted_commands(reason: Reason, built: Built, table: list[Pasted]) -> None:
    """Each command of a finding runs where it is pasted, and leads where the page says."""
    for name in cases_of(reason):
        if name in built.failed:
            raise built.failed[name]
        assert name not in built.found or reason.value in built.found[name], built.found[name]
        part = remedy_on(built.pages[name], reason)
        commands = commands_on(part)
        for command in commands:
            pasted = paste(built, name, reason, command)
            table.append(pasted)
            assert (pasted.code, pasted.is_gone) == expected(name, command)


def cases_of(reason: Reason) -> list[str]:
    """Return the names of the archives with a finding."""
    more = [*OPEN_DAMAGES, *OWN_TOPICS]
    return [reason.value, *(name for name in more if name.startswith(f"{reason.value} "))]


def test_pasted_commands_one_after_another(built: Built) -> None:
    """A file of which Kafka has a part is given up in two steps; the first one says the second."""
    name = "offset_missing expired, sealed"
    [*_, command] = commands_on(remedy_on(built.pages[name], Reason.OFFSET_MISSING))
    first = paste(built, name, Reason.OFFSET_MISSING, command)
    [option] = re.findall(r"--replace-changed \S+", first.said)

    root = built.archives[name]
    assert built.bash(f"{command} {option}").returncode == 0
    assert reasons_of(built.validate(root)) <= {"offset_expired", "file_replaced"}


@pytest.mark.parametrize("name", STATUSES)
def test_pasted_commands_of_status(name: str, built: Built, table: list[Pasted]) -> None:
    """So do those of an archive that needs something else than a finding's remedy."""
    [found] = re.findall("<p><b>What to do: </b>.*?</p>", built.pages[name], re.DOTALL)
    commands = commands_on(found)

    assert commands
    for command in commands:
        pasted = paste(built, name, None, command)
        table.append(pasted)
        assert pasted.code == expected(name, command)[0]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_commands_of_report(reason: Reason, built: Built) -> None:
    """The report of the validation has the same commands as the page."""
    parts = re.findall('<div class="remedy">.*?</div>', built.pages[reason.value], re.DOTALL)

    wanted = {command for part in parts for command in commands_on(part)}
    found = set(commands_on(built.pages[f"{reason.value}, report"]))
    if reason in DAMAGES.keys() - ALONE - OF_REGISTRY:
        assert found == wanted
    else:
        # It was written without connections, without Kafka, or by who knows no registry.
        assert len(found) == len(wanted)


def test_commands_at_terminal(built: Built) -> None:
    """So has the terminal, in lines that are copied as they are."""
    name = Reason.OFFSET_MISSING.value
    root = built.folder / "it's at a terminal" / "an archive"
    shutil.copytree(built.kept(name), root)
    options = ("--bootstrap-servers", built.servers, "--master", built.master)
    seen = at_terminal(["-m", "kafka_drain.cli", "validate", root, *options], columns=60)
    parts = re.findall('<div class="remedy">.*?</div>', built.pages[name], re.DOTALL)

    wanted = [command for part in parts for command in commands_on(part)]
    here = shlex.quote(str(built.archives[name])), shlex.quote(str(root))
    found = re.findall("`(kafka-[^`]*)`", "\n".join(seen.lines))
    assert {*found} == {command.replace(*here) for command in wanted}


def test_offsets_are_counted(built: Built) -> None:
    """Page and list count the offsets that are missing, where the finding is one."""
    page = remedy_on(built.pages["offset_missing"], Reason.OFFSET_MISSING)

    assert f"<code>offset_missing</code>, {BATCH} offsets" in page
    assert f"are in no committed file ({BATCH} offsets)" in built.pages["offset_missing"]
    assert "a data file that doesn&#39;t exist (1 finding)" in built.pages["list"]
    assert "<code>file_missing</code>, 1 finding" in built.pages["offset_missing"]
