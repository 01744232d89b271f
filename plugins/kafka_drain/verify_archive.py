"""Verify an archive of Kafka records independently of the software that wrote it.

It follows the page "The archive's format". It needs pyarrow; fastavro for Avro, xxhash with --deep.
It checks what documents prove: seals, places, the chain of receipts, the journal, identities,
figures of receipts, plans of windows and what they replace, accounting of compactions, erasures and
deletions, overlaps and holes, cluster moments, schema seals, republish runs, copies; and that each
live file is there in its sealed size, a Parquet file with as many rows as sealed.
With --deep also each live file's SHA-256 and records: offsets, times, order, fingerprints.
It doesn't check: signatures, witness, what Kafka held, encrypted columns, times of events, keys,
unsealed batches and windows, `tail`, `nul_header_names`, `index_sha256`, kept schemas and notes.
Exit codes: 0 all that must hold does; 1 damage, missing offsets or disagreement; 2 it couldn't be
judged: not an archive, nothing sealed, a newer format, a missing library, no key, wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, reduce
from importlib import import_module
from multiprocessing import get_context
from typing import Any
from urllib.parse import unquote

Doc = dict[str, Any]
Range = tuple[int, int]  # the first offset, and the one after the last
Part = tuple[str, int]  # topic, partition
Key = tuple[str, str, int]  # topic, topic id, partition
Sealed = tuple["Segment", Doc]  # a file and its receipt
Held = dict[Key, list[tuple[int, int, str]]]  # ranges, each with what holds it

HARMLESS = {"control", "aborted", "compacted", "window", "deleted", "erased"}
IF_ACCEPTED = {"expired", "unexplained"}
REASONS = HARMLESS | IF_ACCEPTED | {"open", "lost", "unknown"}  # the last three are never sealed
SHARD = "topic topic_id partition target_topic target_partition records"  # of a republish's plan,
SENT = "source_topic source_topic_id source_partition target_topic target_partition records"
BOUNDS = {"first_offset": min, "last_offset": max, "first_timestamp": min, "last_timestamp": max}
SUPERSEDING = {"reprocess", "compact", "retention", "erase"}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
UNITS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}  # in nanoseconds
WHOLE = 16  # entries 1, 17, 33, … of the journal are whole
WINDOW = r"(?!\.)(?:[0-9A-Za-z_=+-]|\.[0-9]{3}Z)+"
NUMBERED = r"[0-9]{12}\.json"
ACCEPTED = r"(?s)(.+):([0-9]+):([0-9]+)-([0-9]+)"
JOURNALED = r"archive\.json|generations/[0-9]+/generation\.json|erasures/[0-9]+(\.lifted)?\.json"
JOURNALED += rf"|windows/{WINDOW}/(?:plan|receipt)\.json"

# Shapes of documents and their parts, each key with its type. `?` marks a key that may be absent,
# `~` one that may be null, [] an array, {} an object with any keys. SIMPLE: minima, patterns, types
SHAPES_TEXT = """
archive format_version:n pipeline:s cluster_id:s topics:{s} source:o retention?:~s immutable?:~o
    isolation_level?:read_committed|read_uncommitted; generation format_version:n generation:n
    format:parquet|orc|avro|json topics?:{s} starting_offsets:{{n}} partition_by:[topic|date|hour];
receipt format_version:n pipeline:s cluster_id:s topics:{s} generation:~n window:s first_batch:n
    last_batch:n previous:~h offsets:n records:n fingerprint:~f acknowledged:[accepted]
    replaces:[s] changed?:[accepted] provenance?:{s} journal?:n cluster?:head schemas?:head
    partitions:[row] files:[file] files_so_far:files sha256:h;
row topic:s partition:n start:n end:n records:n first_offset:~n last_offset:~n first_timestamp:~i
    last_timestamp:~i gaps:{[range]} kafka:~kafka so_far:so_far tail?:tail; tail offset:n hash:~f
    leader_epoch:~n; so_far start:n records:n gaps:{n}; kafka earliest:n last_stable:n
    high_watermark:n; files files:n bytes:n digest:d; file path:s bytes:n sha256:h
    contents:[content]; content topic:s partition:n first_offset:n last_offset:n records:n
    first_timestamp:~i last_timestamp:~i ascending:b;
plan kind?:backfill|repair|reprocess|compact|retention|erase topics?:{s} erasures?:[carried]
    interval?:~pair hashes?:{h} replaced?:replaced ranges:[span] replaces:[s]
    format:parquet|orc|avro|json partition_by:[topic|date|hour]; held topic:s partition:n records:n;
replaced files:n bytes:n records:[held]; carried erasure:n request:s by:s records:n;
span topic:s partition:n start:n end:n; head number:n sha256:h; entries entries:n sha256:h;
entry format_version:n entry:n previous:~h whole:b receipts:{newest} documents:{noted}
    forgotten?:{s} sha256:h; newest newest:name receipts:p sha256:h;
number format_version:n number:n previous:~h cluster_id?:s settings?:~h sha256:h;
sealed format_version:n sha256:h; lifted format_version:n; opened plan:h shards:n;
erasure format_version:n request:s salt:h keys:[h] headers:[header] topics:[s] from_ms:~i to_ms:~i
    scope:[reach] for_ever:b; header name:s hash:h; reach topic:s topic_id:s ends:~{n}
"""
SHAPES = {s.split()[0]: dict(k.split(":") for k in s.split()[1:]) for s in SHAPES_TEXT.split(";")}
SIMPLE: Doc = {"n": 0, "i": -(1 << 63), "b": bool, "o": dict, "s": "(?s).*", "h": "[0-9a-f]{64}"}
SIMPLE |= {"d": "[0-9a-f]{32}", "f": "[0-9a-f]{16}", "name": NUMBERED, "accepted": ACCEPTED}
SIMPLE |= {"noted": "[0-9a-f]{64}|removed|accepted", "p": 1}


def misfit(value: Any, shape: str, at: str = "it") -> str:
    """Say where a value departs from a shape; empty if nowhere."""
    parts: list[tuple[Any, str, str]] = []
    if shape[0] == "~":
        parts = [] if value is None else [(value, shape[1:], at)]
    elif shape[0] == "[" and isinstance(value, list):
        parts = [(one, shape[1:-1], f"{at}[]") for one in value]
    elif shape[0] == "{" and isinstance(value, dict):
        parts = [(one, shape[1:-1], f"{at}{{}}") for one in value.values()]
    elif shape in SHAPES and isinstance(value, dict):
        for key, kind in SHAPES[shape].items():
            name = key.rstrip("?")
            if name in value or key == name:
                parts.append((value.get(name, ...), kind, f"{at}.{name}"))
    else:
        limit = SIMPLE.get(shape, shape if "|" in shape and shape[0] != "[" else None)
        fits = type(value) is limit
        if shape in ("range", "pair"):
            fits = not misfit(value, "[n]" if shape == "range" else "[s]") and len(value) == 2
        elif isinstance(limit, str):
            fits = isinstance(value, str) and re.fullmatch(limit, value) is not None
        elif isinstance(limit, int):
            fits = type(value) is int and limit <= value < 1 << 63
        return "" if fits else f"{at} is missing or has a wrong value"
    return next(filter(None, (misfit(*part) for part in parts)), "")


def parse(raw: bytes, sealed: bool = False) -> Doc:
    """Parse a document strictly, and check its seal; ValueError says what is wrong with it."""

    def unique(pairs: list[tuple[str, Any]]) -> Doc:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("it has a key twice")
        return dict(pairs)

    doc = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    seal = re.fullmatch(rb'(.*),"sha256":"([0-9a-f]{64})"\}\n', raw)
    if not isinstance(doc, dict) or (sealed and not (seal and list(doc)[-1] == "sha256")):
        raise ValueError("it isn't an object, or doesn't end with a seal")
    if sealed and hashlib.sha256(seal[1]).hexdigest() != doc["sha256"]:
        raise ValueError("it was changed: its seal doesn't match")
    return doc


def canonical_hash(value: Any) -> str:
    """Return the SHA-256 of a value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def shape_of(path: str) -> str:
    """Return the shape of a document that the journal can name, or of a receipt."""
    name = "receipt" if "/receipts/" in path else path.rsplit("/", 1)[-1].removesuffix(".json")
    return name if name in SHAPES else "lifted" if name.endswith(".lifted") else "erasure"


