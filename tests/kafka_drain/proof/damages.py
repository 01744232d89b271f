"""Single damages and copies in the wrong place, of an archive whose records are known.

Each damage is drawn by a number, so that it can be made again. Each reader's answer is judged by
what the archive was made of, read from the files with pyarrow alone.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.errors import KafkaDrainError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.findings import errors
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from tests.kafka_drain.archives import make_sealed, validated
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import END, P0, P1, add_batch, note_batch
from tests.kafka_drain.golden import NOON as AT

#: A record: partition, offset, key and value.
Record = tuple[int, int, bytes | None, bytes | None]
Records = Counter[Record]

#: Exceptions of those that read the files of a list: loud, like a refusal.
_LOUD = (KafkaDrainError, pa.ArrowException, OSError)


@dataclass(frozen=True)
class Made:
    """An archive, what it was at earlier moments, and its records.

    Attributes:
        root: The archive.
        older: The same archive as it was earlier, oldest first.
        records: Its records.
        sealed: Those of them that are sealed.
    """

    root: Path
    older: tuple[Path, ...]
    records: Records
    sealed: Records


def make(folder: Path) -> Made:
    """Make an archive with three generations, windows of each kind and an unsealed batch."""
    root = folder / "archive"
    archive = make_sealed(root)
    older = [_kept(folder, root, "windows")]
    opened = archive.generation(2)
    for batch in (3, 4):
        _batch(archive, 2, batch, END + 10 * batch)
        older.append(_kept(folder, root, f"batch{batch}"))
    start = dict.fromkeys((P0, P1), END + 50)
    archive.generation(3).write(
        starting_offsets=start,
        file_format="parquet",
        partition_by=["topic"],
        topic_ids=opened.read_document().topics,
        reason="rollover",
    )
    older.append(_kept(folder, root, "opened"))
    for batch in range(4):
        _batch(archive, 3, batch, END + 50 + 10 * batch)
    sealed = rows_in(root, (file.path for file in archive_files(archive.snapshot())))
    paths = add_batch(archive.generation(3), 4, END + 90, END + 100)
    note_batch(archive.generation(3), 4, paths, END + 90, END + 100)
    records = rows_in(root, (file.path for file in archive_files(archive.snapshot())))
    # What it was made of, but for the file that was deleted.
    gone = {(0, offset) for offset in range(END)} - {(p, o) for p, o, _, _ in records}
    offsets = {(p, o) for p in (0, 1) for o in (*range(END + 100), *range(900, 910))}
    assert {(p, o) for p, o, _, _ in records} == offsets - gone
    assert 0 < len(gone) < END // 2
    assert set(records.values()) == {1}
    return Made(root, tuple(older), records, sealed)


def _batch(archive: Archive, generation: int, batch: int, start: int) -> None:
    paths = add_batch(archive.generation(generation), batch, start, start + 10)
    note_batch(archive.generation(generation), batch, paths, start, start + 10)
    assert validated(archive).receipts_written == 1


def _kept(folder: Path, root: Path, name: str) -> Path:
    return Path(shutil.copytree(root, folder / name))


# readers


def rows_in(root: Path, paths: Iterable[str]) -> Records:
    """Read files without the product."""
    found: Records = Counter()
    for path in paths:
        name = path if path.startswith("/") else f"{root}/{path}"
        found.update(_rows_of(pq.ParquetFile(name).read(["partition", "offset", "key", "value"])))
    return found


def _rows_of(table: pa.Table) -> Iterable[Record]:
    columns = [table[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    return zip(*columns, strict=True)


def by_files(root: Path) -> Records:
    """Read the files that `kafka-drain files` lists."""
    return rows_in(root, (f.path for f in archive_files(Archive.at(str(root)).snapshot())))


def by_dataset(root: Path) -> Records:
    """Read the pyarrow dataset."""
    return Counter(_rows_of(archive_dataset(str(root)).to_table()))


def by_spark(root: Path) -> Records:
    """Read the files that Spark's reader passes on."""
    from kafka_drain_spark import reader

    listed: list[str] = []

    def read_files(_spark: Any, sources: Iterable[Mapping[str, Any]], _columns: Any) -> None:
        listed.extend(path for source in sources for path in source["files"])

    before, reader.read_files = reader.read_files, read_files  # type: ignore[assignment]
    try:
        reader.read_archive(None, str(root))  # type: ignore[arg-type]
    finally:
        reader.read_files = before
    return rows_in(root, listed)


