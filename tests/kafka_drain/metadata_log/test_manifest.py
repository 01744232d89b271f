"""The sink's manifest: lines as Spark 4 writes them, names, and what they say together."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.manifest import (
    KnownDamage,
    Manifest,
    ManifestLog,
    SinkFile,
    assemble,
    line_of,
    logs_to_read,
    parse_log,
)
from kafka_drain.offsets import TopicPartition

DATA = "generations/0001/data"
WHERE = f"{DATA}/_spark_metadata"


def line(path: str = "topic=t/part-0.parquet", /, **changes: object) -> str:
    entry = {
        "path": f"file:///archives/flights/{DATA}/{path}",
        "size": 1234,
        "isDir": False,
        "modificationTime": 1767225600000,
        "blockReplication": 1,
        "blockSize": 33554432,
        "action": "add",
    }
    return json.dumps(entry | changes, separators=(",", ":"))


def log_of(*lines: str) -> bytes:
    return "\n".join(("v1", *lines)).encode()


def sink_file(path: str, batch: int | None, log: str | None = None) -> SinkFile:
    return SinkFile(path, 1234, 1767225600000, batch, log or str(batch))


#: Where the lines say that the archive lies.
ROOTS = frozenset({"file:///archives/flights"})


# parse_log


def test_parse_log_batch() -> None:
    """A batch's file lists the data files that the batch wrote."""
    log, findings = parse_log("7", log_of(line("a.parquet"), line("b.parquet", size=5)), DATA)

    assert findings == []
    assert log == ManifestLog(
        "7",
        7,
        compacted=False,
        added=(
            SinkFile("a.parquet", 1234, 1767225600000, 7, "7"),
            SinkFile("b.parquet", 5, 1767225600000, 7, "7"),
        ),
        roots=ROOTS,
    )


def test_parse_log_compact() -> None:
    """A compacted file doesn't tell which batch wrote a data file."""
    log, findings = parse_log("9.compact", log_of(line("a.parquet")), DATA)

    assert findings == []
    assert log == ManifestLog(
        "9.compact",
        9,
        compacted=True,
        added=(sink_file("a.parquet", None, "9.compact"),),
        roots=ROOTS,
    )


@pytest.mark.parametrize("content", [b"v1", b"v1\n", b"v1\n\n"])
def test_parse_log_batch_without_files(content: bytes) -> None:
    """A batch that wrote nothing has a file with the version alone."""
    assert parse_log("3", content, DATA) == (ManifestLog("3", 3, compacted=False), [])


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n", b"\0" * 4096])
def test_parse_log_blank(content: bytes) -> None:
    """A file without content, or with the zeros of a crashed disk, can't be used."""
    assert parse_log("3", content, DATA) == (
        None,
        [Finding(Reason.MANIFEST_EMPTY, f"{WHERE}/3", f"{len(content)} bytes, all blank")],
    )


@pytest.mark.parametrize(
    "first",
    ["v2", "v10", "V1", "", " v1", line()],
    ids=["v2", "v10", "V1", "none", "space", "line"],
)
def test_parse_log_other_version(first: str) -> None:
    """A file of another version can't be used; the finding shows what it starts with."""
    log, findings = parse_log("3", f"{first}\n{line()}".encode(), DATA)

    assert log is None
    assert [(Reason.MANIFEST_CORRUPT, f"{WHERE}/3:1")] == [(f.reason, f.where) for f in findings]
    assert f"starts with {first[:40]!r}, expected 'v1'" == findings[0].detail


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ('{"path":"file:/', "not JSON"),
        ("v1", "not JSON"),
        ("\0\0\0", "not JSON"),
        ("3", "no str 'path': '3'"),
        ("[]", "no str 'path'"),
        (line(path=None), "no str 'path'"),
        (line(path=5), "no str 'path'"),
        (line(size="5"), "no int 'size'"),
        (line(size=5.0), "no int 'size'"),
        (line(modificationTime=None), "no int 'modificationTime'"),
        (line(action=None), "no str 'action'"),
        (line(action="rename"), "unknown action 'rename'"),
    ],
)
def test_parse_log_bad_line(bad: str, detail: str) -> None:
    """A bad line is found by file and line, and the lines around it are read."""
    log, findings = parse_log("4", log_of(line("a"), "", bad, line("b")), DATA)

    assert log is not None
    assert [file.path for file in log.added] == ["a", "b"]
    assert [(Reason.MANIFEST_CORRUPT, f"{WHERE}/4:4")] == [(f.reason, f.where) for f in findings]
    assert detail in findings[0].detail


