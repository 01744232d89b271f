"""The verifier that shares nothing with what it judges: one file, and the page of the format."""

from __future__ import annotations

import ast
import bz2
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from kafka_drain import verify_archive
from kafka_drain.archive.archive import Archive
from kafka_drain.data_files.reader import read_offsets
from kafka_drain.errors import KafkaDrainError
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.sealed_json import seal
from tests.kafka_drain.golden import sealed_copy

VERIFIER = Path(__file__).parents[2] / "plugins" / "kafka_drain" / "verify_archive.py"
GOLDEN = Path(__file__).parents[1] / "data" / "archive_0_1"
COMPLETE, INCOMPLETE, UNKNOWN = 0, 1, 2

Damage = Callable[[Path], object]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of an archive that release 0.1 wrote."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "archive"))


def verify(*arguments: object) -> tuple[int, Any]:
    """Run the file as a stranger would, without our packages; return exit code and answer."""
    command = [sys.executable, "-I", str(VERIFIER), *map(str, arguments), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_verifier_imports() -> None:
    """It imports the standard library, and at most the formats' libraries: nothing of ours."""
    source = VERIFIER.read_text()
    tree = ast.parse(source)
    modules = {
        *(
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        ),
        *(str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)),
    }
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names
    assert "kafka_drain" not in source
    assert len(source.splitlines()) <= 1_000
    assert max(map(len, source.splitlines())) <= 100


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_verifier_golden(copy: Path, deep: tuple[str, ...]) -> None:
    """Each offset of a whole archive is proven to be in one file; nothing is written."""
    before = sorted(copy.rglob("*"))

    code, found = verify(copy, *deep)

    assert (code, found["verdict"], found["errors"]) == (COMPLETE, "complete", [])
    for partition in found["partitions"]:
        held = sorted(span for row in partition["ranges"] for span in row["offsets"])
        assert held[0][0] == 0
        assert held[-1][1] == 51
        assert all(a[1] == b[0] for a, b in pairwise(held))
    assert sorted(copy.rglob("*")) == before


def first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