def by_find(root: Path) -> Records:
    """Find all records."""
    matches = Search(Archive.at(str(root)), Criteria.of(), limit=100_000).matches()
    return Counter((m.position.partition, m.position.offset, m.key, m.value) for m in matches)


def by_republish(root: Path) -> Records:
    """Read what a republish of all that is sealed would send, and compare it as the sender does."""
    cluster: Any = FakeCluster(
        {TopicPartition("copy", p): Log() for p in (0, 1)},
        id="elsewhere",
        configs={"copy": {"retention.ms": "-1"}},
    )
    request = RepublishRequest(target_topic="copy", sealed_only=True)
    planned = plan_republish(Archive.at(str(root)), cluster, request, now=AT, apply=False)
    found: Records = Counter()
    for shard in planned.plan.shards:
        for file in shard.files:
            content = (root / file.path).read_bytes()
            if (len(content), hashlib.sha256(content).hexdigest()) != (file.bytes, file.sha256):
                raise OSError(f"{file.path} was changed")
            rows = rows_in(root, [file.path])
            found.update(row for row in rows.elements() if row[0] == shard.source.partition)
    return found


#: The readers, and whether they read what isn't sealed yet.
READERS: Mapping[str, tuple[Callable[[Path], Records], bool]] = {
    "files": (by_files, True),
    "archive_dataset": (by_dataset, True),
    "read_archive": (by_spark, True),
    "find": (by_find, True),
    "republish": (by_republish, False),
}


def read_by(name: str, made: Made, root: Path) -> str:
    """Return what becomes of a reader's answer: `right`, `refused`, or what is wrong with it."""
    read, is_all = READERS[name]
    expected = made.records if is_all else made.sealed
    try:
        found = read(root)
    except _LOUD:
        return "refused"
    except Exception as error:
        return f"crash: {type(error).__name__}: {error}"
    if found == expected:
        return "right"
    lost, more = expected - found, found - expected
    return f"wrong: {lost.total()} of {expected.total()} missing, {more.total()} too many"


def validate_by(root: Path, scope: Any) -> str:
    """Return `green`, `red`, or what else became of a validation; both of two must agree."""
    answers = []
    for _ in range(2):
        try:
            report = validate_archive(Archive.at(str(root)), None, scope=scope, writes=False)
            answers.append("red" if errors(report.findings) else "green")
        except KafkaDrainError:
            answers.append("refused")
        except Exception as error:
            return f"crash: {type(error).__name__}: {error}"
    return answers[0] if answers[0] == answers[1] else f"unlike: {' then '.join(answers)}"


# damages


@dataclass(frozen=True)
class Damage:
    """A damage that was made.

    Attributes:
        kind: Its kind.
        what: What was done, for people.
        is_deep: Whether only bytes within data files differ, of the same size: `--deep` finds them.
    """

    kind: str
    what: str
    is_deep: bool = False


def damage(made: Made, root: Path, number: int) -> Damage:
    """Make one damage, drawn by its number, to a copy of the archive."""
    choose = random.Random(number)
    kinds = list(KINDS)
    kind = kinds[number % len(kinds)]
    while (what := KINDS[kind](made, root, choose)) is None:
        continue
    return Damage(kind, what, _is_deep(made.root, root))


def _is_deep(before: Path, root: Path) -> bool:
    """Return whether nothing differs but bytes within data files, whose sizes are the same."""
    now, then = ({*map(str, _relative(folder))} for folder in (root, before))
    changed = [
        name for name in now & then if (root / name).read_bytes() != (before / name).read_bytes()
    ]
    return (
        now == then
        and all("/part-" in name for name in changed)
        and all((root / name).stat().st_size == (before / name).stat().st_size for name in changed)
    )