@pytest.mark.parametrize("key", ["path", "size", "modificationTime", "action"])
def test_parse_log_missing_key(key: str) -> None:
    """A line without one of the keys that count is found, and the key is named."""
    entry = json.loads(line())
    del entry[key]

    log, findings = parse_log("4", log_of(json.dumps(entry)), DATA)

    assert log == ManifestLog("4", 4, compacted=False)
    assert [f"{WHERE}/4:2"] == [finding.where for finding in findings]
    assert repr(key) in findings[0].detail


def test_parse_log_cut_off() -> None:
    """A file that was cut off in its last line gives the lines before."""
    whole = log_of(line("a"), line("b"))

    log, findings = parse_log("4", whole[:-9], DATA)

    assert log is not None
    assert [file.path for file in log.added] == ["a"]
    assert [f"{WHERE}/4:3"] == [finding.where for finding in findings]


def test_parse_log_not_text() -> None:
    """Bytes that aren't UTF-8 are a finding, not an exception."""
    log, findings = parse_log("4", b"v1\n\xff\xfe", DATA)

    assert log == ManifestLog("4", 4, compacted=False)
    assert [finding.reason for finding in findings] == [Reason.MANIFEST_CORRUPT]


def test_parse_log_delete() -> None:
    """A delete line takes its file out, and what follows is read."""
    content = log_of(line("a"), line("old", action="delete"), line("b"))
    log, findings = parse_log("5", content, DATA)

    assert findings == []
    assert log is not None
    assert [file.path for file in log.added] == ["a", "b"]
    assert frozenset({"old"}) == log.deleted


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"file:///old/place/{DATA}/a.parquet", "a.parquet"),
        (f"/old/place/{DATA}/a.parquet", "a.parquet"),
        (f"s3a://bucket/flights/{DATA}/topic=t/date=2026-01-01/a", "topic=t/date=2026-01-01/a"),
        (f"file:///with%20space/{DATA}/topic=a%20b/c", "topic=a b/c"),
        (f"file:///x/{DATA}/topic=a%2520b/c", "topic=a%20b/c"),
        (f"file:///x/{DATA}/topic=%C3%A9/c", "topic=é/c"),
        (f"file:///copy/{DATA}/old/{DATA}/a", "a"),
    ],
    ids=["moved", "plain", "store", "space", "escaped", "utf8", "nested"],
)
def test_parse_log_path(written: str, expected: str) -> None:
    """What follows the data folder counts, wherever the archive was and however it is escaped."""
    log, findings = parse_log("0", log_of(line(path=written)), DATA)

    assert findings == []
    assert log is not None
    assert [expected] == [file.path for file in log.added]


@pytest.mark.parametrize(
    "written",
    [
        "file:///archives/flights/generations/0002/data/a",
        "file:///elsewhere/a",
        f"file:///x/my{DATA}/a",
        DATA,
    ],
)
def test_parse_log_outside(written: str) -> None:
    """A file under another generation or folder is found by its line."""
    log, findings = parse_log("0", log_of(line(path=written)), DATA)

    assert log == ManifestLog("0", 0, compacted=False)
    assert [
        Finding(Reason.FILE_OUTSIDE, f"{WHERE}/0", f"{written} isn't under {DATA}", line=2)
    ] == findings


def test_parse_log_no_log() -> None:
    """A name that is no manifest file's is the caller's mistake."""
    with pytest.raises(ValueError, match=r"\.9\.crc isn't the name of a manifest file"):
        parse_log(".9.crc", b"v1", DATA)


# logs_to_read


