"""Damage to archives, and forgeries of them: each kind changes a copy in place.

What is forged is hashed again as the format's page says, without the product's code.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

Document = dict[str, Any]

#: Classes of files, by the first pattern that a path matches.
CLASSES = {
    "beside": r".*(\.crc|/_SUCCESS)",
    "copy": r"copies/.*",
    "manifest": r".*/_spark_metadata/.*",
    "checkpoint": r".*/checkpoint/.*",
    "data": r".*/data/.*",
    "receipt": r"generations/[0-9]+/receipts/.*",
    "window": r"windows/[^/]+/receipt\.json",
    "plan": r"windows/[^/]+/plan\.json",
    "entry": r"journal/.*",
    "head": r"journal\.json",
    "archive": r"archive\.json",
    "generation": r"generations/[0-9]+/generation\.json",
    "erasure": r"erasures/[0-9]+(\.lifted)?\.json",
    "cluster": r"cluster.*",
    "schemas": r"(schema-seals.*|registry|schemas)\.json",
    "key": r"keys/.*",
    "republish": r"republish/.*",
    "note": r".*",
}
PROOFS = ("receipt", "window", "plan", "entry", "head", "archive", "generation", "erasure")
#: What a forger who edits a document hashes again.
HASHED = ("receipt", "window", "plan", "generation", "archive", "erasure")


def class_of(path: str) -> str:
    """Return the class of a file, by its path relative to the archive."""
    return next(name for name, pattern in CLASSES.items() if re.fullmatch(pattern, path))


class Unsuitable(Exception):
    """Raised when an archive has nothing that a kind of change could change."""


@dataclass(frozen=True)
class Change:
    """A change that was made.

    Attributes:
        what: Which, for people.
        classes: The classes of the files that were changed.
        is_older: Whether the archive is as it was before something was sealed.
        is_forged: Whether all hashes were written again, so that they fit.
        is_spliced: Whether something of another archive was put in.
    """

    what: str
    classes: frozenset[str] = frozenset()
    is_older: bool = False
    is_forged: bool = False
    is_spliced: bool = False


@dataclass
class Copy:
    """A copy of an archive that is changed.

    Attributes:
        root: Its folder. Files may be links to the original's: they are replaced, never written.
        chance: Decides what is changed.
        others: Further archives, to take files from.
        touched: The classes of the files that were changed.
    """

    root: Path
    chance: Random
    others: Sequence[Path] = ()
    touched: set[str] = field(default_factory=set)

    def files(self, classes: Iterable[str] = CLASSES, root: Path | None = None) -> list[str]:
        """Return the files of some classes, sorted."""
        wanted = set(classes)
        return [path for path in _files(root or self.root) if class_of(path) in wanted]

    def pick(self, classes: Iterable[str] = CLASSES, root: Path | None = None) -> str:
        """Return a file; each class that is there is equally likely."""
        by_class = defaultdict(list)
        for path in self.files(set(classes) - {"beside"}, root):
            by_class[class_of(path)].append(path)
        if not by_class:
            raise Unsuitable
        return self.chance.choice(by_class[self.chance.choice(sorted(by_class))])

    def folder(self, root: Path | None = None) -> str:
        """Return a generation or a window."""
        base = root or self.root
        found = [
            f"{kind}/{path.name}"
            for kind in ("generations", "windows")
            for path in sorted(base.glob(f"{kind}/*"))
            if path.is_dir()
        ]
        return self.chance.choice(found)

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        return (self.root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Replace a file."""
        self.remove(path)
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self.touched.add(class_of(path))
        (self.root / path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove a folder, if it is there."""
        self._touch_below(path)
        shutil.rmtree(self.root / path, ignore_errors=True)

    def put_folder(self, source: Path, path: str) -> None:
        """Put a copy of a folder in a place."""
        self.remove_folder(path)
        shutil.copytree(source, self.root / path, copy_function=os.link)
        self._touch_below(path)

    def _touch_below(self, path: str) -> None:
        self.touched.update(class_of(each) for each in _files(self.root) if each.startswith(path))

    def load(self, path: str) -> Document:
        """Return a document."""
        document = json.loads(self.read(path))
        if not isinstance(document, dict):
            raise Unsuitable
        return document

    def dump(self, path: str, document: Document) -> str:
        """Write a document, sealed if it was, unless it is there; return its seal."""
        is_head = path in ("journal.json", "cluster.json", "schema-seals.json")
        if "sha256" not in document or is_head:
            text = json.dumps(document, indent=2, ensure_ascii=False).encode()
            self._dump(path, text + b"\n")
            return ""
        body = {key: value for key, value in document.items() if key != "sha256"}
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
        seal = hashlib.sha256(text).hexdigest()
        self._dump(path, text + b',"sha256":"' + seal.encode() + b'"}\n')
        return seal

    def _dump(self, path: str, content: bytes) -> None:
        there = self.read(path) if (self.root / path).is_file() else b"null"
        # As texts: 1 is equal to True.
        if json.dumps(json.loads(there)) != json.dumps(json.loads(content)):
            self.write(path, content)

    def hash_again(self) -> None:
        """Write all hashes again, so that they fit what the documents say now."""
        seals: dict[str, str] = {}
        previous = None
        for path in self.files(["receipt"]):
            document = self.load(path)
            document["previous"] = previous
            previous = seals[path] = self.dump(path, document)
        # A window may be made from another one.
        for _ in range(2):
            for path in self.files(["window"]):
                document = self.load(path)
                for named in document.get("provenance", {}):
                    if named in seals:
                        document["provenance"][named] = seals[named]
                seals[path] = self.dump(path, document)
        previous, entries = None, 0
        for path in self.files(["entry"]):
            document = self.load(path)
            document["previous"] = previous if document["entry"] > 1 else None
            for place, newest in document["receipts"].items():
                named = f"{place}/receipts/{newest['newest']}"
                newest["sha256"] = seals.get(named, newest["sha256"])
            for named, digest in document["documents"].items():
                if digest not in ("removed", "accepted"):
                    document["documents"][named] = seals.get(named) or self._digest(named, digest)
            previous, entries = self.dump(path, document), document["entry"]
        if (self.root / "journal.json").exists():
            self.dump("journal.json", {"entries": entries, "sha256": previous})
        self._copy_again()

    def _copy_again(self) -> None:
        """Write copies again, and remove notes of what was sealed: runs write these again."""
        for path in self.files(["copy"]):
            original = path.removeprefix("copies/")
            if (self.root / original).is_file():
                self.write(path, self.read(original))
        for path in self.files(["note"]):
            if path == "index.json" or path.endswith("/summary.json"):
                self.remove(path)

    def total_again(self) -> None:
        """Write the totals of files again."""
        totals: dict[str, tuple[int, int, int]] = {}
        for path in self.files(["receipt", "window"]):
            owner, document = "/".join(path.split("/")[:2]), self.load(path)
            number, size, digest = totals.get(owner, (0, 0, 0))
            for file in document["files"]:
                text = f"{file['path']}\0{file['bytes']}".encode()
                digest += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
                number, size = number + 1, size + file["bytes"]
            totals[owner] = number, size, digest
            digits = f"{digest % (1 << 128):032x}"
            document["files_so_far"] = {"files": number, "bytes": size, "digest": digits}
            self.dump(path, document)

    def _digest(self, path: str, before: str) -> str:
        if not (self.root / path).is_file():
            return before
        document: Any = self.load(path)
        if path.endswith("/generation.json"):
            document.pop("topics", None)
        if path == "archive.json":
            document = [document["pipeline"], document["cluster_id"]]
        return hashlib.sha256(
            json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        ).hexdigest()


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _edit(chance: Random, document: Document) -> str:
    """Change one value of a document; return which. Each key is equally likely."""
    by_key = defaultdict(list)
    for at, value in _values(document):
        if at[0] not in ("sha256", "previous"):
            by_key[tuple("[]" if isinstance(each, int) else each for each in at)].append(
                (at, value)
            )
    at, value = chance.choice(by_key[chance.choice(sorted(by_key))])
    new = _other(chance, value)
    if new == value:
        raise Unsuitable
    inner: Any = document
    for each in at[:-1]:
        inner = inner[each]
    inner[at[-1]] = new
    return f"{'.'.join(map(str, at))}: {str(value)[:50]} -> {str(new)[:50]}"


def _values(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if at:
        yield at, value
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, each in inner:
        yield from _values(each, (*at, key))


def _other(chance: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return max(0, value + chance.choice([-2, -1, 1, 2, 7, 100, -value]))
    if isinstance(value, str):
        return f"{value[:-1]}{'1' if value.endswith('0') else '0'}" if value else "x"
    if isinstance(value, list) and value:
        return value[:-1] if chance.random() < 0.6 else [*value, copy.deepcopy(value[0])]
    if isinstance(value, dict) and value:
        gone = chance.choice(sorted(value))
        return {key: each for key, each in value.items() if key != gone}
    return chance.choice([0, "x"])


def flip(it: Copy) -> Change:
    """Change a bit."""
    path = it.pick()
    content = bytearray(it.read(path))
    if not content:
        raise Unsuitable
    at = it.chance.randrange(len(content))
    content[at] ^= 1 << it.chance.randrange(8)
    it.write(path, bytes(content))
    return Change(f"{path} byte {at}")


def cut(it: Copy) -> Change:
    """Cut a file's end off."""
    path = it.pick()
    content = it.read(path)
    if not content:
        raise Unsuitable
    it.write(path, content[: it.chance.randrange(len(content))])
    return Change(path)


def scribble(it: Copy) -> Change:
    """Write over some bytes of a data file."""
    path = it.pick(["data"])
    content = bytearray(it.read(path))
    for _ in range(it.chance.choice([1, 4, 30])):
        content[it.chance.randrange(len(content))] = it.chance.randrange(256)
    it.write(path, bytes(content))
    return Change(path)


def swap(it: Copy) -> Change:
    """Let two files of a class change places."""
    one = it.pick()
    other = it.pick([class_of(one)])
    mine, theirs = it.read(one), it.read(other)
    if mine == theirs:
        raise Unsuitable
    it.write(one, theirs)
    it.write(other, mine)
    return Change(f"{one} and {other}")


def put(it: Copy) -> Change:
    """Put a file in another's place."""
    one = it.pick()
    other = it.pick([class_of(one)] if it.chance.random() < 0.7 else CLASSES)
    if it.read(one) == it.read(other):
        raise Unsuitable
    it.write(other, it.read(one))
    return Change(f"{one} over {other}")


def put_foreign(it: Copy) -> Change:
    """Put a file of another archive in one's place."""
    other = it.chance.choice(it.others)
    path = it.pick()
    source = other / it.pick([class_of(path)], other)
    if source.read_bytes() == it.read(path):
        raise Unsuitable
    it.write(path, source.read_bytes())
    return Change(f"{source.relative_to(other.parent)} over {path}")


def duplicate(it: Copy) -> Change:
    """Copy a generation or a window beside itself."""
    path = it.folder()
    kind, _, name = path.partition("/")
    if kind == "generations":
        names = [f"{int(name) + 1:04d}", f"{int(name) + 7:04d}", f"{name} (1)", f"0{name}"]
    else:
        names = [f"{name}_2", f"{name} (1)", f"copy_{name}"]
    new = it.chance.choice(names)
    it.put_folder(it.root / path, f"{kind}/{new}")
    return Change(f"{path} as {new}")


def drop(it: Copy) -> Change:
    """Remove a file, and its copy or not."""
    path = it.pick()
    it.remove(path)
    if it.chance.random() < 0.6:
        it.remove(f"copies/{path}")
    return Change(path)


def drop_folder(it: Copy) -> Change:
    """Remove a generation or a window, and its copies or not."""
    path = it.folder()
    it.remove_folder(path)
    if it.chance.random() < 0.6:
        it.remove_folder(f"copies/{path}")
    return Change(path)


def splice(it: Copy) -> Change:
    """Put a generation or a window of another archive in."""
    other = it.chance.choice(it.others)
    path = it.folder(other)
    it.put_folder(other / path, path)
    return Change(f"{other.name}/{path}", is_spliced=True)


def roll_back_head(it: Copy) -> Change:
    """Set the journal's head back."""
    entries = it.files(["entry"])
    if len(entries) < 2:
        raise Unsuitable
    number = it.chance.randrange(1, len(entries))
    older = it.load(entries[-1 - number])
    it.dump("journal.json", {"entries": older["entry"], "sha256": older["sha256"]})
    return Change(f"by {number}")


def roll_back_journal(it: Copy) -> Change:
    """Take the journal's newest entries away, and set its head back."""
    entries = it.files(["entry"])
    if not entries:
        raise Unsuitable
    number = it.chance.randrange(1, len(entries) + 1)
    for path in entries[-number:]:
        it.remove(path)
    if number == len(entries):
        it.remove("journal.json")
    else:
        older = it.load(entries[-1 - number])
        it.dump("journal.json", {"entries": older["entry"], "sha256": older["sha256"]})
    return Change(f"by {number} of {len(entries)}")


def roll_back(it: Copy) -> Change:
    """Take the newest seals away with all that names them: the archive is as it was before."""
    entries = it.files(["entry"])
    if len(entries) < 2:
        raise Unsuitable
    newest, older = it.load(entries[-1]), it.load(entries[-2])
    gone = [f"{place}/receipts/{tip['newest']}" for place, tip in newest["receipts"].items()]
    gone += [
        path
        for path, digest in newest["documents"].items()
        if digest not in ("removed", "accepted") and class_of(path) in ("window", "plan", "erasure")
    ]
    for path in gone:
        it.remove(path)
        it.remove(f"copies/{path}")
    it.remove(entries[-1])
    it.dump("journal.json", {"entries": older["entry"], "sha256": older["sha256"]})
    return Change(", ".join(gone), is_older=True)


def edit(it: Copy) -> Change:
    """Edit a document and seal it again."""
    path = it.pick([*(each for each in PROOFS if each != "head"), "cluster", "schemas"])
    document = it.load(path)
    what = _edit(it.chance, document)
    it.dump(path, document)
    return Change(f"{path} {what}")


def forge(it: Copy) -> Change:
    """Edit a document, and hash everything again."""
    path = it.pick(HASHED)
    document = it.load(path)
    what = _edit(it.chance, document)
    it.dump(path, document)
    it.hash_again()
    return Change(f"{path} {what}", is_forged=True)


def forge_tail(it: Copy) -> Change:
    """Edit the newest receipt, at one or two places, and hash everything again."""
    path = it.files(["receipt"])[-1]
    document = it.load(path)
    what = [_edit(it.chance, document) for _ in range(it.chance.choice([1, 1, 2]))]
    it.dump(path, document)
    it.hash_again()
    return Change(f"{path} {' and '.join(what)}", is_forged=True)


def forge_journal(it: Copy) -> Change:
    """Edit an entry of the journal, and chain the later ones to it."""
    entries = it.files(["entry"])
    if not entries:
        raise Unsuitable
    path = it.chance.choice(entries)
    document = it.load(path)
    what = _edit(it.chance, document)
    it.dump(path, document)
    previous = None
    for number, each in enumerate(entries):
        document = it.load(each)
        document["previous"] = previous if number else document["previous"]
        previous = it.dump(each, document)
    it.dump("journal.json", {"entries": len(entries), "sha256": previous})
    return Change(f"{path} {what}", is_forged=True)


def forge_file(it: Copy) -> Change:
    """Put a data file in another's place, with size and hashes that fit."""
    files = it.files(["data"])
    one, other = it.chance.choice(files), it.chance.choice(files)
    content = it.read(one)
    if content == it.read(other):
        raise Unsuitable
    it.write(other, content)
    _seal_file(it, other, content)
    return Change(f"{one} over {other}", is_forged=True)


def _seal_file(it: Copy, path: str, content: bytes) -> None:
    is_sealed = False
    for receipt in it.files(["receipt", "window"]):
        document = it.load(receipt)
        for file in document["files"]:
            if file["path"] == path:
                file["bytes"], file["sha256"] = len(content), hashlib.sha256(content).hexdigest()
                file.pop("index_sha256", None)
                is_sealed = True
        it.dump(receipt, document)
    if not is_sealed:
        raise Unsuitable
    for log in it.files(["manifest"]):
        lines = it.read(log).decode().splitlines()
        for number, line in enumerate(lines[1:], 1):
            entry = json.loads(line)
            if unquote(entry["path"]).endswith(f"/{path}"):
                lines[number] = json.dumps(entry | {"size": len(content)})
        it.write(log, "\n".join(lines).encode())
    it.total_again()
    it.hash_again()


def forge_rows(it: Copy) -> Change:
    """Change the rows of a Parquet file, with size and hashes that fit."""
    path = it.pick(["data"])
    if not path.endswith(".parquet") or b"masterKeyID" in it.read(path):
        raise Unsuitable
    table = pq.ParquetFile(it.root / path).read()
    at = it.chance.randrange(table.num_rows)
    what = it.chance.choice(["offset", "value", "key", "partition", "drop", "double", "swap"])
    if what == "drop":
        table = pa.concat_tables([table.slice(0, at), table.slice(at + 1)])
    elif what == "double":
        table = pa.concat_tables([table, table.slice(at, 1)])
    elif what == "swap":
        table = pa.concat_tables([table.slice(1), table.slice(0, 1)])
    else:
        values = table[what].to_pylist()
        values[at] = values[at] + 1 if isinstance(values[at], int) else (values[at] or b"") + b"x"
        number = table.schema.get_field_index(what)
        field = table.schema.field(number)
        table = table.set_column(number, field, pa.array(values, field.type))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    it.write(path, content)
    _seal_file(it, path, content)
    return Change(f"{path} row {at}: {what}", is_forged=True)


def forge_replaced(it: Copy) -> Change:
    """Let a window replace one file more, or one less; hash everything again."""
    path = it.pick(["window"])
    document, plan = it.load(path), it.load(_plan_of(path))
    files = [
        file["path"] for each in it.files(["receipt", "window"]) for file in it.load(each)["files"]
    ]
    if document["replaces"] and it.chance.random() < 0.5:
        what = it.chance.choice(document["replaces"])
        document["replaces"].remove(what)
    else:
        what = it.chance.choice(files)
        if what in document["replaces"]:
            raise Unsuitable
        document["replaces"].append(what)
    plan["replaces"] = document["replaces"]
    it.dump(path, document)
    it.dump(_plan_of(path), plan)
    it.hash_again()
    return Change(f"{path} {what}", is_forged=True)


def _plan_of(path: str) -> str:
    return path.replace("receipt.json", "plan.json")


def forge_offsets(it: Copy) -> Change:
    """Shift all offsets of a window, in receipt and plan; hash everything again."""
    path, by = it.pick(["window"]), it.chance.choice([1, 2, 5, 1000])
    document, plan = it.load(path), it.load(_plan_of(path))
    for row in document["partitions"]:
        for key in ("start", "end", "first_offset", "last_offset"):
            row[key] = row[key] if row[key] is None else row[key] + by
        row["so_far"]["start"] += by
        for ranges in row["gaps"].values():
            ranges[:] = [[start + by, end + by] for start, end in ranges]
    for content in (each for file in document["files"] for each in file["contents"]):
        content["first_offset"] += by
        content["last_offset"] += by
    for row in plan["ranges"]:
        row["start"] += by
        row["end"] += by
    it.dump(path, document)
    it.dump(_plan_of(path), plan)
    it.hash_again()
    return Change(f"{path} by {by}", is_forged=True)


def double_key(it: Copy) -> Change:
    """Write a key of a document twice, and seal it again."""
    path = it.pick(PROOFS)
    text = it.read(path).decode()
    found = [
        each
        for each in re.finditer(r'[{,]\s*("[^"]+"\s*:\s*("[^"]*"|\d+))', text)
        if '"sha256"' not in each[1]
    ]
    if not found:
        raise Unsuitable
    at = it.chance.choice(found)
    content = f"{text[: at.end()]},{at[1]}{text[at.end() :]}".encode()
    body, seal, _ = content.rpartition(b',"sha256":"')
    if seal and path != "journal.json":
        digest = hashlib.sha256(body).hexdigest().encode()
        content = body + seal + digest + b'"}\n'
    it.write(path, content)
    return Change(f"{path} {at[1][:50]}")


def change_version(it: Copy) -> Change:
    """Give a document another version, and seal it again; or hash everything again."""
    path = it.pick([*PROOFS, "cluster"])
    document = it.load(path)
    if "format_version" not in document:
        raise Unsuitable
    document["format_version"] = it.chance.choice([0, 5, 9, "1", 1.0, True, None])
    it.dump(path, document)
    is_forged = it.chance.random() < 0.5
    if is_forged:
        it.hash_again()
    return Change(f"{path} {document['format_version']!r}", is_forged=is_forged)


def link(it: Copy) -> Change:
    """Put a symbolic link to the same bytes in a file's place."""
    path = it.pick([*PROOFS, "data"])
    content = it.read(path)
    outside = it.root.with_name("outside")
    outside.write_bytes(content)
    it.remove(path)
    (it.root / path).symlink_to(outside)
    return Change(path)


#: By name, as the tables of results show them.
KINDS: dict[str, Callable[[Copy], Change]] = {
    each.__name__.replace("_", " "): each
    for each in (
        flip,
        cut,
        scribble,
        swap,
        put,
        put_foreign,
        duplicate,
        drop,
        drop_folder,
        splice,
        roll_back_head,
        roll_back_journal,
        roll_back,
        edit,
        forge,
        forge_tail,
        forge_journal,
        forge_file,
        forge_rows,
        forge_replaced,
        forge_offsets,
        double_key,
        change_version,
        link,
    )
}


def mutate(
    original: Path, root: Path, others: Sequence[Path], chance: Random
) -> tuple[str, Change]:
    """Copy an archive, and change the copy in a way that chance decides; return kind and change."""
    while True:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(original, root, copy_function=os.link)
        kind = chance.choice(sorted(KINDS))
        it = Copy(root, chance, [each for each in others if each != original])
        try:
            change = KINDS[kind](it)
        except (Unsuitable, KeyError, TypeError, AttributeError, ValueError):
            # Also an edit that took away what has to be hashed again.
            continue
        return kind, replace(change, classes=frozenset(it.touched))