def digest_of(path: str, doc: Doc) -> str:
    """Return the digest that the journal has of a document."""
    if (shape := shape_of(path)) == "archive":
        return canonical_hash([doc["pipeline"], doc["cluster_id"]])
    rest = {key: doc[key] for key in doc if (shape, key) != ("generation", "topics")}
    return doc["sha256"] if shape == "receipt" else canonical_hash(rest)


def subtract(ranges: Iterable[Range], without: Iterable[Range] = ()) -> list[Range]:
    """Return the first ranges without the others, sorted and merged."""
    edges = []
    for which, some in enumerate((ranges, without)):
        edges += [edge for a, b in some if a < b for edge in ((a, which, 1), (b, which, -1))]
    depth, start, rest = [0, 0], 0, []
    for at, which, step in sorted(edges):
        if at > start and depth[0] and not depth[1]:
            first = rest.pop()[0] if rest and rest[-1][1] == start else start
            rest.append((first, at))
        depth[which] += step
        start = at
    return rest


def size(ranges: Iterable[Range]) -> int:
    """Return the number of offsets in ranges."""
    return sum(end - start for start, end in ranges)


def show(ranges: list[Range]) -> str:
    """Write ranges for people, with the last offset inclusive."""
    text = ", ".join(f"{a}-{b - 1}" if b - a > 1 else f"{a}" for a, b in ranges[:5])
    return text + (f" and {len(ranges) - 5} more ranges" if len(ranges) > 5 else "")


def totals(files: list[Doc], before: Doc) -> Doc:
    """Return number, bytes and digest of files, added to those before."""
    digest, length = int(before.get("digest", "0"), 16), before.get("bytes", 0)
    for file in files:
        text = f"{file['path']}\0{file['bytes']}".encode("utf-8", "surrogatepass")
        digest += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
        length += file["bytes"]
    number, digits = before.get("files", 0) + len(files), f"{digest % (1 << 128):032x}"
    return {"files": number, "bytes": length, "digest": digits}


def contents_of(files: Iterable[Doc]) -> Iterator[tuple[Part, Doc, Range]]:
    """Yield the contents of files by partition, with the range of their offsets."""
    for one in (one for file in files for one in file["contents"]):
        yield (one["topic"], one["partition"]), one, (one["first_offset"], one["last_offset"] + 1)


@dataclass
class Segment:
    """A receipt, and what it says by partition."""

    place: str
    path: str
    doc: Doc
    plan: Doc | None = None
    rows: dict[Part, list[Doc]] = field(default_factory=lambda: defaultdict(list))
    own: dict[Part, list[tuple[Doc, Range]]] = field(default_factory=lambda: defaultdict(list))
    records: Counter[Part] = field(default_factory=Counter)  # in its files, whose contents are own

    def __post_init__(self) -> None:
        for row in self.doc["partitions"]:
            self.rows[row["topic"], row["partition"]].append(row)
        for part, one, span in contents_of(self.doc["files"]):
            self.own[part].append((one, span))
            self.records[part] += one["records"]

    def key(self, part: Part) -> Key:
        """Identify a partition by its topic's id, too."""
        return part[0], self.doc["topics"].get(part[0], "?"), part[1]

    def ranges(self, part: Part) -> list[Range]:
        """Return the offsets of a partition, gaps included."""
        return subtract((row["start"], row["end"]) for row in self.rows.get(part, []))

    def accepted(self, part: Part) -> list[Range]:
        """Return the offsets whose loss was accepted."""
        found = [re.fullmatch(ACCEPTED, one).groups() for one in self.doc["acknowledged"]]
        return [(int(a), int(b)) for topic, p, a, b in found if (topic, int(p)) == part]

    def gaps(self, part: Part, reasons: Iterable[str] = REASONS) -> list[Range]:
        """Return the offsets in gaps with one of these reasons."""
        rows = self.rows.get(part, [])
        return subtract((a, b) for r in rows for why in reasons for a, b in r["gaps"].get(why, []))


@dataclass
class Generation:
    """A generation's document and receipts, the oldest first."""

    place: str
    doc: Doc
    segments: list[Segment] = field(default_factory=list)

    @property
    def starts(self) -> dict[Part, int]:
        """Return the first offset of each partition that was there from the start."""
        found = self.doc["starting_offsets"].items()
        return {(topic, int(part)): at for topic, parts in found for part, at in parts.items()}

    def extents(self, topics: Doc) -> list[tuple[Key, int, int | None]]:
        """Return each partition's start and end; no end if nothing is sealed."""
        if self.segments:
            rows = [(self.segments[-1].key(p), r[0]) for p, r in self.segments[-1].rows.items()]
            return [(key, row["so_far"]["start"], row["end"]) for key, row in rows]
        ids = self.doc.get("topics", topics)
        return [((p[0], ids.get(p[0], "?"), p[1]), at, None) for p, at in self.starts.items()]


def micros_of(text: str) -> int:
    """Convert a time in ISO 8601, of any year, to microseconds since 1970."""
    year, rest = re.fullmatch(r"([+-]?\d{4,})(-.*)Z", text).groups()
    cycles, within = divmod(int(year) - 2000, 400)  # the calendar repeats after 400 years
    time = datetime.fromisoformat(f"{2000 + within}{rest}") - datetime(1970, 1, 1)
    return time // timedelta(microseconds=1) + cycles * 146_097 * 86_400_000_000