def _relative(folder: Path) -> Iterable[Path]:
    return (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _documents(root: Path) -> list[str]:
    return [name for name in _all(root) if "part-" not in name and not name.endswith(".crc")]


def _data(root: Path) -> list[str]:
    return [name for name in _all(root) if "/part-" in name]


@cache
def _all(root: Path) -> tuple[str, ...]:
    found = (path for path in root.rglob("*") if path.is_file())
    return tuple(sorted(str(path.relative_to(root)) for path in found))


def _group(name: str) -> str:
    """Return the kind of a document: those of one kind can be taken for each other."""
    folder, _, file = name.rpartition("/")
    if file[0].isdigit():
        return f"{folder.rpartition('/')[2]}/"
    return "part-" if file.startswith("part-") else file


def _any(choose: random.Random, root: Path, *, data: bool = True) -> str:
    """Draw a file: a kind first, so that receipts don't outnumber everything else."""
    groups: dict[str, list[str]] = {}
    for name in [*_documents(root), *(_data(root) if data else [])]:
        groups.setdefault(_group(name), []).append(name)
    return choose.choice(groups[choose.choice(sorted(groups))])


def _flip(made: Made, root: Path, choose: random.Random) -> str | None:
    name = _any(choose, root)
    content = bytearray((root / name).read_bytes())
    if not content:
        return None
    at = choose.randrange(len(content))
    content[at] ^= 1 << choose.randrange(8)
    (root / name).write_bytes(bytes(content))
    return f"bit of byte {at} of {name}"


def _cut(made: Made, root: Path, choose: random.Random) -> str | None:
    name = _any(choose, root)
    content = (root / name).read_bytes()
    if not content:
        return None
    at = choose.randrange(len(content))
    (root / name).write_bytes(content[:at])
    return f"{name} cut to {at} bytes"


def _pair(choose: random.Random, root: Path) -> tuple[str, str] | None:
    first = _any(choose, root)
    others = [name for name in _all(root) if name != first and _group(name) == _group(first)]
    return (first, choose.choice(others)) if others else None


def _swap(made: Made, root: Path, choose: random.Random) -> str | None:
    pair = _pair(choose, root)
    if pair is None:
        return None
    one, other = ((root / name).read_bytes() for name in pair)
    (root / pair[0]).write_bytes(other)
    (root / pair[1]).write_bytes(one)
    return f"{pair[0]} and {pair[1]} swapped"


def _copy(made: Made, root: Path, choose: random.Random) -> str | None:
    pair = _pair(choose, root)
    if pair is None:
        return None
    shutil.copy(root / pair[0], root / pair[1])
    return f"{pair[0]} copied over {pair[1]}"


def _copy_beside(made: Made, root: Path, choose: random.Random) -> str | None:
    name = _any(choose, root)
    path = root / name
    if path.stem.isdigit():
        number = int(path.stem) + choose.choice([1, 2, 20])
        target = path.with_name(f"{number:0{len(path.stem)}d}{path.suffix}")
    else:
        target = path.with_name(f"{path.stem} (1){path.suffix}")
    if target.exists():
        return None
    shutil.copy(path, target)
    return f"{name} copied to {target.name}"


def _copy_folder(made: Made, root: Path, choose: random.Random) -> str | None:
    place = choose.choice(["windows", "generations"])
    folder = choose.choice(sorted(path for path in (root / place).iterdir() if path.is_dir()))
    name = choose.choice([" (1)", ".bak", "_2", "2", ""])
    target = folder.with_name(f"{folder.name}{name}")
    if place == "generations" and not name:
        target = folder.with_name(f"{choose.choice([4, 5]):04d}")
    if target.exists():
        return None
    shutil.copytree(folder, target)
    return f"{folder.name} copied to {target.relative_to(root)}"


def _older(made: Made, root: Path, choose: random.Random) -> str | None:
    before = choose.choice(made.older)
    changed = [
        name
        for name in _documents(root)
        if (before / name).exists() and (before / name).read_bytes() != (root / name).read_bytes()
    ]
    name = choose.choice(changed)
    shutil.copy(before / name, root / name)
    return f"{name} as it was at {before.name}"


def _remove(made: Made, root: Path, choose: random.Random) -> str | None:
    name = _any(choose, root)
    (root / name).unlink()
    return f"{name} removed"


def _edit(made: Made, root: Path, choose: random.Random) -> str | None:
    name = _any(choose, root, data=False)
    if not name.endswith(".json"):
        return None
    content = (root / name).read_bytes()
    document = json.loads(content)
    is_sealed = document.pop("sha256", None) is not None and content.count(b"\n") == 1
    places = list(_places(document))
    if not places:
        return None
    holder, key = choose.choice(places)
    before = holder[key]
    holder[key] = _changed(before, choose)
    if is_sealed:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)[:-1]
        seal = hashlib.sha256(text.encode()).hexdigest()
        (root / name).write_text(f'{text},"sha256":"{seal}"}}\n')
    else:
        if b'"sha256"' in content:
            document["sha256"] = json.loads(content)["sha256"]
        (root / name).write_text(json.dumps(document, indent=2))
    return f"{key} of {name} from {str(before)[:60]} to {str(holder[key])[:60]}"


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    """Yield where a document has values, as their holder and key."""
    keys: Iterable[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _changed(value: Any, choose: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return choose.choice([value + 1, value - 1, 0 if value else 7, value + 10])
    if isinstance(value, str):
        return choose.choice([value + "x", value[:-1], "", "another"])
    return type(value)()


KINDS: Mapping[str, Callable[[Made, Path, random.Random], str | None]] = {
    "flip": _flip,
    "cut": _cut,
    "swap": _swap,
    "copy over": _copy,
    "copy beside": _copy_beside,
    "copy a folder": _copy_folder,
    "older": _older,
    "remove": _remove,
    "edit": _edit,
    "edit again": _edit,
}


# judgement

#: Documents of closed generations that a validation of the open one leaves to one of everything.
_OF_CLOSED = ("generations/0001", "generations/0002")


@dataclass(frozen=True)
class Outcome:
    """What became of a damage.

    Attributes:
        damage: The damage.
        readers: What became of each reader's answer, by name.
        scopes: What became of both validations, by scope.
    """

    damage: Damage
    readers: Mapping[str, str]
    scopes: Mapping[str, str]

    def wrong(self) -> list[str]:
        """Return what must not be: answers that are wrong without a word, and crashes."""
        found = [f"{name} {what}" for name, what in self.readers.items() if _is_bad(what)]
        if self.damage.is_deep:
            # What a plain reader can't see; `--deep` finds it.
            found = [each for each in found if "crash" in each]
        misled = [what for what in self.readers.values() if what not in ("right",)]
        for scope, what in self.scopes.items():
            if what.startswith(("crash", "unlike")):
                found.append(f"{scope} {what}")
            is_seen = scope == "all" or not any(each in self.damage.what for each in _OF_CLOSED)
            if what == "green" and misled and is_seen and not self.damage.is_deep:
                found.append(f"{scope} green, though readers: {', '.join(sorted(set(misled)))}")
        return found


def _is_bad(what: str) -> bool:
    return what not in ("right", "refused")


def tried(made: Made, folder: Path, number: int) -> Outcome:
    """Make one damage to a copy of the archive, and ask everybody."""
    root = folder / "archive"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made.root, root)
    _all.cache_clear()
    done = damage(made, root, number)
    readers = {name: read_by(name, made, root) for name in READERS}
    scopes = {scope: validate_by(root, scope) for scope in ("open", "all")}
    return Outcome(done, readers, scopes)


def refuse_wrong(made: Made, folder: Path, numbers: Iterable[int]) -> None:
    """Make damages, and fail if one misleads anybody."""
    wrong: list[str] = []
    seen: set[str] = set()
    for number in numbers:
        outcome = tried(made, folder, number)
        seen.update(outcome.readers.values())
        wrong += [f"{number}: {outcome.damage.what}: {what}" for what in outcome.wrong()]
    assert wrong == []
    # Not everything is refused, and not everything is harmless.
    assert seen >= {"right", "refused"}
