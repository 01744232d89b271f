"""The restores of an archive, as a list shows them: read from the documents of its republish runs.

One listing says which runs there are and how far each is; documents are read of the newest runs
only, and once: they don't change.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from upath import UPath

from kafka_drain.errors import KafkaDrainError
from kafka_drain.pages.restores import Restore, TopicSent
from kafka_drain.republish.planning.documents import ReceiptJson, VerificationJson
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import OPENINGS, RepublishRun

#: Number of an archive's newest runs whose documents are read.
NEWEST = 50
#: Number of runs that are kept in memory, of all archives.
KEPT = 2_000

#: Keys of the time at which a file was written, in its info from stores of fsspec.
_TIMES = ("mtime", "LastModified", "last_modified", "updated")


class _Found(NamedTuple):
    """A run's files, as they are listed: names, and when the newest was written."""

    names: frozenset[str]
    #: Sizes and times of the files: other ones are other files.
    seen: tuple[tuple[str, object, object], ...]
    at: float


class Restores:
    """The restores of some archives, kept for the lifetime of the process; thread-safe."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], tuple[_Found, Restore]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: UPath) -> tuple[list[Restore], int]:
        """Return an archive's newest restores, and the number of older ones.

        Restores that a drill made aren't among them. One whose documents were changed says so.
        """
        found = _listed(root)
        newest = sorted(found, key=lambda key: (found[key].at, key), reverse=True)[:NEWEST]
        return [self._restore(root, key, found[key]) for key in newest], len(found) - len(newest)

    def _restore(self, root: UPath, key: str, found: _Found) -> Restore:
        with self._lock:
            held = self._held.get((str(root), key))
        if held is not None and held[0] == found:
            return held[1]
        restore = read_restore(RepublishRun(root, key), found.names)
        with self._lock:
            self._held[str(root), key] = found, restore
            self._held.move_to_end((str(root), key))
            while len(self._held) > KEPT:
                self._held.popitem(last=False)
        return restore


def _listed(root: UPath) -> dict[str, _Found]:
    """Return an archive's runs with a plan, by key: one listing, however many there are."""
    folder = root / "republish"
    files: dict[str, dict[str, Mapping[str, Any]]] = {}
    prefix = folder.path.strip("/") + "/"
    for path, info in folder.fs.find(folder.path, detail=True).items():
        key, _, name = path.strip("/").removeprefix(prefix).partition("/")
        # Below a run's folder are plans for consumer groups.
        if name and "/" not in name and key != OPENINGS:
            files.setdefault(key, {})[name] = info
    return {
        key: _Found(
            frozenset(names),
            tuple(sorted((name, info.get("size"), _time(info)) for name, info in names.items())),
            max(map(_time, names.values())),
        )
        for key, names in files.items()
        if "plan.json" in names and not RepublishRun(root, key).is_of_drill
    }


def _time(info: Mapping[str, Any]) -> float:
    """Return the time of a file's writing, in seconds since 1970; 0 if its store doesn't say."""
    at = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(at, str):
        at = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return at.timestamp() if isinstance(at, datetime) else float(at)


def read_restore(run: RepublishRun, names: Iterable[str]) -> Restore:
    """Return a run as a list shows it, given the names of the files in its folder."""
    there = frozenset(names)
    is_abandoned = "abandoned.json" in there
    try:
        receipt = run.receipt() if "receipt.json" in there else None
        if receipt is not None:
            return _ended(receipt)
        plan = run.require_plan()
    except (KafkaDrainError, OSError) as error:
        return Restore(run.key, run.key, "", is_abandoned=is_abandoned, problem=str(error))
    return _begun(plan, is_opened="opened.json" in there, is_abandoned=is_abandoned)


def _ended(receipt: ReceiptJson) -> Restore:
    verified = receipt["verification"]
    return Restore(
        run=receipt["run"],
        key=receipt["key"],
        started_at=receipt["started_at"],
        ended_at=receipt["finished_at"],
        records=receipt["records"],
        topics=_topics(
            (row["source_topic"], row["target_topic"], row["records"]) for row in receipt["sent"]
        ),
        cluster_id=receipt.get("cluster_id", ""),
        delivery=receipt["delivery"],
        how=f"engine {receipt['engine']}",
        has_receipt=True,
        is_exact=None if verified is None else verified["is_exact"],
        lost=0 if verified is None else verified["lost"],
        verified="" if verified is None else _verified(verified),
        is_opened=True,
        seconds=receipt["seconds"],
    )


def _begun(plan: RepublishPlan, *, is_opened: bool, is_abandoned: bool) -> Restore:
    return Restore(
        run=plan.run,
        key=plan.key,
        started_at=plan.created_at,
        records=plan.records,
        size=plan.size,
        topics=_topics((s.source.topic, s.target_topic, s.records) for s in plan.shards),
        cluster_id=plan.cluster_id,
        delivery=plan.delivery,
        how=f"engine {plan.engine}",
        is_opened=is_opened,
        is_abandoned=is_abandoned,
    )


def _topics(rows: Iterable[tuple[str, str, int]]) -> list[TopicSent]:
    partitions: Counter[tuple[str, str]] = Counter()
    records: Counter[tuple[str, str]] = Counter()
    for source, target, number in rows:
        partitions[source, target] += 1
        records[source, target] += number
    return [TopicSent(*pair, partitions[pair], records[pair]) for pair in sorted(partitions)]


def _verified(found: VerificationJson) -> str:
    counts = (
        (found["lost"], "lost"),
        (found["twice"], "duplicated"),
        (found["out_of_order"], "out of order"),
        (found["foreign"], "of other producers in between"),
        (found["compacted"], "compacted by Kafka since"),
    )
    said = (f"{number:,} {words}" for number, words in counts if number)
    return "; ".join([f"{found['records']:,} records compared", *said])