def arrow_rows(batch: Any) -> list[Doc]:
    """Return a batch's rows, with times in microseconds."""
    for name in {"timestamp", "timestampMillis"} & set(batch.schema.names):
        column, at = batch.column(name), batch.schema.get_field_index(name)
        unit = column.type.unit if name == "timestamp" else "ms"
        batch = batch.set_column(at, unit, column.cast("int64"))
    rows = batch.to_pylist()
    for row in rows:
        times = [row[unit] * UNITS[unit] // 1000 for unit in UNITS if row.get(unit) is not None]
        row["timestamp"] = times[0] if times else None
    return rows


def json_row(line: bytes) -> Doc:
    """Parse a line of JSON, and convert texts to what they stand for."""
    row = parse(line)
    row |= {name: base64.b64decode(row[name]) for name in ("key", "value") if name in row}
    for header in row.get("headers") or []:
        header["value"] = base64.b64decode(header["value"]) if "value" in header else None
    return row | {"timestamp": micros_of(row["timestamp"])}


def read_rows(path: str, kind: str) -> tuple[Iterable[Doc], bool]:
    """Return a file's rows, and whether it is encrypted: reading all columns could crash then."""
    stream = import_module({".gz": "gzip", "bz2": "bz2"}.get(path[-3:], "io")).open(path, "rb")
    if path.endswith(".deflate"):
        stream = import_module("zlib").decompress(stream.read()).splitlines()
    if kind == "json":
        return map(json_row, stream), False
    if kind == "avro":
        avro = import_module("fastavro.read")
        avro.LOGICAL_READERS.clear()  # years beyond 9999, in decoded columns too
        return avro.reader(stream), False
    if kind == "orc":
        file = import_module("pyarrow.dataset").OrcFileFormat().make_fragment(stream)
        names, hidden = {*COLUMNS, "timestampMillis"} & set(file.physical_schema.names), False
        names -= {"timestamp"} if "timestampMillis" in names else set()
        batches = file.to_batches(columns=sorted(names), batch_size=64, batch_readahead=0)
    else:
        stream.seek(-8, os.SEEK_END)
        stream.seek(-8 - int.from_bytes(stream.read(4), "little"), os.SEEK_END)
        hidden = b'"masterKeyID"' in stream.read()
        file = import_module("pyarrow.parquet").ParquetFile(path, coerce_int96_timestamp_unit="us")
        names = set(COLUMNS[2:7] if hidden else COLUMNS) & set(file.schema_arrow.names)
        batches = file.iter_batches(256, columns=sorted(names), use_threads=False)
    return (row for batch in batches for row in arrow_rows(batch)), hidden


def hash_of(row: Doc, topic: str) -> int:
    """Return Spark's xxhash64 of a record."""
    xxhash = import_module("xxhash")
    parts = [topic.encode(), struct.pack("<i", row["partition"]), struct.pack("<q", row["offset"])]
    parts += [] if row["timestamp"] is None else [struct.pack("<Q", row["timestamp"] % (1 << 64))]
    parts += [struct.pack("<i", row["timestampType"]), row.get("key"), row.get("value")]
    for header in row.get("headers") or []:
        parts += [None if header["key"] is None else header["key"].encode(), header["value"]]
    seed = 42
    for part in parts:
        seed = seed if part is None else xxhash.xxh64_intdigest(part, seed=seed)
    return seed


def examine(path: str, kind: str | None = None, sealed: str = "") -> Doc:
    """Read all rows of a file, if it has the sealed SHA-256; or count those of a Parquet file."""
    if kind is None:
        return {"rows": import_module("pyarrow.parquet").read_metadata(path).num_rows}
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    if sealed != digest.hexdigest():
        return {"error": "its bytes were changed: it has another SHA-256"}
    folders = [unquote(one) for one in re.findall("/topic=([^/]+)/", path[path.rindex("/data/") :])]
    rows, hidden = read_rows(path, kind)
    answer: Doc = {"parts": {}, "xor": 0, "hidden": hidden}
    for row in rows:
        topic, offset = folders[-1] if folders else row["topic"], row["offset"]
        fresh = {"times": [], "records": 0, "runs": [], "ascending": True}
        part = answer["parts"].setdefault((topic, row["partition"]), fresh)
        runs, start = part["runs"], offset
        if runs and runs[-1][1] == offset:
            start, _ = runs.pop()
        part["ascending"] &= not runs or runs[-1][1] < offset
        runs.append((start, offset + 1))
        times = part["times"] + ([] if row["timestamp"] is None else [row["timestamp"] // 1000])
        part["times"] = [min(times), max(times)] if times else []
        part["records"] += 1
        answer["xor"] ^= 0 if hidden else hash_of(row, topic)
    return answer


class Reader:
    """A child process that reads data files, as damaged ones can crash it; then it starts again."""

    pool: ProcessPoolExecutor | None = None

    @classmethod
    def ask(cls, *job: str | None) -> Doc:
        """Examine a file; return why if that fails: of sealed bytes, a crash is no damage."""
        try:
            cls.pool = cls.pool or ProcessPoolExecutor(1, get_context("spawn"), os.close, (2,))
            return cls.pool.submit(examine, *job).result()
        except Exception as error:  # whatever a library raises about a damaged file, or a crash
            cls.pool = None if isinstance(error, BrokenExecutor) else cls.pool
            lacks = (ImportError, MemoryError, BrokenExecutor) if len(job) > 1 else ImportError
            missing = isinstance(error, lacks) or re.search("need to install|nanosec", str(error))
            return {"unread" if missing else "error": f"it can't be read: {error!r:.200}"}


class Verifier:
    """Checks one archive, and collects what it finds."""

    def __init__(self, root: str, deep: bool) -> None:
        self.root, self.deep = os.path.realpath(root), deep
        self.found: dict[tuple[str, str, str], None] = {}  # findings, each once
        self.archive: Doc = {}
        self.generations: list[Generation] = []
        self.windows: dict[str, Segment] = {}
        self.segments: list[Segment] = []
        self.files: dict[str, Sealed] = {}
        self.live: dict[str, Sealed] = {}
        self.covered: dict[Key, list[Range]] = defaultdict(list)  # by windows, and accepted holes
        self.filled: dict[Key, list[Range]] = defaultdict(list)  # the same but for gaps `window`
        self.spans: dict[Key, list[Doc]] = defaultdict(list)  # live files by partition
        self.entries = 0  # the journal's newest entry, and what it names:
        self.receipts: dict[str, Doc] = {}
        self.documents: dict[str, str] = {}
        self.forgotten: dict[str, str] = {}

    def must(self, where: str, holds: bool, what: str, level: str = "errors") -> bool:
        """Note a finding (errors, unknown, warnings or unsealed) unless something holds."""
        if not holds:
            self.found[level, where, what] = None
        return holds

    def names(self, folder: str, pattern: str) -> list[str]:
        """List the names in a folder that match a pattern."""
        found = os.listdir(full) if os.path.isdir(full := f"{self.root}/{folder}") else []
        return sorted(name for name in found if re.fullmatch(pattern, name))

    def load(self, path: str, shape: str, level: str = "errors") -> Doc | None:
        """Read a document; None if it isn't there or, with a finding, is damaged."""
        full, plan = f"{self.root}/{path}", shape == "sealed" and "/plan" in path
        newest = 4 if plan else 2 if shape == "archive" else 1
        if not os.path.isfile(full):
            return None
        try:
            with open(full, "rb") as stream:
                doc = parse(stream.read(), {"format_version", "sha256"} <= set(SHAPES[shape]))
            version = doc.get("format_version", 1)
            if type(version) is int and version > newest and level == "errors":
                raise NotImplementedError(f"{path} is of the newer version {version}")
            wrong = misfit(doc, shape) or ("" if 0 < version <= newest else "its version")
        except (ValueError, RecursionError) as error:
            wrong = str(error)
        return doc if self.must(path, not wrong, f"damaged: {wrong}", level) else None

    def read(self) -> None:
        """Read archive.json, generations and windows."""
        archive = self.load("archive.json", "archive")
        if archive is None and not self.found and not self.names("generations", "[0-9]+"):
            raise NotImplementedError("this isn't an archive: there is no archive.json")
        self.must("archive.json", archive is not None, "it is missing or damaged")
        self.archive = archive or dict.fromkeys(SHAPES["archive"], "") | {"topics": {}}
        for name in sorted(self.names("generations", "(?!0000)[0-9]{4}|[1-9][0-9]{4,}"), key=int):
            place = f"generations/{name}"
            doc = self.load(f"{place}/generation.json", "generation")
            fits = doc is not None and doc["generation"] == int(name)
            level = "errors" if self.names(place, "receipts|data") or doc else "warnings"
            self.must(place, fits, "its generation.json is missing, damaged or another one", level)
            owner = Generation(place, doc or {"starting_offsets": {}, "format": None})
            for path in self.names(f"{place}/receipts", NUMBERED):
                if receipt := self.load(f"{place}/receipts/{path}", "receipt"):
                    owner.segments.append(Segment(place, f"{place}/receipts/{path}", receipt))
            self.generations.append(owner)
        for place in (f"windows/{name}" for name in self.names("windows", WINDOW)):
            if doc := self.load(f"{place}/receipt.json", "receipt"):
                plan = self.load(f"{place}/plan.json", "plan")
                self.must(place, plan is not None, "its plan.json is missing or damaged")
                seg = self.windows[place] = Segment(place, f"{place}/receipt.json", doc, plan)
                for part in seg.rows:
                    self.covered[seg.key(part)] += (own := seg.ranges(part))
                    self.filled[seg.key(part)] += subtract(own, seg.gaps(part, ["window"]))
        self.segments = [*sum((g.segments for g in self.generations), []), *self.windows.values()]
        for seg in self.segments:
            for file in seg.doc["files"]:
                path = file["path"]
                fits = path.startswith(f"{seg.place}/data/") and path not in self.files
                fits &= "\0" not in path and not {"", ".", ".."} & set(path.split("/"))
                if self.must(seg.path, fits, f"{path!r} is there twice, or not below its data/"):
                    self.files[path] = seg, file
        gone = {path for seg in self.windows.values() for path in seg.doc["replaces"]}
        self.live = {path: found for path, found in self.files.items() if path not in gone}

    def read_chain(self, folder: str, number: str, last: str) -> tuple[int, dict[int, Doc]]:
        """Read a chain of numbered documents; check it, and the document that names its end."""
        docs: dict[int, Doc] = {}
        top = max((int(name[:12]) for name in self.names(folder, NUMBERED)), default=0)
        first = max(top - 1, 0) // WHOLE * WHOLE + 1 if folder == "journal" else 1
        for at in range(first, top + 1):
            path, before = f"{folder}/{at:012d}.json", docs.get(at - 1)
            level = "errors" if folder == "journal" or at == top else "warnings"
            doc = self.load(path, number, level)
            fits = doc is not None and doc[number] == at
            fits = fits and (before is None or doc["previous"] == before["sha256"])
            self.must(path, fits, "it is missing, damaged or out of its chain", level)
            docs |= {at: doc} if doc else {}
        head, path = self.load(f"{folder}.json", last), f"{folder}.json"
        fits = top <= 1 and not os.path.lexists(f"{self.root}/{path}")  # it may lag by one
        if head is not None:
            at = head["entries" if folder == "journal" else "number"]
            fits = max(top - 1, 1) <= at <= top and docs.get(at, head)["sha256"] == head["sha256"]
        self.must(path, fits, f"it is missing, damaged or doesn't name the newest, {top}")
        return top, docs

    def read_journal(self) -> None:
        """Apply the entries from the newest whole one on."""
        self.entries, docs = self.read_chain("journal", "entry", "entries")
        self.must("journal", self.entries > 0, "there is none: a loss may not show", "warnings")
        for number, entry in docs.items():
            fits = entry["whole"] == (number % WHOLE == 1) and (number > 1 or not entry["previous"])
            self.must(f"journal {number}", fits, "it isn't a whole entry, or shouldn't be one")
            for place, value in entry["receipts"].items():
                if place not in self.receipts or value["newest"] > self.receipts[place]["newest"]:
                    self.receipts[place] = value
            for document, digest in entry["documents"].items():
                if digest == "removed" or document not in self.documents:
                    self.documents[document] = digest
            self.forgotten |= entry.get("forgotten", {})

    def check_journal(self) -> None:
        """Check that everything that the journal names is there, unchanged."""
        segments = {generation.place: generation.segments for generation in self.generations}
        what = "it isn't there as the journal names it (see whether its copy in copies/ is)"
        for place, value in self.receipts.items():
            path = f"{place}/receipts/{value['newest']}"
            known = {s.path: s.doc["sha256"] for s in segments.get(place, []) if s.path <= path}
            self.must(path, known.get(path, self.forgotten.get(path)) == value["sha256"], what)
            lost = any(key.startswith(f"{place}/receipts/") for key in self.forgotten)
            fits = len(known) == value["receipts"] or (lost and len(known) < value["receipts"])
            self.must(place, fits, f"it has {len(known)} receipts, not {value['receipts']}")
        settings = {path for path in self.documents if path.startswith("settings/")}
        for path, digest in self.documents.items():
            if hole := re.fullmatch(f"(?s)holes/(.*)/{ACCEPTED[4:]}", path):
                topic_id, topic, partition, start, end = hole.groups()
                for ranges in self.covered, self.filled:
                    ranges[topic, topic_id, int(partition)].append((int(start), int(end)))
            elif re.fullmatch(JOURNALED, path) and digest not in ("removed", "accepted"):
                doc = self.load(path, shape_of(path))
                fits = doc is not None and digest_of(path, doc) == digest
                level = "warnings" if self.forgotten.get(path) == digest else "errors"
                self.must(path, fits, what, level)
            elif path not in settings and digest != "removed":
                self.must(path, False, "this program can't check what the journal names", "unknown")
        own = [self.archive.get("isolation_level", "read_committed"), self.archive.get("retention")]
        copy = self.load("copies/archive.json", "archive", "warnings") or {}
        own += [one for one in [self.archive.get("immutable") or copy.get("immutable")] if one]
        fits = not settings or f"settings/{canonical_hash(own)}" in settings
        self.must("archive.json", fits, "no drain has used its settings")
        erasures = [f"erasures/{n}" for n in self.names("erasures", r"[0-9]+(\.lifted)?\.json")]
        fits = self.archive["format_version"] != 1 or not self.names("erasures", r"[0-9]+\.json")
        self.must("archive.json", fits, "there are erasures, and its format is 1")
        named = {path[:-16] for path in self.documents if path.endswith("/generation.json")}
        self.must("journal", named == set(self.receipts), "it names a document or receipts only")
        for path in [*erasures, *(seg.path for seg in self.windows.values())] * (self.entries > 0):
            self.must(path, path in self.documents, "the journal lacks it (yet)", "warnings")

    def check_chain(self) -> None:
        """Check that each receipt follows the one before it, and is where it belongs."""
        last: Segment | None = None
        for generation in self.generations:
            before: Segment | None = None
            for seg in generation.segments:
                doc, given_up = seg.doc, self.forgotten.get(seg.path)
                fits = (doc["generation"], doc["window"]) == (int(generation.place[12:]), "")
                fits &= doc["first_batch"] <= doc["last_batch"] == int(seg.path[-17:-5])
                self.must(seg.path, fits, "it is the receipt of another place")
                if given_up is None or given_up != doc["previous"]:
                    fits = doc["previous"] == (last.doc["sha256"] if last else None)
                    fits &= doc["first_batch"] == (before.doc["last_batch"] + 1 if before else 0)
                    self.must(seg.path, fits, "it doesn't follow the receipt before it")
                    self.check_continuity(generation, seg, before)
                before = last = seg
        for place, seg in self.windows.items():
            own = [seg.doc[key] for key in ("generation", "previous", "first_batch", "last_batch")]
            fits = own == [None, None, 0, 0] and f"windows/{seg.doc['window']}" == place
            self.must(seg.path, fits, "it is the receipt of another place")
            fits = seg.doc["files_so_far"] == totals(seg.doc["files"], {})
            for row in seg.doc["partitions"]:
                gaps = +Counter({why: size(some) for why, some in row["gaps"].items()})
                own = {"start": row["start"], "records": row["records"], "gaps": gaps}
                fits &= row["so_far"] == own
            self.must(seg.path, fits, "its totals aren't those of its rows and files")

    def check_continuity(self, owner: Generation, seg: Segment, before: Segment | None) -> None:
        """Check a receipt's starts and totals against the previous one of its generation."""
        ok = partial(self.must, seg.path)
        old_rows, ids = (before.rows, before.doc["topics"]) if before else ({}, {})
        fits = set(old_rows) | set(owner.starts) <= set(seg.rows)
        fits &= ids.items() <= seg.doc["topics"].items()
        ok(fits, "it lacks a partition or topic id of the generation")
        sums = totals(seg.doc["files"], before.doc["files_so_far"] if before else {})
        ok(seg.doc["files_so_far"] == sums, "the totals of files so far don't add up")
        for part, (row, *more) in seg.rows.items():
            old = old_rows[part][0] if part in old_rows else {}
            start = old.get("end", owner.starts.get(part, 0))
            total = old.get("so_far", {"start": start, "records": 0, "gaps": {}})
            sums = {"start": total["start"], "records": total["records"] + row["records"]}
            gaps = Counter({why: size(some) for why, some in row["gaps"].items()})
            sums["gaps"] = Counter(total["gaps"]) + gaps
            fits = not more and row["start"] == start and row["so_far"] == sums
            ok(fits, f"{part} doesn't go on at {start}, or its totals don't add up")

    def check_receipt(self, seg: Segment) -> None:
        """Check a receipt by itself."""
        ok, doc, rows = partial(self.must, seg.path), seg.doc, seg.doc["partitions"]
        ok(all(doc[k] == self.archive[k] for k in ("pipeline", "cluster_id")), "of another archive")
        ok(doc.get("journal", 0) <= self.entries, "an entry of the journal before it is gone")
        sums = [sum(r["end"] - r["start"] for r in rows), sum(r["records"] for r in rows)]
        ok([doc["offsets"], doc["records"]] == sums, "its totals aren't the sums of its rows")
        known = {part for part in seg.rows if part[0] in doc["topics"]}
        ok(known == set(seg.rows) | set(seg.records), "it lacks a partition or a topic id")
        for part in seg.rows:
            self.check_partition(seg, part)

    def check_partition(self, seg: Segment, part: Part) -> None:
        """Check a receipt's figures of one partition."""
        ok = partial(self.must, f"{seg.path}, {part[0]}:{part[1]}")
        rows, ranges, gaps = seg.rows[part], seg.ranges(part), seg.gaps(part)
        touching = len(ranges) < sum(row["start"] < row["end"] for row in rows)
        for row in rows:
            every = [(why, (a, b)) for why, some in row["gaps"].items() for a, b in some]
            holes = [gap for _, gap in every]
            rest = row["end"] - row["start"] - size(holes)
            fits = row["records"] == rest or (touching and row["records"] > rest)
            ok(fits and rest >= 0, "its records and gaps don't make its offsets")
            inside = subtract(holes, subtract(holes, [(row["start"], row["end"])]))
            ok(size(holes) == size(inside), "a gap is outside its range, or an offset in two gaps")
            ok(bool(row["records"]) == (row["first_offset"] is not None), "its bounds are wrong")
            for why, gap in every:
                lost = subtract([gap], seg.accepted(part) if why in IF_ACCEPTED else ())
                fits = why in HARMLESS or not lost or bool(seg.plan and seg.doc.get("provenance"))
                ok(fits and why in REASONS, f"{show(lost)} is missing: {why}")
        length = sum(row["end"] - row["start"] for row in rows)
        fits = size(ranges) == length and seg.records[part] == length - size(gaps)
        ok(fits, "its ranges overlap, or its files don't have all of its records")
        own = seg.own.get(part, [])
        for one, (a, b) in own:
            rest = subtract([(a, a + 1), (b - 1, b)], subtract(ranges, gaps))
            ok(not rest and 0 < one["records"] <= b - a, "a file has other offsets than it may")
        for what, pick in BOUNDS.items() if len(rows) == 1 else ():
            values = [one[what] for one, _ in own if one[what] is not None]
            ok(rows[0][what] == pick(values, default=None), f"its {what} isn't that of its files")

    def check_identity(self) -> None:
        """Check topic ids and starting offsets of generations and of archive.json."""
        ids: dict[str, set[str]] = defaultdict(set)
        for topic, topic_id in (one for seg in self.segments for one in seg.doc["topics"].items()):
            ids[topic].add(topic_id)
        for generation in self.generations:
            ok = partial(self.must, f"{generation.place}/generation.json")
            topics = generation.doc.get("topics")
            for topic in topics or ():
                ids[topic].add(topics[topic])
            for newest in generation.segments[-1:]:
                for topic, topic_id in newest.doc["topics"].items():
                    ids[topic] = {topic_id}
                    fits = topics is None or topics.get(topic) == topic_id
                    ok(fits, f"its topic id of {topic} isn't that of its receipts")
                for part, rows in newest.rows.items():
                    fits = rows[0]["so_far"]["start"] == generation.starts.get(part, 0)
                    ok(fits, f"{part} starts elsewhere than its receipts say")
        for topic in {one for seg in self.segments for one in seg.doc["topics"]}:
            fits = self.archive["topics"].get(topic) in ids[topic]
            self.must("archive.json", fits, f"its topic id of {topic} isn't that of the receipts")

    def check_plan(self, seg: Segment, plan: Doc) -> None:
        """Check a window's receipt against its plan, and that it covers what it replaces."""
        ok, doc, replaces = partial(self.must, seg.path), seg.doc, seg.doc["replaces"]
        fits = sorted(plan["replaces"]) == sorted(replaces) == sorted(set(replaces))
        ok(fits, "its plan replaces other files, or one twice")
        fits = seg.path not in self.documents or f"{seg.place}/plan.json" in self.documents
        kind = plan.get("kind") or doc["window"].split("_")[0]
        fits &= not doc.get("provenance") or kind in ("compact", "erase")
        ok(fits, "the journal lacks its plan.json, or it can't have a provenance")
        planned: dict[Part, list[Range]] = defaultdict(list)
        for row in plan["ranges"]:
            planned[row["topic"], row["partition"]].append((row["start"], row["end"]))
        own = {part: [(r["start"], r["end"]) for r in rows] for part, rows in seg.rows.items()}
        fits = {part: sorted(ranges) for part, ranges in own.items()} == planned
        if kind not in SUPERSEDING | {"repair"}:  # a backfill, that can have less
            ids = plan.get("topics", doc["topics"])
            fits = all(a < b for ranges in own.values() for a, b in ranges)
            fits &= not any(subtract(ranges, planned[part]) for part, ranges in own.items())
            fits &= all(ids.get(topic) == doc["topics"].get(topic) for topic, _ in own)
        ok(fits, "its plan has other ranges or topic ids")
        removed = [path for path, digest in self.documents.items() if digest == "removed"]
        gone = {"/".join(path.split("/")[:2]) for path in (*removed, *self.forgotten)}
        old = [self.files[path] for path in replaces if path in self.files]
        lost = [p for p in replaces if p not in self.files and p.split("/data/")[0] not in gone]
        ok(not lost or kind not in SUPERSEDING, f"no receipt has {lost[:1]}, which it replaces")
        gone_of = seg.accepted if kind == "repair" else lambda _: []
        for owner, file in old:
            hashes = plan.get("hashes", {file["path"]: file["sha256"]})
            fits = kind != "erase" or hashes.get(file["path"]) == file["sha256"]
            ok(fits, f"its plan has another SHA-256 of {file['path']}")
            for part, one, (a, b) in contents_of([file]):
                span = [(a, b)] if one["records"] == b - a else [(a, a + 1), (b - 1, b)]
                rest = subtract(span, seg.ranges(part) + gone_of(part))
                ok(not rest, f"it replaces {show(rest)} of {part}, and has no such range")
                fits = kind not in SUPERSEDING | {"repair"} or owner.key(part) == seg.key(part)
                ok(fits, f"{file['path']} is of another topic with this name")
        if kind in SUPERSEDING and len(old) == len(replaces):
            self.check_accounts(seg, plan, kind, old)

    def check_accounts(self, seg: Segment, plan: Doc, kind: str, old: list[Sealed]) -> None:
        """Check the fate of the records of intact files."""
        ok, named, erased = partial(self.must, seg.path), seg.doc.get("provenance", {}), 0
        records: Counter[Part] = Counter()
        for part, one, _ in contents_of(file for _, file in old):
            records[part] += one["records"]
        if planned := plan.get("replaced"):
            own = {(row["topic"], row["partition"]): row["records"] for row in planned["records"]}
            sums = len(old), sum(file["bytes"] for _, file in old), records
            fits = (planned["files"], planned["bytes"], +Counter(own)) == sums
            ok(fits, "`replaced` of its plan isn't the sum of these files")
        owners = {owner.path for owner, _ in old}
        fits = not named or all(re.match("windows/repair_", one) for one in owners - set(named))
        ok(fits, "its provenance lacks receipts of files it replaces")
        sources = {one.path: one for one in self.segments if one.path in owners | set(named)}
        for path, sha256 in named.items():
            fits = self.documents.get(path) == "removed" or path in self.forgotten
            fits = sources[path].doc["sha256"] == sha256 if path in sources else fits
            ok(fits, f"the receipt {path} that it is made from isn't there")
        for part in set(seg.rows) | set(records):
            after, lost = {}, [r for s in sources.values() if s.plan for r in s.accepted(part)]
            for why in REASONS:
                before = [gap for one in sources.values() for gap in one.gaps(part, [why])]
                after[why] = subtract(seg.gaps(part, [why]), before + lost * (why == "expired"))
            new = size(after.pop("erased")) if kind == "erase" else 0
            deleted = size(seg.gaps(part, ["deleted"])) if kind == "retention" else 0
            fits = kind == "reprocess" or seg.records[part] + new + deleted == records[part]
            ok(fits, f"{part}: {records[part]} replaced records aren't accounted for")
            erased += new
            for why in set(after) - {"deleted"} if kind in ("compact", "erase") else ():
                ok(not after[why], f"{part}: {show(after[why])} became {why}")
        numbers = [one["records"] for one in plan.get("erasures", [])] or [0]
        fits = kind != "erase" or max(numbers) <= erased <= sum(numbers)
        known = {f"erasures/{name}" for name in self.names("erasures", ".*")} | set(self.forgotten)
        fits &= known >= {f"erasures/{one['erasure']:04}.json" for one in plan.get("erasures", [])}
        ok(fits, f"it erased {erased} records, its plan has {numbers}, or their erasures are gone")

    def check_offsets(self) -> None:
        """Check that no offset is held twice, and none is missing."""
        held, exact = defaultdict(list), defaultdict(list)
        ends: dict[Key, int] = {}
        for generation in self.generations:
            ok = partial(self.must, generation.place)
            for key, start, end in generation.extents(self.archive["topics"]):
                at = ends.get(key, start)
                ok(start >= at, f"{key} starts at {start}, before {at}, where the one before ends")
                lost = subtract([(at, start)], self.covered[key])
                ok(not lost, f"{key}: {show(lost)} before it is missing")
                if end is not None:
                    ends[key] = end
                    held[key].append((start, end, generation.place))
        for generation in self.generations:
            for key, start, end in generation.extents({}) if generation.segments else ():
                others = [(a, b) for a, b, place in held[key] if place != generation.place]
                part, own, left = (key[0], key[2]), list(self.covered[key]), []
                for seg in generation.segments:
                    own += seg.ranges(part)
                    left += seg.gaps(part, ["window"])
                lost = subtract([(start, end)], own) + subtract(left, others + self.filled[key])
                self.must(generation.place, not lost, f"{key}: nothing covers {show(lost)}")
        for path, (seg, file) in self.live.items():
            for part, one, (first, last) in contents_of([file]):
                ranges = subtract([(first, last)], seg.gaps(part))
                sure, row = size(ranges) == one["records"], {"start": first, "end": last}
                row |= {"records": one["records"], "file": path, "exact": sure, "offsets": ranges}
                self.spans[seg.key(part)].append(row)
                exact[seg.key(part)] += [(*span, path) for span in ranges if sure]
        self.check_once(exact)
        for seg in {one.place: one for one, _ in self.live.values() if one.plan}.values():
            for part in seg.rows:
                own = subtract(seg.ranges(part), seg.gaps(part, REASONS - {"erased"}))
                held[seg.key(part)] += [(*one, seg.place) for one in own]
        self.check_overlaps(held)

    def check_once(self, held: Held) -> None:
        """Check that the offsets of files don't overlap."""
        for key, ranges in held.items():
            end, holder = -1, ""
            for a, b, path in sorted(ranges):
                self.must(path, a >= end, f"{key}: {show([(a, min(b, end))])} is in {holder}, too")
                end, holder = max((end, holder), (b, path))

    def check_overlaps(self, held: Held) -> None:
        """Check that segments hold different offsets of a partition, but for the exceptions."""
        reach: dict[str, set[str]] = {}  # whose files a window replaces, directly or through others
        for place in self.windows:
            todo, seen = [place], reach.setdefault(place, set())
            while todo:
                one = self.windows.get(todo.pop())
                new = {path.split("/data/")[0] for path in one.doc["replaces"]} if one else set()
                todo += new - seen
                seen |= new
            self.must(place, place not in seen, "it replaces its own files, or through others")
        newest = {one.place: one.segments[-1] for one in self.generations if one.segments}
        for key, ranges in held.items():
            shared: Counter[str] = Counter()
            active: list[tuple[int, str]] = []
            for start, end, place in sorted(ranges):
                active = [one for one in active if one[0] > start]
                for other_end, other in active:
                    pair, both = sorted((place, other)), [(start, min(end, other_end))]
                    if other not in reach.get(place, ()) and place not in reach.get(other, ()):
                        allowed = pair[0] in newest and pair[1] not in newest
                        shared += Counter({pair[0]: size(both)} if allowed else {})
                        self.must(place, allowed, f"{key}: {show(both)} is in {other}, too")
                active.append((end, place))
            for place, number in shared.items():
                left = newest[place].rows[key[0], key[2]][0]["so_far"]["gaps"].get("window", 0)
                self.must(place, number <= left, f"{key}: it left {left} to windows, not {number}")

    def check_links(self, folder: str, name: str) -> None:
        """Check moments of the cluster or seals of schemas, and that receipts name one of them."""
        top, docs = self.read_chain(folder, "number", "head")
        for number, doc in docs.items():
            fits = doc.get("cluster_id") in (None, self.archive["cluster_id"])
            level, settings = "errors" if number == top else "warnings", doc.get("settings")
            found = settings and self.load(f"cluster/settings/{settings}.json", "sealed", level)
            fits &= (found or {}).get("sha256") == settings
            self.must(f"{folder} {number}", fits, "settings gone, or another cluster", level)
        for seg in self.segments:
            named = seg.doc.get(name, {"number": 0, "sha256": ""})
            same = docs.get(named["number"], named)["sha256"] == named["sha256"]
            self.must(seg.path, same and named["number"] <= top, f"its {folder} entry is gone")

    def check_run(self, name: str, place: str) -> None:
        """Check that a republish's plan, receipt and offset map agree."""
        ok, names = partial(self.must, place), self.names(place, r"plan(\.[0-9]+)?\.json")
        plans = (self.load(f"{place}/{n}", "sealed") for n in sorted(names, key=len)[::-1])
        opened, newest = self.load(f"{place}/opened.json", "opened") or {}, next(plans, None)
        older = plans if opened and newest and newest["sha256"] != opened["plan"] else ()
        plan = next((one for one in older if one and one["sha256"] == opened["plan"]), newest)
        receipt = self.load(f"{place}/receipt.json", "sealed")
        sent_map = self.load(f"{place}/offset-map.json", "sealed")
        if not ok(plan is not None, "it has no intact plan", "warnings"):
            return
        plan |= {"plan": plan["sha256"], "run": plan["key"]}
        shards = sorted(repr([one[key] for key in SHARD.split()]) for one in plan["shards"])
        planned, found, whole = Counter(), Counter(), False
        fits = (plan["key"], plan["pipeline"]) == (name, self.archive["pipeline"])
        for shard in plan["shards"]:
            planned[shard["topic"], shard["topic_id"], shard["partition"]] += shard["records"]
            rows = sum(file["records"] for file in shard["files"])
            fits &= rows == shard["records"] or "change" in plan
            for file in shard["files"]:
                sealed = self.files.get(file["path"], (None, file))[1]
                fits &= (sealed["bytes"], sealed["sha256"]) == (file["bytes"], file["sha256"])
        fits &= plan["records"] == sum(planned.values())
        fits &= not opened or (opened["plan"], opened["shards"]) == (plan["sha256"], len(shards))
        ok(fits, "its plan is of another run, wasn't opened, or contradicts itself or receipts")
        if receipt is not None:
            keys = "plan", "key", "pipeline", "cluster_id", "records", "request"
            sent = sorted(repr([one[key] for key in SENT.split()]) for one in receipt["sent"])
            fits = all(receipt[key] == plan[key] for key in keys) and bool(opened)
            ok(fits and sent == shards, "its receipt doesn't agree with its plan")
            checked = receipt["verification"] or {"is_exact": False}
            whole = checked["is_exact"] and not checked["compacted"]
            fits = checked["is_exact"] and sent_map is not None
            ok(fits, "it wasn't verified as exact, or has no offset map", "warnings")
        if sent_map is not None:
            fits = all(sent_map[key] == plan[key] for key in ("run", "pipeline", "cluster_id"))
            for pair in sent_map["partitions"]:
                at, source = 0, tuple(pair[key] for key in SENT.split()[:3])
                for start, end, to, to_end, records in pair["blocks"]:
                    fits &= at <= start and 0 < records <= min(end - start, to_end - to)
                    at, found[source] = end, found[source] + records
            ok(fits and (not whole or found == +planned), "its offset map contradicts its plan")

    def check_copies(self) -> None:
        """Compare copies; what is wrong with them is a warning, but for one without original."""
        wanted = {path: d for path, d in self.documents.items() if re.fullmatch(JOURNALED, path)}
        wanted |= {seg.path: seg.doc["sha256"] for seg in self.segments}
        for path, digest in wanted.items():
            if (copy := self.load(f"copies/{path}", shape_of(path), "warnings")) is not None:
                fits = digest in ("removed", digest_of(path, copy))
                self.must(f"copies/{path}", fits, "it isn't a copy of what was sealed", "warnings")
        for folder in self.names("copies/generations", "[0-9]+"):
            for name in self.names(f"copies/generations/{folder}/receipts", NUMBERED):
                path = f"generations/{folder}/receipts/{name}"
                fits = path in self.forgotten or os.path.lexists(f"{self.root}/{path}")
                self.must(path, fits, "it is missing, and there is a copy in copies/")

    def check_files(self) -> None:
        """Check that live files are there as sealed and, with --deep, their records."""
        held, answers = defaultdict(list), defaultdict(list)
        formats = {one.place: one.doc["format"] for one in self.generations}
        formats |= {place: seg.plan["format"] for place, seg in self.windows.items() if seg.plan}
        for path, (seg, file) in sorted(self.live.items()):
            ok, kind, full = partial(self.must, path), formats.get(seg.place), f"{self.root}/{path}"
            fits = os.path.isfile(full) and os.path.getsize(full) == file["bytes"]
            ok(fits, "it is missing, or hasn't its sealed size")
            if not fits or not (self.deep or kind == "parquet"):
                continue
            answer = Reader.ask(full, *([kind, file["sha256"]] if self.deep else []))
            ok("unread" not in answer, answer.get("unread", ""), "unknown")
            ok("error" not in answer, answer.get("error", ""))
            sealed = [tuple(one[key] for key in SHAPES["content"]) for one in file["contents"]]
            if "rows" in answer:
                rows = sum(one["records"] for one in file["contents"])
                ok(answer["rows"] == rows, f"it has {answer['rows']} rows, not {rows}")
            elif "parts" in answer:
                answers[seg.path].append(answer)
                hidden, found = answer["hidden"], []
                ok(not hidden, "it is encrypted, and no key is there", "unknown")
                for part, one in answer["parts"].items():
                    held[seg.key(part)] += [(a, b, path) for a, b in one["runs"]]
                    first, last = min(one["runs"])[0], max(end for _, end in one["runs"]) - 1
                    own = first, last, one["records"], *(one["times"] or (None, None))
                    found.append((*part, *own, one["ascending"]))
                ok(sorted(found) == sorted(sealed), "its records aren't what its receipt says")
        self.check_once(held)
        for seg in self.segments if self.deep else []:
            if len(answers[seg.path]) == len(seg.doc["files"]):
                self.check_contents(seg, answers[seg.path])

    def check_contents(self, seg: Segment, answers: list[Doc]) -> None:
        """Check a segment's offsets and fingerprint, all its files being there."""
        ok, sealed = partial(self.must, seg.path), seg.doc["fingerprint"]
        xor = reduce(lambda value, answer: value ^ answer["xor"], answers, 0)
        fits = any(one["hidden"] for one in answers) or sealed in (None, f"{xor:016x}")
        ok(fits, "its records have another fingerprint")
        for part in seg.rows:
            found = [answer["parts"][part]["runs"] for answer in answers if part in answer["parts"]]
            held, wanted = sum(found, []), subtract(seg.ranges(part), seg.gaps(part))
            wrong = subtract(wanted, held) + subtract(held, wanted)
            ok(not wrong, f"{part}: {show(wrong)} should be in its files, or shouldn't")

    def check_unsealed(self, generation: Generation) -> None:
        """Count the open generation's batches that aren't sealed."""
        folder = f"{generation.place}/data/_spark_metadata"
        names = self.names(folder, r"[0-9]+(\.compact)?")
        compact = max((int(n[:-8]) for n in names if n.endswith(".compact")), default=-1)
        later = sorted(int(n) for n in names if n.isdecimal() and int(n) > compact)
        commits, top = f"{generation.place}/checkpoint/commits", max([compact, *later])
        fits = max(map(int, self.names(commits, "[0-9]+")), default=-1) <= top
        fits &= later == list(range(compact + 1, top + 1))
        self.must(folder, fits, "batches are missing in Spark's manifest")
        sealed = generation.segments[-1].doc["last_batch"] if generation.segments else -1
        self.must(generation.place, top <= sealed, f"{top - sealed} unsealed batches", "unsealed")

    def run(self) -> None:
        """Run all checks."""
        for check in self.read, self.read_journal, self.check_journal, self.check_chain:
            check()
        for seg in self.segments:
            self.check_receipt(seg)
            if seg.plan is not None:
                self.check_plan(seg, seg.plan)
        for check in self.check_identity, self.check_offsets, self.check_copies, self.check_files:
            check()
        self.check_links("cluster", "cluster")
        self.check_links("schema-seals", "schemas")
        for generation in [one for one in self.generations if self.names(one.place, "[^.].*")][-1:]:
            self.check_unsealed(generation)
        for name in self.names("republish", r"(?!openings$|\.).+"):
            try:
                self.check_run(name, f"republish/{name}")
            except (KeyError, TypeError, ValueError, AttributeError):
                self.must(f"republish/{name}", False, "a document of it isn't in its form")
        self.must("archive", bool(self.segments), "nothing is sealed: it proves nothing", "unknown")

    def report(self) -> Doc:
        """Return the result as one object."""
        found: Doc = {"errors": [], "unknown": [], "warnings": [], "unsealed": [], "partitions": []}
        for level, where, what in self.found:
            found[level].append({"where": where, "what": what})
        verdict = "incomplete" if found["errors"] else "unknown" if found["unknown"] else "complete"
        gaps: dict[Key, set[tuple[int, int, str]]] = defaultdict(set)
        for seg, part in ((one, part) for one in self.segments for part in one.rows):
            gaps[seg.key(part)] |= {(*r, why) for why in REASONS for r in seg.gaps(part, [why])}
        for key in sorted(gaps):
            about: Doc = {"topic": key[0], "topic_id": key[1], "partition": key[2]}
            about["ranges"] = sorted(self.spans[key], key=lambda row: (row["start"], row["file"]))
            about["gaps"] = [{"start": a, "end": b, "reason": w} for a, b, w in sorted(gaps[key])]
            found["partitions"].append(about)
        return {"verdict": verdict, "archive": self.root, "deep": self.deep} | found


def tell(found: Doc) -> None:
    """Print the findings for people."""
    lines = [found["verdict"].upper()]
    for level in "errors", "unknown", "warnings", "unsealed":
        lines += [f"  {level}: {one['where']}: {one['what']}" for one in found[level]]
    for one in found["partitions"]:
        held = show(subtract(span for row in one["ranges"] for span in row["offsets"]))
        records = sum(row["records"] for row in one["ranges"])
        lines.append(f"{one['topic']}:{one['partition']} (topic id {one['topic_id']}):")
        lines.append(f"  {records} records in {len(one['ranges'])} files; offsets {held or 'none'}")
        for why in sorted({gap["reason"] for gap in one["gaps"]}):
            gaps = subtract((g["start"], g["end"]) for g in one["gaps"] if g["reason"] == why)
            lines.append(f"  not in files, {why}: {size(gaps)} offsets, {show(gaps)}")
    print(*("".join(c if c.isprintable() else ascii(c)[1:-1] for c in s) for s in lines), sep="\n")


def main() -> int:
    """Verify an archive, anew if it has grown meanwhile; print what was found; return the code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", help="its folder")
    parser.add_argument("--deep", action="store_true", help="read all records")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    for _ in range(3):
        verifier = Verifier(asked.archive, asked.deep)
        entries = verifier.names("journal", NUMBERED)
        try:
            verifier.run()
        except Exception as error:  # a newer format, or what this program didn't foresee
            verifier.must("archive", False, f"it couldn't be judged: {error!r}", "unknown")
        found = verifier.report()
        if found["verdict"] == "complete" or entries == verifier.names("journal", NUMBERED):
            break
    sys.stdout.reconfigure(errors="backslashreplace")
    print(json.dumps(found)) if asked.json else tell(found)
    return ["complete", "incomplete", "unknown"].index(found["verdict"])


if __name__ == "__main__":
    sys.exit(main())
