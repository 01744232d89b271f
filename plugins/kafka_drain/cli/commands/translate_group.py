"""`kafka-drain translate-group`: let a consumer group resume in the republished topics."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_archive,
    add_kafka,
    add_state,
    archive_from,
    cluster_from,
    connection_settings,
    file_or_nothing,
)
from kafka_drain.cli.commands.plan_answer import acts, say_dry_run
from kafka_drain.cli.console import answer, new_table, print_table, say
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.errors import ConfigError
from kafka_drain.intervals import parse_time
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster, watched
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.applying import Undone, apply_plan, undo
from kafka_drain.republish.groups.archived import ArchivedOffsets, archived_offsets
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.planning import find_run, plan_group, read_map
from kafka_drain.republish.groups.translation import TranslationPlan


def add_arguments(added: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    # argparse can't wrap the usage between options that exclude each other.
    added.usage = "%(prog)s [-h] [options] --group GROUP archive"
    add_archive(added)
    add_state(added)
    add_kafka(added)
    added.add_argument(
        "--run", metavar="KEY", help="the republish's run; can be omitted if there is only one"
    )
    added.add_argument("--group", required=True, help="group whose offsets are translated")
    added.add_argument(
        "--to-group", metavar="GROUP", help="group that gets the new offsets (the same one)"
    )
    source = added.add_mutually_exclusive_group()
    source.add_argument(
        "--offsets-file",
        metavar="FILE",
        help="CSV with the group's offsets in the source, as printed by kafka-consumer-groups.sh "
        "--reset-offsets --export; for use when the source cluster is gone",
    )
    source.add_argument(
        "--from-archive",
        action="store_true",
        help="take the group's offsets from the archive, as a validation has noted them; for use "
        "when the source cluster is gone",
    )
    source.add_argument(
        "--source-bootstrap-servers",
        metavar="HOST:PORT",
        help="brokers of the cluster that was drained (default: the same ones)",
    )
    # With or without --source-bootstrap-servers, which counts before it.
    added.add_argument(
        "--source-kafka-config",
        metavar="FILE",
        help="JSON file with librdkafka settings for the cluster that was drained",
    )
    added.add_argument(
        "--at",
        metavar="TIME",
        help="with --from-archive, the offsets of the last description at or before this time "
        "(default: the last one)",
    )
    added.add_argument(
        "--undo", action="store_true", help="restore what was committed before the last apply"
    )
    add_apply(
        added, "commit the offsets; without it, only the plan is shown and nothing is changed"
    )


def run(options: argparse.Namespace) -> int:
    """Plan a group's offsets in the target; commit them, or restore the previous ones."""
    elsewhere = "--offsets-file" if options.offsets_file else "--from-archive"
    if options.source_kafka_config and (options.offsets_file or options.from_archive):
        raise ConfigError(
            f"--source-kafka-config and {elsewhere} both say where the group's offsets are; give "
            "one of them"
        )
    archive, cluster = archive_from(options), cluster_from(options)
    archive.require()
    to_group = options.to_group or options.group
    if not to_group or not options.group:
        raise ConfigError("--group '' is not acceptable; accepted: the name of a consumer group")
    republish = find_run(archive, options.run)
    offset_map = read_map(republish)
    found = cluster.cluster_id()
    if is_other_cluster(offset_map.cluster_id, found):
        raise ConfigError(
            f"Kafka at {cluster.config.bootstrap_servers} is cluster {found}, expected cluster "
            f"{offset_map.cluster_id}, which run {republish.key} republished to; correct "
            "--bootstrap-servers"
        )
    groups = ConsumerGroups(cluster.config)
    records = GroupRecords(republish.folder, to_group)
    if options.undo:
        undone = undo(records, groups, to_group, apply=acts(options))
        return _answer_undo(options, groups, undone)
    plan = plan_group(
        archive,
        republish,
        offset_map,
        cluster,
        groups,
        records,
        group=options.group,
        to_group=to_group,
        source=_source_cluster(options),
        offsets_file=options.offsets_file or "",
        archived=_archived(options, archive),
        apply=acts(options),
    )
    say(f"translate-group {to_group}: {plan.summary()}")
    for note in plan.notes:
        say(f"translate-group {to_group}: {note}")
    if acts(options):
        result, record = apply_plan(plan, records, groups)
    else:
        result, record = "planned", None
    shown = plan.to_dict() | {"result": result, "record": str(record.path) if record else None}
    answer(options, shown, _table(plan))
    say_dry_run(options)
    return OK


