"""Compare a republish with earlier ones, so that nothing gets into a target twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from upath import UPath

from kafka_drain.errors import ConfigError
from kafka_drain.kafka.identity import is_told
from kafka_drain.republish.planning.documents import SentJson
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun, follower_of, list_runs
from kafka_drain.republish.planning.shards import Shard
from kafka_drain.storage.paths import quoted

#: What is left if it is unknown what a run has sent; continues an advice.
ALLOW_REPEATED = ", or allow repeated records with --repeat (repeat in Airflow)"

#: The part of two entries that must be equal before their records can be the same.
_Identity: TypeAlias = "tuple[str, str, int]"


def sent(plan: RepublishPlan) -> list[SentJson]:
    """Return a plan's records and their targets, in the form that receipts record."""
    return [
        {
            "source_topic": shard.source.topic,
            "source_topic_id": shard.topic_id,
            "source_partition": shard.source.partition,
            "ranges": _spans(shard),
            "from_ms": shard.rows.from_ms,
            "to_ms": shard.rows.to_ms,
            "records": shard.records,
            "target_topic": shard.target_topic,
            "target_topic_id": plan.target(shard.target_topic).id,
            "target_partition": shard.target_partition,
        }
        for shard in plan.shards
    ]


def _spans(shard: Shard) -> list[tuple[int, int]]:
    ranges = shard.rows.ranges
    if ranges is None:
        return [(shard.first, shard.end)]
    clipped = ((max(r.start, shard.first), min(r.end, shard.end)) for r in ranges)
    return [(first, end) for first, end in clipped if first < end]


def refuse_repeated(root: UPath, plan: RepublishPlan, *, is_elsewhere: bool = False) -> None:
    """Refuse a plan with records that another run has sent, or is sending, to the same topic.

    Args:
        root: The folder of the other runs.
        is_elsewhere: Whether the plan's own run is kept in another folder, so that one of the same
            name here is another run.

    Raises:
        ConfigError: Names the run and the records.
        ArchiveError: When the plan of a run that started to send is missing, or was changed.
    """
    planned = sent(plan)
    runs = list(list_runs(root)) if planned else []
    settled = _settled(runs, planned)
    for run in runs:
        if run.key in settled or (not is_elsewhere and is_of_same_run(plan, run.key)):
            continue
        receipt = run.receipt()
        if receipt is not None:
            entries, verb = receipt["sent"], "has sent"
            # A mirror goes on: its next run is told by the mirror's name.
            name = receipt["run"] if receipt["through"] is not None else ""
        elif run.is_opened:
            begun = run.require_plan(ALLOW_REPEATED)
            entries, verb, name = sent(begun), "started to send", begun.run
        else:
            continue
        if (now := _first_overlap(entries, planned)) is not None:
            raise repeats_error(run.key, verb, now, name)


def _settled(runs: Sequence[RepublishRun], planned: Sequence[SentJson]) -> set[str]:
    """Return the runs of mirrors that have sent nothing to any planned target.

    A mirror's last receipt names the topics of all runs up to it: thousands needn't be read.
    """
    topics = {entry["target_topic"] for entry in planned}
    ids = {entry.get("target_topic_id", "") for entry in planned}
    mirrors: dict[str, list[RepublishRun]] = {}
    for run in runs:
        if (name := follower_of(run.key)) is not None:
            mirrors.setdefault(name, []).append(run)
    found: set[str] = set()
    for own in mirrors.values():
        last = next((number for number in reversed(range(len(own))) if own[number].has_ended), None)
        receipt = None if last is None else own[last].receipt()
        through = None if receipt is None else receipt["through"]
        # Receipts of older releases name only the topics of their own run.
        bound = None if through is None else through.get("bound")
        if last is None or bound is None:
            continue
        sent_to = bound["topics"]
        if topics.isdisjoint(sent_to) and ids.isdisjoint(filter(None, sent_to.values())):
            found.update(run.key for run in own[: last + 1])
    return found


def is_of_same_run(plan: RepublishPlan, key: str) -> bool:
    """Return whether a run's key is the plan's own key or belongs to the same follower.

    The receipts of a follower's runs record exactly what was sent (follow.py). The ranges compared
    here may contain gaps that a window fills later.
    """
    follower = None if plan.through is None else plan.key.rpartition(".")[0]
    return key == plan.key or key.rpartition(".")[0] == follower


def repeated(plan: RepublishPlan, before: list[SentJson]) -> str | None:
    """Return a text for the first records of a plan that another run sends to the same topic."""
    return _first_overlap(before, sent(plan))


def repeats_error(run: str, verb: str, records: str, name: str = "") -> ConfigError:
    """Return the error for resending what another run `has sent` or `started to send`.

    Args:
        run: The other run's key.
        verb: `has sent` or `started to send`.
        records: The records and their target, as text.
        name: Its name, or its mirror's; empty if it has ended, or the name is unknown.
    """
    named = f" (--run-name {quoted(name)}; run_name in Airflow)" if name else ""
    what = "that mirror to continue it" if verb == "has sent" else "that run to resume it"
    choose = f"Name {what}{named}, choose" if name or verb != "has sent" else "Choose"
    return ConfigError(
        f"run {run} {verb} {records}: they would be duplicated. {choose} other records or another "
        "topic, or allow repeated records with --repeat (repeat in Airflow). Nothing was sent"
    )


def _first_overlap(before: list[SentJson], planned: list[SentJson]) -> str | None:
    by_source: dict[_Identity, list[SentJson]] = {}
    for now in planned:
        by_source.setdefault(_identity(now), []).append(now)
    for then in before:
        for now in by_source.get(_identity(then), ()):
            if _is_same_target(then, now) and _overlap(then, now):
                return (
                    f"records of {now['source_topic']}-{now['source_partition']} with offsets "
                    f"{now['ranges'][0][0]:,} to {now['ranges'][-1][1] - 1:,} to "
                    f"{now['target_topic']}"
                )
    return None


def _identity(entry: SentJson) -> _Identity:
    return entry["source_topic"], entry["source_topic_id"], entry["source_partition"]


def _is_same_target(then: SentJson, now: SentJson) -> bool:
    """Return whether both go to one topic: by id, or by name if no id was told or recorded."""
    known = then.get("target_topic_id")
    if known is not None and known != now["target_topic_id"]:
        return False
    return is_told(known or "") or then["target_topic"] == now["target_topic"]


def _overlap(a: SentJson, b: SentJson) -> bool:
    if not _meet(a["from_ms"], a["to_ms"], b["from_ms"], b["to_ms"]):
        return False
    return any(x[0] < y[1] and y[0] < x[1] for x in a["ranges"] for y in b["ranges"])


def _meet(a_from: int | None, a_to: int | None, b_from: int | None, b_to: int | None) -> bool:
    """Return whether two time intervals [from, to) overlap; None means unbounded."""
    before = a_to is not None and b_from is not None and a_to <= b_from
    after = b_to is not None and a_from is not None and b_to <= a_from
    return not (before or after)
