"""`kafka-drain republish`: send an archive's records to Kafka."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import FrozenPlan
from kafka_drain.cli.commands.arguments import (
    add_apply,
    add_evidence,
    add_job,
    add_state,
    archive_from,
    cluster_from,
    naming_state,
    signer_from,
)
from kafka_drain.cli.commands.frozen import (
    add_frozen,
    answer_of,
    frozen_for,
    refuse_beside_plan,
    refuse_plan_beside,
)
from kafka_drain.cli.commands.pipeline_arguments import pipeline_from
from kafka_drain.cli.commands.plan_answer import acts, answer_fields, say_dry_run
from kafka_drain.cli.console import answer, print_fields, say, say_table
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.foreground import runner_of
from kafka_drain.cli.options import add_options, given_flags, options_from, pairs
from kafka_drain.clock import utc_now
from kafka_drain.config.checks import integer
from kafka_drain.config.spark_conf import check_spark_conf
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.republish.approved import freeze_republish, plan_approved
from kafka_drain.republish.changing.keys import read_key
from kafka_drain.republish.engines.select import Engines
from kafka_drain.republish.planning.abandon import unfinished_run
from kafka_drain.republish.planning.placement import ORIGINAL
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import Republish, plan_republish, sign_run
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.paths import locate

#: Replacements for flags that only earlier releases know.
REMOVED = {
    f"--{name.replace('_', '-')}": instead for name, instead in RepublishRequest.removed.items()
}

#: Flags that need the archive which the records came from: its offsets, or what is drained later.
_BESIDE_FILE = {"--follow", "--offsets", "--provenance"}

#: The flag that names the key of pseudonyms.
_KEY = "--hash-key-file"


def run(options: argparse.Namespace) -> int:
    """Show the plan of a republish; with --apply, send an archive's records to Kafka."""
    with naming_state(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.processes is not None:
        integer(1)("--processes", options.processes)
    # Before a plan is made: what --freeze says repeats them.
    check_spark_conf(pairs("--spark-conf", options.spark_conf))
    if options.abandon:
        given = [*given_flags(options, RepublishRequest), *_file_flag(options)]
        refuse_plan_beside(options, "--abandon", given)
        return _abandon(archive_from(options), options)
    with _source(options) as archive:
        return _republish(archive, options)


@contextmanager
def _source(options: argparse.Namespace) -> Iterator[Archive]:
    """Return the archive; with --from-file, it is made of the file's records."""
    if options.from_file is None:
        yield archive_from(options)
        return
    if options.plan_id is not None:
        refuse_beside_plan(_file_flag(options))
    _refuse_beside_file(options)
    # Not at the top: pyarrow takes longer to import than wrong arguments take to be refused.
    from kafka_drain.windows.record_file import RecordFile, archive_file

    file, root, now = RecordFile.read(options.from_file), locate(options.archive), utc_now()
    file.refuse_unsendable(keeps_partitions=request_of(options).placement == ORIGINAL)
    if acts(options) or options.freeze is not None or Archive(root).exists:
        yield archive_file(file, root, now=now)
        return
    # Nothing is kept of a dry run.
    with private_folder() as folder:
        yield archive_file(file, locate(str(folder / "records")), now=now)


def _file_flag(options: argparse.Namespace) -> list[str]:
    return [] if options.from_file is None else ["--from-file"]


def _refuse_beside_file(options: argparse.Namespace) -> None:
    """Refuse flags that mean the offsets from which the records of a file once came.

    Raises:
        ConfigError: Names them.
    """
    given = {*given_flags(options, RepublishRequest)} & _BESIDE_FILE
    if options.state is not None:
        given.add("--state")
    if given:
        raise ConfigError(
            f"--from-file sends all records of a file, and keeps them and the run in "
            f"{options.archive}; omit {', '.join(sorted(given))}"
        )


def _republish(archive: Archive, options: argparse.Namespace) -> int:
    signer, cluster = signer_from(options), cluster_from(options)
    republish, frozen = _planned(archive, cluster, options)
    plan = republish.plan
    _say_plan(plan, republish.request)
    result = plan.summary() | cluster.named()
    if frozen is not None:
        result |= answer_of(options, frozen)
    if acts(options):
        with (
            private_folder() as folder,
            Engines(
                str(archive.root),
                cluster,
                pipeline_from(options),
                folder,
                runner_of(options),
                options.processes,
            ) as engines,
        ):
            receipt = republish.execute(engines, utc_now)
        result |= {
            name: value
            for name, value in receipt.items()
            if name not in ("sent", "through", "request")
        }
        if signer is not None and republish.run.has_ended:
            result["evidence"] = sign_run(archive, republish.run, signer, utc_now())
    shown = {k: v for k, v in result.items() if not isinstance(v, (dict, list))}
    answer(options, result, print_fields(shown))
    say_dry_run(options, "send it")
    return OK


def _planned(
    archive: Archive, cluster: KafkaCluster, options: argparse.Namespace
) -> tuple[Republish, FrozenPlan | None]:
    """Return the run, and the frozen plan if it is made from one or becomes one."""
    within, now = frozen_for(options), utc_now()
    if options.plan_id is not None:
        _import_from_here()
        # The key isn't in the plan, which has its id: another one is refused.
        refuse_beside_plan({*given_flags(options, RepublishRequest)} - {_KEY})
        return plan_approved(
            archive,
            cluster,
            options.plan_id,
            now=now,
            apply=acts(options),
            hash_key=read_key(options.hash_key_file) if "hash_key_file" in options else b"",
        )
    request = request_of(options)
    if within is not None:
        return freeze_republish(archive, cluster, request, now=now, lifetime=within)
    return plan_republish(archive, cluster, request, now=now, apply=acts(options)), None


def _abandon(archive: Archive, options: argparse.Namespace) -> int:
    archive.require()
    run = unfinished_run(archive, options.abandon)
    if acts(options):
        run.abandon(utc_now())
    ends = "has ended" if acts(options) else "ends"
    say(
        f"abandon {archive.root}: run {run.key} {ends} here; what it sent stays in its target, "
        "and maintenance may remove its files"
    )
    return answer_fields(options, {"run": run.key, "abandoned": acts(options)})


def _say_plan(plan: RepublishPlan, request: RepublishRequest) -> None:
    lines, shards = plan.lines(*request.limits), plan.shards
    begin_list = len(lines) - len(shards)
    for line in lines[:begin_list]:
        say(line)
    say_table(
        lines[begin_list:],
        ("source", "target", "first offset", "last offset", "records"),
        (
            (str(shard.source), shard.target, shard.first, shard.end - 1, shard.records)
            for shard in shards
        ),
    )


def request_of(options: argparse.Namespace) -> RepublishRequest:
    """Return the request that the arguments have."""
    if "change" in options:
        _import_from_here()
    return options_from(options, RepublishRequest)


def _import_from_here() -> None:
    """Let a function of the user's be found in the current folder, also that of a frozen plan."""
    if "" not in sys.path:
        # Like `python -m`: a console script's own folder is first on the path, not the current one.
        sys.path.append(str(Path.cwd()))


def add_arguments(republish: argparse.ArgumentParser) -> None:
    """Add the command's arguments: common ones, the request's, and how to run it."""
    add_job(republish)
    republish.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="number of processes with engine worker (one per core, up to four)",
    )
    republish.add_argument(
        "--abandon",
        metavar="RUN",
        help="send nothing, but end a run that won't be resumed: maintenance may then remove its "
        "files; end its processes first",
    )
    republish.add_argument(
        "--from-file",
        metavar="FILE",
        type=os.path.expanduser,
        help="send the records of this file, as `find --out` writes them, at most 100,000; the "
        "archive is a new folder then, which keeps them and the run",
    )
    add_state(republish)
    add_evidence(republish)
    add_frozen(republish)
    add_apply(republish, "send; without it, only the plan is shown and nothing is sent")
    add_options(republish, RepublishRequest)