def _archived(options: argparse.Namespace, archive: Archive) -> ArchivedOffsets | None:
    if options.at and not options.from_archive:
        raise ConfigError("--at is a time of the archive's descriptions: give --from-archive too")
    if not options.from_archive:
        return None
    at = parse_time("--at", options.at) if options.at else None
    return archived_offsets(archive.root, options.group, at)


def _source_cluster(options: argparse.Namespace) -> KafkaCluster | None:
    settings = connection_settings(
        options.source_bootstrap_servers, file_or_nothing(options.source_kafka_config)
    )
    return watched(KafkaConfig(settings), say) if settings else None


def _answer_undo(
    options: argparse.Namespace,
    groups: ConsumerGroups,
    undone: Undone,
) -> int:
    record, left = undone.record, undone.left
    is_planned = undone.result == "planned"
    if left and not is_planned:
        # Kafka can delete single offsets (KIP-496), confluent-kafka can't. They matter only to
        # consumers of these topics in this group; everything else was restored.
        say(
            f"translate-group {record.group}: {len(left):,} partitions had no committed offset "
            "before and keep the one that apply committed, which this client can't delete; to "
            "delete them, run:"
        )
        for line in _deletions(groups, record.group, left):
            say(f"  {line}")
    document = {
        "run": record.run,
        "cluster_id": record.cluster_id,
        "to_group": record.group,
        "result": undone.result,
        "record": str(record.path),
        "put_back": [
            {"topic": tp.topic, "partition": tp.partition, "offset": at.offset}
            for tp, at in sorted(undone.back.items())
        ],
        "left": [{"topic": tp.topic, "partition": tp.partition} for tp in left],
    }

    def show(console: Console) -> None:
        headers = ("topic", "partition", "apply left", "then" if is_planned else "now")
        table = new_table(console, *headers, numbers=headers[1:])
        for tp, after in sorted(record.after.items()):
            before = record.before.get(tp)
            kept = f"{after:,}" if tp in left else "none"
            now = kept if before is None else f"{before.offset:,}"
            table.add_row(tp.topic, str(tp.partition), f"{after:,}", now)
        print_table(console, table)

    answer(options, document, show)
    if is_planned:
        say_dry_run(options)
        return OK
    return FAILED if left else OK


def _deletions(groups: ConsumerGroups, group: str, left: list[TopicPartition]) -> list[str]:
    servers = shlex.quote(groups.admin.config.bootstrap_servers)
    secured = groups.admin.config.protocol != "plaintext"
    login = ' --command-config "${CLIENT_PROPERTIES:?}"' if secured else ""
    topics: dict[str, list[str]] = {}
    for tp in left:
        topics.setdefault(tp.topic, []).append(str(tp.partition))
    return [
        f"kafka-consumer-groups.sh --bootstrap-server {servers} "
        f"--group {shlex.quote(group)} --delete-offsets --topic {topic}:{','.join(partitions)}"
        f"{login}"
        for topic, partitions in topics.items()
    ]


def _table(plan: TranslationPlan) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        table = new_table(
            console,
            *("source topic", "partition", "committed", "target topic", "partition"),
            *("new offset", "committed now", "note"),
            numbers=("partition", "committed", "new offset", "committed now"),
        )
        for row in plan.rows:
            table.add_row(
                row.source.topic,
                str(row.source.partition),
                _number(row.committed),
                row.target.topic,
                str(row.target.partition),
                _number(row.offset),
                _number(row.current),
                row.note,
            )
        print_table(console, table)

    return show


def _number(offset: int | None) -> str:
    return "none" if offset is None else f"{offset:,}"
