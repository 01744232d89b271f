"""What must hold of an archive by the words of docs/format.md alone holds of those we write."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive import window
from kafka_drain.archive.journal.digests import canonical_digest
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.maintenance import compact as compacting
from kafka_drain.windows import window_jobs
from tests.documentation.test_format import MADE, PAGE, SCHEMAS
from tests.kafka_drain.fake_cluster import fake_application

Document = dict[str, Any]
#: Topic, its id, partition and offset.
Record = tuple[str, str, int, int]


@pytest.fixture(params=["decoded", "drained", "maintained", "backfilled", "reprocessed", "erased"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an archive."""
    for module in (compacting, window_jobs):
        monkeypatch.setattr(module, "prepare_application", fake_application)
    return Path(str(MADE[request.param](tmp_path / "archive").root))


def read(path: Path) -> Document:
    """Read a document."""
    document: Document = json.loads(path.read_bytes())
    return document


def of_generations(root: Path) -> Iterator[tuple[Path, Document]]:
    """Yield the receipts of all generations, oldest first."""
    for path in sorted(root.glob("generations/*/receipts/*.json")):
        yield path, read(path)


def of_windows(root: Path) -> Iterator[tuple[Path, Document]]:
    """Yield the receipts of all windows."""
    for path in sorted(root.glob("windows/*/receipt.json")):
        yield path, read(path)


def newest(root: Path) -> dict[str, Document]:
    """Return the newest receipt of each generation, by the generation's folder."""
    return {path.parts[-3]: receipt for path, receipt in of_generations(root)}


def length(ranges: Iterable[list[int]]) -> int:
    """Return the number of offsets in ranges."""
    return sum(end - start for start, end in ranges)


def test_place_and_identity(root: Path) -> None:
    """Receipts are those of their place, and of the archive; generations agree with them."""
    archive = read(root / "archive.json")
    receipts = [*of_generations(root), *of_windows(root)]
    for path, receipt in receipts:
        of_window = path.name == "receipt.json"
        assert receipt["window"] == (path.parent.name if of_window else "")
        assert receipt["generation"] == (None if of_window else int(path.parts[-3]))
        assert of_window or path.name == f"{receipt['last_batch']:012d}.json"
        assert (receipt["pipeline"], receipt["cluster_id"]) == (
            archive["pipeline"],
            archive["cluster_id"],
        )
    sealed: dict[str, str] = {}
    for name, receipt in newest(root).items():
        generation = read(root / "generations" / name / "generation.json")
        assert generation["generation"] == int(name)
        topics = generation.get("topics", receipt["topics"])
        assert {topic: topics[topic] for topic in receipt["topics"]} == receipt["topics"]
        sealed |= receipt["topics"]
        for part in receipt["partitions"]:
            starts = generation["starting_offsets"].get(part["topic"], {})
            start = part["so_far"]["start"]
            assert starts.get(str(part["partition"]), start) == start
    # None of these topics was recreated.
    assert {topic: archive["topics"][topic] for topic in sealed} == sealed


def test_figures(root: Path) -> None:
    """The figures of each receipt agree with each other."""
    for path, receipt in [*of_generations(root), *of_windows(root)]:
        parts = receipt["partitions"]
        data = "/".join(path.relative_to(root).parts[:2]) + "/data/"
        assert receipt["offsets"] == sum(part["end"] - part["start"] for part in parts)
        assert receipt["records"] == sum(part["records"] for part in parts)
        paths = [file["path"] for file in receipt["files"]]
        assert len({*paths}) == len(paths)
        assert all(where.startswith(data) for where in paths)
        for part in parts:
            assert not part["gaps"].keys() & {"open", "lost", "unknown"}
            assert part["records"] + sum(map(length, part["gaps"].values())) == (
                part["end"] - part["start"]
            )
            contents = [
                each
                for file in receipt["files"]
                for each in file["contents"]
                if (each["topic"], each["partition"]) == (part["topic"], part["partition"])
                and part["start"] <= each["first_offset"] < part["end"]
            ]
            assert sum(each["records"] for each in contents) == part["records"]
            for key, choose in (("first_timestamp", min), ("last_timestamp", max)):
                known = [each[key] for each in contents if each[key] is not None]
                assert part[key] == choose(known, default=None)