@pytest.mark.parametrize(
    ("names", "expected", "holes"),
    [
        ([], [], []),
        (["0"], ["0"], []),
        (["2", "0", "1"], ["0", "1", "2"], []),
        (["9.compact", "10", "11"], ["9.compact", "10", "11"], []),
        (["0", "8", "9.compact", "10"], ["9.compact", "10"], []),
        (["9", "9.compact", "10"], ["9.compact", "10"], []),
        (["9.compact", "10", "19.compact", "20"], ["19.compact", "20"], []),
        (["29.compact"], ["29.compact"], []),
        (["0", "2", "5"], ["0", "2", "5"], [1, 3, 4]),
        (["1"], ["1"], [0]),
        (["9.compact", "12"], ["9.compact", "12"], [10, 11]),
        (["10", "9"], ["9", "10"], list(range(9))),
        ([".9.crc", "9.compact.tmp", ".9.compact.crc", "9.tmp"], [], []),
        (["", "a", "-1", "9.compacted", "9.", "compact", "1 ", "_0"], [], []),
        (["0", ".1.crc", "1.compact.tmp", ".1.0f3c.tmp"], ["0"], []),
    ],
)
def test_logs_to_read(names: list[str], expected: list[str], holes: list[int]) -> None:
    """The newest compacted file and what follows it count, or everything from batch 0."""
    assert (expected, holes) == logs_to_read(names)


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), unique=True), st.randoms())
def test_logs_to_read_property(logs: list[tuple[int, bool]], random: object) -> None:
    """Whatever files are there, each batch from the last compaction on is read or is a hole."""
    names = [f"{batch}.compact" if compacted else str(batch) for batch, compacted in logs]
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    read, holes = logs_to_read(names)

    assert (read, holes) == logs_to_read(shuffled)
    assert set(read) <= set(names)
    batches = [int(name.removesuffix(".compact")) for name in read]
    assert batches == sorted(set(batches))
    first = max((batch for batch, compacted in logs if compacted), default=0)
    last = max((batch for batch, _ in logs), default=-1)
    assert set(range(first, last + 1)) == set(batches) | set(holes)
    assert not set(batches) & set(holes)
    assert {name for name in read if name.endswith(".compact")} <= {f"{first}.compact"}


# assemble


def test_assemble_order() -> None:
    """Files come in the order of their batches; only batches with an own file have an id."""
    logs = [
        ManifestLog("9.compact", 9, True, (sink_file("a", None, "9.compact"),)),
        ManifestLog("10", 10, False, (sink_file("b", 10), sink_file("c", 10))),
        ManifestLog("11", 11, False),
    ]

    manifest, findings = assemble(logs, DATA)

    assert findings == []
    assert list(manifest.files) == ["a", "b", "c"]
    assert [file.batch for file in manifest.files.values()] == [None, 10, 10]
    assert (manifest.last_batch, manifest.batches) == (11, (10, 11))


def test_assemble_nothing() -> None:
    """Without manifest files there is no batch."""
    assert assemble([], DATA) == (Manifest(), [])


def test_assemble_duplicate() -> None:
    """A file that two manifest files list is found, with both names."""
    logs = [
        ManifestLog("0", 0, False, (sink_file("a", 0),)),
        ManifestLog("1", 1, False, (sink_file("a", 1),)),
    ]

    manifest, findings = assemble(logs, DATA)

    assert list(manifest.files) == ["a"]
    assert [
        Finding(Reason.MANIFEST_DUPLICATE, f"{WHERE}/1", "a is already listed in 0")
    ] == findings


def test_assemble_duplicate_in_one_log() -> None:
    """A file that one manifest file lists twice is found."""
    log = ManifestLog("0", 0, False, (sink_file("a", 0), sink_file("a", 0)))

    _, findings = assemble([log], DATA)

    assert [(Reason.MANIFEST_DUPLICATE, f"{WHERE}/0")] == [(f.reason, f.where) for f in findings]


def test_line_of() -> None:
    """A file's line is the last one that names it, though other lines can't be used."""
    content = log_of(line("a"), "", "{", line("b"), line("a"), line("c"))

    assert [line_of(content, path, DATA) for path in ("a", "b", "c", "d")] == [6, 5, 7, None]
    # The first line says the version.
    assert line_of(line("a").encode(), "a", DATA) is None