def last(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[-1]


def change(path: Path) -> None:
    """Change a byte in the middle; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def reseal(path: Path, **changes: Any) -> None:
    """Change what a sealed document says, with a seal that fits."""
    document = json.loads(path.read_text()) | changes
    del document["sha256"]
    body = json.dumps(document, separators=(",", ":")).encode()[:-1]
    seal = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes(body + b',"sha256":"' + seal + b'"}\n')


def swap(a: Path, b: Path) -> None:
    one, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(one)


RECEIPTS, DATA = "generations/0001/receipts/*.json", "generations/0001/data/topic=*/part-*"
DAMAGES: dict[str, Damage] = {
    "a receipt changed": lambda root: change(first(root, RECEIPTS)),
    "a receipt gone": lambda root: first(root, RECEIPTS).unlink(),
    "a receipt cut": lambda root: first(root, RECEIPTS).write_bytes(b"{"),
    "two receipts swapped": lambda root: swap(first(root, RECEIPTS), last(root, RECEIPTS)),
    "a receipt resealed": lambda root: reseal(last(root, RECEIPTS), records=7),
    "a generation gone": lambda root: shutil.rmtree(root / "generations" / "0001"),
    "a window gone": lambda root: shutil.rmtree(first(root, "windows/repair*")),
    "a plan changed": lambda root: change(first(root, "windows/repair*/plan.json")),
    "the journal's newest entry gone": lambda root: last(root, "journal/*.json").unlink(),
    "the journal's head changed": lambda root: change(root / "journal.json"),
    "another pipeline": lambda root: (root / "archive.json").write_text(
        json.dumps(json.loads((root / "archive.json").read_text()) | {"pipeline": "another"})
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_verifier_agrees(copy: Path, damage: str) -> None:
    """It finds what validations find, and a second look finds it again."""
    DAMAGES[damage](copy)

    try:
        complete = validate_archive(Archive.at(str(copy)), None, deep=True, writes=False).complete
    except KafkaDrainError:
        complete = False
    codes = [verify(copy)[0] for _ in range(2)]

    assert not complete
    assert codes == [INCOMPLETE] * 2


def live_file(root: Path) -> Path:
    """Return a data file whose records no window holds."""
    _, found = verify(root)
    return root / str(found["partitions"][0]["ranges"][0]["file"])


def test_verifier_file_gone(copy: Path) -> None:
    """A sealed file that is gone is found without reading any; a changed one by reading all."""
    path = live_file(copy)
    content = path.read_bytes()
    change(path)
    assert verify(copy, "--deep")[0] == INCOMPLETE
    path.write_bytes(content)
    assert verify(copy, "--deep")[0] == COMPLETE
    path.unlink()
    assert verify(copy)[0] == INCOMPLETE


@pytest.mark.parametrize("has_opened", [True, False])
def test_verifier_plan_too_late(copy: Path, has_opened: bool) -> None:
    """The plan that the run has opened with counts, though a killed attempt left a later one."""
    folder = copy / "republish" / "copy-6f5a6034e770"
    plan = json.loads((folder / "plan.json").read_text())
    del plan["sha256"]
    (folder / "plan.2.json").write_bytes(seal(plan | {"created_at": "2026-01-01T00:00:00+00:00"}))
    if not has_opened:
        (folder / "opened.json").unlink()

    code, found = verify(copy)

    assert code == (COMPLETE if has_opened else INCOMPLETE)
    assert {each["where"] for each in found["errors"]} == (
        set() if has_opened else {"republish/copy-6f5a6034e770"}
    )


def test_verifier_cannot_judge(copy: Path, tmp_path: Path) -> None:
    """What isn't an archive, or has a newer format, is never called complete."""
    assert verify(tmp_path / "nowhere")[0] == UNKNOWN
    path = copy / "archive.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 3}))
    assert verify(copy)[0] == UNKNOWN


#: As Spark writes records whose values are decoded.
DECODED = {
    "type": "record",
    "name": "topLevelRecord",
    "fields": [
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "timestampType", "type": "int"},
        {
            "name": "value_decoded",
            "type": {
                "type": "record",
                "name": "value",
                "fields": [
                    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                    {
                        "name": "at",
                        "type": {"type": "long", "logicalType": "local-timestamp-micros"},
                    },
                ],
            },
        },
    ],
}


@pytest.mark.parametrize(("day", "at"), [(0, 0), (10_000_000, 0), (-800_000, 0), (0, 10**18)])
def test_verifier_decoded_times(tmp_path: Path, day: int, at: int) -> None:
    """It reads an Avro file whose decoded columns have years that Python doesn't know."""
    path = tmp_path / "data" / "topic=t" / "part-0.avro"
    path.parent.mkdir(parents=True)
    times = {"timestamp": 5_000, "timestampType": 0, "value_decoded": {"day": day, "at": at}}
    with path.open("wb") as target:
        fastavro.writer(target, DECODED, [{"partition": 0, "offset": 7, **times}])
    [known] = read_offsets(path, "avro", "t")

    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    answer = verify_archive.Reader.ask(str(path), "avro", sha256)

    assert "error" not in answer
    part = answer["parts"]["t", 0]
    assert (part["records"], part["runs"]) == (known.records, [(7, 8)])
    assert part["times"] == [known.first_timestamp, known.last_timestamp] == [5, 5]