def test_totals(root: Path) -> None:
    """The totals of each receipt are those of the one before it, and its own."""
    known: dict[tuple[str, str, int], Document] = {}
    for path, receipt in of_generations(root):
        for part in receipt["partitions"]:
            key = path.parts[-3], part["topic"], part["partition"]
            before = known.get(key)
            so_far = before["so_far"] if before else {"start": part["start"], "records": 0}
            gaps = dict(so_far.get("gaps", {}))
            for reason, ranges in part["gaps"].items():
                gaps[reason] = gaps.get(reason, 0) + length(ranges)
            assert before is None or before["end"] == part["start"]
            assert part["so_far"] == {
                "start": so_far["start"],
                "records": so_far["records"] + part["records"],
                "gaps": gaps,
            }
            known[key] = part
    for _, receipt in of_windows(root):
        for part in receipt["partitions"]:
            assert part["so_far"] == {
                "start": part["start"],
                "records": part["records"],
                "gaps": {reason: length(ranges) for reason, ranges in part["gaps"].items()},
            }


def test_windows_follow_their_plans(root: Path) -> None:
    """A receipt has what its plan lists; that of a backfill may have less of it."""
    for path, receipt in of_windows(root):
        plan = read(path.parent / "plan.json")
        planned, sealed = (
            {
                (each["topic"], each["partition"], offset)
                for each in rows
                for offset in range(each["start"], each["end"])
            }
            for rows in (plan["ranges"], receipt["partitions"])
        )
        assert sorted(receipt["replaces"]) == sorted(plan["replaces"])
        assert sealed <= planned
        assert "interval" in plan or sealed == planned


def records_of(files: Iterable[Document]) -> Counter[tuple[str, int]]:
    """Return the number of records in files, by partition."""
    found: Counter[tuple[str, int]] = Counter()
    for file in files:
        for each in file["contents"]:
            found[each["topic"], each["partition"]] += each["records"]
    return found


def in_gaps(receipts: Iterable[Document], reason: str) -> set[tuple[str, int, int]]:
    """Return the offsets that receipts give a reason."""
    return {
        (part["topic"], part["partition"], offset)
        for receipt in receipts
        for part in receipt["partitions"]
        for start, end in part["gaps"].get(reason, ())
        for offset in range(start, end)
    }


def test_accounting(root: Path) -> None:
    """Windows hold as many records as the intact files that they replace, but for their gaps."""
    receipts = [receipt for _, receipt in [*of_generations(root), *of_windows(root)]]
    files = {file["path"]: file for receipt in receipts for file in receipt["files"]}
    for path, receipt in of_windows(root):
        plan = read(path.parent / "plan.json")
        if "replaced" not in plan:
            continue
        replaced = [files[where] for where in receipt["replaces"]]
        held, own = records_of(replaced), records_of(receipt["files"])
        rows = {
            (row["topic"], row["partition"]): row["records"] for row in plan["replaced"]["records"]
        }
        assert rows == held
        assert plan["replaced"]["files"] == len(replaced)
        assert plan["replaced"]["bytes"] == sum(file["bytes"] for file in replaced)
        if plan["kind"] == "retention":
            deleted = in_gaps([receipt], "deleted")
            assert Counter((topic, partition) for topic, partition, _ in deleted) == held
        if plan["kind"] in ("compact", "erase"):
            before = [read(root / where) for where in receipt["provenance"]]
            erased = in_gaps([receipt], "erased") - in_gaps(before, "erased")
            assert own + Counter((topic, partition) for topic, partition, _ in erased) == held
            named = [row["records"] for row in plan.get("erasures", ())]
            assert max(named, default=0) <= len(erased) <= sum(named)
            assert plan.get("hashes", {}).items() <= {
                (file["path"], file["sha256"]) for file in replaced
            }