def test_assemble_delete() -> None:
    """A deleted file is gone, and may be added again; deleting what isn't there is nothing."""
    logs = [
        ManifestLog("0", 0, False, (sink_file("a", 0), sink_file("b", 0))),
        ManifestLog("1", 1, False, deleted=frozenset({"a", "never"})),
        ManifestLog("2", 2, False, (sink_file("a", 2),)),
    ]

    before, _ = assemble(logs[:2], DATA)
    after, findings = assemble(logs, DATA)

    assert list(before.files) == ["b"]
    assert {path: file.batch for path, file in after.files.items()} == {"a": 2, "b": 0}
    assert findings == []


# which manifest file lost lines


@pytest.mark.parametrize(
    ("suspects", "logs", "blamed"),
    [
        ([], ["0"], "0"),
        ([], ["0", "1"], ""),
        (["1"], ["0", "1"], "1"),
        (["0", "1"], ["0", "1"], ""),
        # Of another batch.
        (["2"], ["0", "1"], ""),
        (["2"], ["0"], "0"),
    ],
)
def test_known_damage_blame(suspects: list[str], logs: list[str], blamed: str) -> None:
    """The one file that may have lost lines is named, else their folder."""
    findings = [Finding(Reason.CHECKSUM_MISMATCH, f"{WHERE}/{name}", "") for name in suspects]

    found = KnownDamage.of(findings).blame([f"{WHERE}/{name}" for name in logs], WHERE)

    assert found == f"{WHERE}/{blamed}".rstrip("/")


def test_known_damage_of() -> None:
    """A line's finding is of its file; a partition's is of none."""
    found = KnownDamage.of(
        [
            Finding(Reason.MANIFEST_CORRUPT, "a", "", line=3),
            Finding(Reason.CHECKSUM_MISMATCH, "b", ""),
            Finding(Reason.OFFSET_MISSING, TopicPartition("c", 0), ""),
        ]
    )

    assert (found.damaged, found.suspects) == ({"a"}, {"b"})


# Manifest


@pytest.mark.parametrize(
    ("last_sealed", "sealed_files", "sealed"),
    [
        pytest.param(-1, 0, 0, id="nothing sealed"),
        pytest.param(8, 2, 2, id="some of the compacted batches"),
        # What was lost before its batch was sealed is listed, and isn't among the sealed.
        pytest.param(9, 2, 3, id="all compacted batches"),
        pytest.param(10, 4, 4, id="a later batch"),
        pytest.param(11, 5, 5, id="all"),
    ],
)
def test_split_compacted(last_sealed: int, sealed_files: int, sealed: int) -> None:
    """Files are told by their batch; those that lost it in a compaction, by their number."""
    batches = [None, None, None, 10, 11]
    files = [sink_file(f"{number}", batch) for number, batch in enumerate(batches)]
    manifest = Manifest({file.path: file for file in files}, 11, (10, 11), compacted=9)

    assert manifest.split(last_sealed, sealed_files) == (files[:sealed], files[sealed:])


def test_split_not_compacted() -> None:
    """Without a compaction, each file is told by its batch alone."""
    files = [sink_file("a", 0), sink_file("b", 1)]
    manifest = Manifest({file.path: file for file in files}, 1, (0, 1))

    assert manifest.split(0, 2) == (files[:1], files[1:])


@pytest.mark.parametrize(
    ("compacted", "batches", "first", "last", "names"),
    [
        (9, (10, 11, 12), 0, 8, ["9.compact"]),
        (9, (10, 11, 12), 9, 9, ["9.compact"]),
        (9, (10, 11, 12), 9, 11, ["9.compact", "10", "11"]),
        (9, (10, 11, 12), 10, 10, ["10"]),
        (9, (10, 11, 12), 11, 12, ["11", "12"]),
        (9, (10, 11, 12), 9, 13, []),
        (9, (10, 12), 10, 12, []),
        (None, (0, 1, 3), 0, 1, ["0", "1"]),
        (None, (0, 1, 3), 1, 3, []),
        (None, (0, 1, 3), 3, 3, ["3"]),
    ],
)
def test_logs_of(
    compacted: int | None, batches: tuple[int, ...], first: int, last: int, names: list[str]
) -> None:
    """The files that list some batches; none are named if one of them is missing."""
    manifest = Manifest(last_batch=batches[-1], batches=batches, compacted=compacted)

    assert manifest.logs_of(first, last) == names