# The child process that reads files closes them at its end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_verifier_large_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are held at a time."""
    path, number = tmp_path / "data" / "topic=t" / "part-0.parquet", 300
    path.parent.mkdir(parents=True)
    same = pa.array([0] * number, pa.int32())
    columns = {"partition": same, "offset": pa.array(range(number)), "timestampType": same}
    columns["timestamp"] = pa.array([5_000] * number, pa.timestamp("us", "UTC"))
    columns["value"] = pa.array([bytes(100_000)] * number)
    pq.write_table(pa.table(columns), path)
    sizes: list[int] = []
    rows = verify_archive.arrow_rows

    def noted(batch: Any) -> Any:
        sizes.append(batch.nbytes)
        return rows(batch)

    monkeypatch.setattr(verify_archive, "arrow_rows", noted)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    answer = verify_archive.examine(str(path), "parquet", sha256)

    assert answer["parts"]["t", 0]["records"] == number
    assert max(sizes) < 32 << 20


@pytest.mark.parametrize(("job", "key"), [(("f", "parquet", "0"), "unread"), (("f",), "error")])
def test_verifier_killed(job: Any, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is killed is no damage of a file whose bytes are the sealed ones."""

    class Killed:
        def submit(self, *_: Any) -> Any:
            raise verify_archive.BrokenExecutor

    monkeypatch.setattr(verify_archive.Reader, "pool", Killed())

    assert [*verify_archive.Reader.ask(*job)] == [key]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("end", "pack"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".deflate", zlib.compress)],
)
def test_verifier_json(tmp_path: Path, end: str, pack: Callable[[bytes], bytes]) -> None:
    """Each compression that a drain may write JSON with is read."""
    path = tmp_path / "data" / "topic=t" / f"part-0.json{end}"
    path.parent.mkdir(parents=True)
    row = {"partition": 0, "offset": 7, "timestamp": "1970-01-01T00:00:00.005Z"}
    path.write_bytes(pack(json.dumps(row | {"timestampType": 0}).encode() + b"\n"))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    assert verify_archive.examine(str(path), "json", sha256)["parts"]["t", 0]["runs"] == [(7, 8)]


def test_verifier_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal obeys nothing that somebody has written into an archive."""
    finding = {"where": "a\nCOMPLETE", "what": "\x1b[2J"}
    part: Any = {"topic": "\x1b[H", "topic_id": "i", "partition": 0, "ranges": [], "gaps": []}
    found = {"verdict": "incomplete", "errors": [finding], "partitions": [part]}

    verify_archive.tell(found | {name: [] for name in ("unknown", "warnings", "unsealed")})

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4


def test_verifier_contents_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are grouped once, and not looked through for each partition."""
    verifier = verify_archive.Verifier(str(GOLDEN), deep=False)
    verifier.read()
    monkeypatch.delattr(verify_archive, "contents_of")

    for segment in verifier.segments:
        verifier.check_receipt(segment)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_verifier_orc(tmp_path: Path) -> None:
    """ORC is read in batches."""
    path = tmp_path / "data" / "topic=t" / "part-0.orc"
    path.parent.mkdir(parents=True)
    same = pa.array([0], pa.int32())
    columns = {"partition": same, "offset": pa.array([7]), "timestampType": same}
    orc.write_table(pa.table({**columns, "timestampMillis": pa.array([5])}), str(path))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    part = verify_archive.examine(str(path), "orc", sha256)["parts"]["t", 0]

    assert (part["runs"], part["times"]) == ([(7, 8)], [5, 5])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_verifier_without_bz2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't packed with bzip2 doesn't need it."""
    monkeypatch.setitem(sys.modules, "bz2", None)
    path = tmp_path / "part-0.json"
    path.write_bytes(b"")

    rows, _ = verify_archive.read_rows(str(path), "json")

    assert list(rows) == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_verifier_copy_without_locks(copy: Path, *, is_kept: bool) -> None:
    """A copy on a disk locks nothing: what drains have used is in the copy of archive.json."""
    locks = {"mode": "compliance", "days": 30}
    document = json.loads((copy / "archive.json").read_text())
    settings = verify_archive.canonical_hash(["read_committed", None, locks])
    if is_kept:
        (copy / "copies").mkdir(exist_ok=True)
        (copy / "copies" / "archive.json").write_text(json.dumps(document | {"immutable": locks}))
    verifier = verify_archive.Verifier(str(copy), deep=False)
    verifier.read()
    verifier.archive |= {"immutable": None}
    verifier.documents = {f"settings/{settings}": "accepted"}

    verifier.check_journal()

    found = {what for _, _, what in verifier.found}
    assert ("no drain has used its settings" in found) is not is_kept


def test_verifier_left_to_nobody(tmp_path: Path) -> None:
    """A window that leaves the offsets to others doesn't hold them."""
    row: Any = {"topic": "t", "partition": 0, "start": 0, "end": 10, "gaps": {"window": [[5, 8]]}}
    row["so_far"] = {"start": 0, "records": 7, "gaps": {"window": 3}}
    doc = {"topics": {"t": "i"}, "partitions": [row], "files": [], "replaces": []}
    old, new = (verify_archive.Segment(at, at, doc) for at in ("generations/0001", "windows/c"))
    verifier = verify_archive.Verifier(str(tmp_path), deep=False)
    verifier.archive = {"topics": {}}
    verifier.generations = [verify_archive.Generation(old.place, {}, [old])]
    verifier.windows = {new.place: new}
    verifier.covered["t", "i", 0] = [(0, 10)]

    verifier.check_offsets()

    assert any("nothing covers 5-7" in what for _, _, what in verifier.found)


def test_verifier_time_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time that pyarrow can't hold is no damage."""

    class Far:
        def submit(self, *_: Any) -> Any:
            raise pa.ArrowInvalid("out of range for nanosecond")

    monkeypatch.setattr(verify_archive.Reader, "pool", Far())

    assert [*verify_archive.Reader.ask("f", "orc", "0")] == ["unread"]


def test_verifier_older_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with an older moment is a warning."""
    verifier = verify_archive.Verifier(str(tmp_path), deep=False)
    verifier.archive = {"cluster_id": "c"}
    docs: Any = {1: {"settings": "0" * 64, "sha256": "a"}, 2: {"settings": None, "sha256": "b"}}
    monkeypatch.setattr(verifier, "read_chain", lambda *_: (2, docs))

    verifier.check_links("cluster", "cluster")

    assert {level for level, *_ in verifier.found} == {"warnings"}


def test_verifier_batches_missing_below_empty_generation(copy: Path) -> None:
    """The open generation is the newest one that isn't empty."""
    newest = max((copy / "generations").iterdir())
    manifest = sorted((newest / "data" / "_spark_metadata").glob("[0-9]*"))[-1]
    manifest.unlink()
    (copy / "generations" / "0099").mkdir()
    verifier = verify_archive.Verifier(str(copy), deep=False)

    verifier.run()

    assert "batches are missing in Spark's manifest" in {what for _, _, what in verifier.found}


@pytest.mark.parametrize("grows", [True, False])
def test_verifier_of_growing_archive(
    tmp_path: Path,
    grows: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is sealed between two of its reads is no damage; what contradicts for good is."""
    root = Path(str(sealed_copy(tmp_path / "archive").root))
    receipt = max(root.glob("generations/0001/receipts/*.json"))
    entries = sorted((root / "journal").iterdir())
    whole = {path: path.read_bytes() for path in (receipt, entries[-1])}
    receipt.unlink()
    if grows:
        entries[-1].unlink()
    read_journal = verify_archive.Verifier.read_journal

    def seal_before(verifier: verify_archive.Verifier) -> None:
        if grows:
            for path, content in whole.items():
                path.write_bytes(content)
        read_journal(verifier)

    monkeypatch.setattr(verify_archive.Verifier, "read_journal", seal_before)
    monkeypatch.setattr(sys, "argv", ["verify", str(root)])

    assert verify_archive.main() == (COMPLETE if grows else INCOMPLETE), capsys.readouterr().out