def test_no_overlap(root: Path) -> None:
    """No offset is held twice, unless one segment replaces files of the other."""
    windows = [receipt for _, receipt in of_windows(root)]
    replaced = {where for receipt in windows for where in receipt["replaces"]}
    held: dict[str, set[Record]] = {}
    for name, receipt in newest(root).items():
        held[f"generations/{name}"] = {
            (part["topic"], receipt["topics"][part["topic"]], part["partition"], offset)
            for part in receipt["partitions"]
            for offset in range(part["so_far"]["start"], part["end"])
        }
        # None of these generations has left offsets to windows.
        assert all("window" not in part["so_far"]["gaps"] for part in receipt["partitions"])
    direct = {}
    for receipt in windows:
        owner = f"windows/{receipt['window']}"
        direct[owner] = {"/".join(where.split("/")[:2]) for where in receipt["replaces"]}
        if any(file["path"] not in replaced for file in receipt["files"]):
            held[owner] = {
                (part["topic"], receipt["topics"][part["topic"]], part["partition"], offset)
                for part in receipt["partitions"]
                for offset in range(part["start"], part["end"])
                if not any(
                    start <= offset < end
                    for reason, ranges in part["gaps"].items()
                    for start, end in ranges
                    if reason != "erased"
                )
            }

    def stands_for(owner: str) -> set[str]:
        below = direct.get(owner, set())
        return below.union(*map(stands_for, below))

    for a, b in combinations(held, 2):
        if b not in stands_for(a) and a not in stands_for(b):
            assert not held[a] & held[b]


def test_summaries(root: Path) -> None:
    """A row of a summary follows from its receipt."""
    for path in root.glob("generations/*/summary.json"):
        for row in read(path)["receipts"]:
            receipt = read(path.parent / "receipts" / row["name"])
            contents = [each for file in receipt["files"] for each in file["contents"]]
            for key, choose in (("first_timestamp", min), ("last_timestamp", max)):
                times = [each[key] for each in contents]
                assert row[key] == (choose(times) if times and None not in times else None)
            is_unknown = receipt["fingerprint"] is None and receipt["records"] > 0
            assert row["unknown_content"] == is_unknown


def test_sealed_documents_are_called_sealed() -> None:
    """The section of each document that ends in its own hash says that it is sealed."""
    for name, schema in SCHEMAS.items():
        section = PAGE.partition(f"\n### {schema['title']}\n")[2].partition("\n### ")[0]
        is_sealed = schema.get("required", [])[-1:] == ["sha256"] and not name.endswith("-head")
        assert (", sealed" in section) == (is_sealed and name != "told-window"), name


def test_canonical_form() -> None:
    """The canonical form escapes what the page says, and nothing else."""
    value = {"é": [1, None, True, 0.1], "a": '"\\\b\t\n\f\r\x01\x1f\x7f/😀'}
    text = r'{"a":"\"\\\b\t\n\f\r\u0001\u001f' + '\x7f/😀","é":[1,null,true,0.1]}'

    assert canonical_digest(value) == hashlib.sha256(text.encode()).hexdigest()


def test_names_of_windows() -> None:
    """The page has the pattern of windows' names."""
    assert f"`{window._KEY.pattern}`" in PAGE


def test_notes_of_plans() -> None:
    """A plan of each kind has notes, but those of a republish, which has its run's folder."""
    kinds = {*APPROVABLE} - {"republish"}
    pattern = SCHEMAS["frozen-plan-note"]["properties"]["plan"]["pattern"]

    assert {*pattern.partition("(")[2].partition(")")[0].split("|")} == kinds
