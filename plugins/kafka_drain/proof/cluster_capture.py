"""Describe the drained cluster before batches are sealed, and check earlier descriptions.

What a moment says holds *as of* its answer: after Kafka had been read up to the end of every batch
that the same validation seals, and before their receipts were written. So a group's offset below
the end of the archive names an archived record, and an offset beyond it says that the group has
read records that the archive doesn't hold yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from upath import UPath

from kafka_drain.archive.cluster_documents import ClusterDocumentError
from kafka_drain.archive.cluster_moments import MOMENTS, check_moments, note_moment
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.clock import Clock
from kafka_drain.findings import Finding
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import (
    ASKED,
    UNAVAILABLE_PARTS,
    ClusterState,
    Part,
    PartOutcome,
)
from kafka_drain.kafka.describing import ClusterDescriber, Cost
from kafka_drain.output import say
from kafka_drain.storage.sealed_json import SealedName

#: Returns the state of the cluster as far as it concerns some topics.
Describe = Callable[[Collection[str]], ClusterState]


#: A description that takes this long is reported.
SLOW_MILLISECONDS = 2_000


def describe_with(config: KafkaConfig, parts: Collection[str]) -> Describe | None:
    """Return the function that describes a cluster; None if all parts are switched off.

    Args:
        config: Connection settings.
        parts: The parts to ask for.
    """
    wanted = [part for part in ASKED if part in parts]
    if not wanted:
        return None

    def describe(topics: Collection[str]) -> ClusterState:
        describer = ClusterDescriber(config)
        state = describer.describe(topics, wanted)
        for line in [*slow_description(describer.cost), *missing_parts(state)]:
            say(f"validate: {line}")
        return state

    return describe


def slow_description(cost: Cost) -> list[str]:
    """Return a line if a description took long enough to be worth a word."""
    if cost.milliseconds < SLOW_MILLISECONDS:
        return []
    seconds = cost.milliseconds / 1000
    return [
        f"describing the cluster took {seconds:.1f} s ({cost.requests:,} requests); "
        "--describe-cluster and the pipeline's describe_cluster choose its parts"
    ]


def missing_parts(state: ClusterState) -> list[str]:
    """Return a line for each part that was asked for and isn't whole."""
    return [
        f"{part}: {result.outcome}{': ' + result.detail if result.detail else ''}"
        for part, result in state.parts.items()
        if part not in UNAVAILABLE_PARTS
        and (result.outcome not in (PartOutcome.CAPTURED, PartOutcome.OFF) or result.detail)
    ]


def parts_before(root: UPath) -> list[Part]:
    """Return the parts to ask for where no pipeline says it: those that weren't off last time."""
    newest = MOMENTS.newest(root)
    try:
        parts = MOMENTS.read(root, newest.number).parts if newest else {}
    except (FileNotFoundError, ClusterDocumentError):
        parts = {}
    return [p for p in ASKED if p not in parts or parts[p].outcome != PartOutcome.OFF]


class Described(NamedTuple):
    """The cluster's description when batches are sealed.

    Attributes:
        moment: The name of the newest moment; None if there is none.
        is_current: Whether it holds as of now: the cluster has just answered.
    """

    moment: SealedName | None
    is_current: bool


def capture(snapshot: Snapshot, describe: Describe | None, clock: Clock) -> Described:
    """Describe the cluster, and write a moment if something has changed.

    Args:
        snapshot: The archive.
        describe: Returns what the cluster answers; None to ask nothing.
        clock: Returns the current time.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    document, asked_at = snapshot.document, _text(clock())
    state = describe(sorted(document.topics)) if describe is not None else None
    # Another cluster is refused by the validation; one that didn't answer says nothing.
    if state is None or state.cluster_id != document.cluster_id:
        return Described(MOMENTS.newest(snapshot.root), is_current=False)
    answered_at = _text(clock())
    noted = note_moment(snapshot.root, state, asked_at=asked_at, answered_at=answered_at)
    return Described(noted, is_current=True)


def check_descriptions(
    snapshot: Snapshot, newest: SealedName | None, receipts: Iterable[Receipt], *, whole: bool
) -> list[Finding]:
    """Find descriptions of the cluster that are missing or were changed.

    Args:
        snapshot: The archive.
        newest: The newest moment.
        receipts: Receipts that name moments.
        whole: Whether to check all moments; otherwise only the newest and the named ones.
    """
    named = {r.cluster.number: r.cluster.sha256 for r in receipts if r.cluster is not None}
    return check_moments(snapshot.root, named, newest, whole=whole)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
