"""`kafka-drain`: the same functions as the operators, for people at a terminal.

Answers go to standard output (a table, or JSON with `--json`); progress and errors to standard
error. Exit codes: 0 done or complete, 1 failed or findings, 2 usage, configuration or wrong folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from kafka_drain.backfill_command import add_backfill, backfill_command
from kafka_drain.class_archive_command import class_archive_command
from kafka_drain.commands import (
    drain_command,
    files_command,
    inspect_command,
    jars_command,
    repair_command,
    roll_command,
    validate_command,
)
from kafka_drain.errors import ArchiveError, ConfigError, KafkaDrainError
from kafka_drain.maintain_command import add_maintain, maintain_command
from kafka_drain.reprocess_command import add_reprocess, reprocess_command
from kafka_drain.republish_command import add_republish, republish_command
from kafka_drain.terminal import BOOTSTRAP_VARIABLE, FAILED, OK, USAGE, say
from kafka_drain.translate_group_command import add_translate_group, translate_group_command

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        return code
    except (ConfigError, ArchiveError) as error:
        say(f"kafka-drain {options.name}: {error}")
        return USAGE
    except KafkaDrainError as error:
        say(f"kafka-drain {options.name}: {error}")
        return FAILED
    except BrokenPipeError:
        # The reader (`head`) has seen enough.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - has to stay open until the end
        return OK
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-drain",
        description="Drain Kafka topics to files, prove that every offset arrived, republish them.",
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        added.add_argument("--json", action="store_true", help="print the answer as JSON")
        return added

    def archive(added: argparse.ArgumentParser) -> None:
        added.add_argument("archive", help="the archive's folder")

    def kafka(added: argparse.ArgumentParser) -> None:
        added.add_argument(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            default=os.environ.get(BOOTSTRAP_VARIABLE),
            help=f"Kafka's brokers (default: ${BOOTSTRAP_VARIABLE})",
        )
        added.add_argument(
            "--kafka-config",
            metavar="FILE",
            help="JSON file with librdkafka's settings, for what must not stand on a command line",
        )

    def spark(added: argparse.ArgumentParser) -> None:
        added.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
        added.add_argument(
            *("--spark-conf", "--conf"),
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="Spark configuration; can be repeated",
        )

    def acknowledge(added: argparse.ArgumentParser) -> None:
        added.add_argument(
            "--acknowledge-expired",
            metavar="TOPIC:PARTITION:START-END",
            action="append",
            default=[],
            help="accept that these offsets expired before they were drained; can be repeated",
        )

    drain = command("drain", drain_command, "drain what Kafka holds now to the archive")
    archive(drain)
    kafka(drain)
    spark(drain)
    drain.add_argument(
        "--topic", action="append", default=[], help="topic to drain; can be repeated"
    )
    drain.add_argument("--topic-pattern", metavar="REGEX", help="drain the topics that match")
    acknowledge(drain)
    drain.add_argument("--pipeline", metavar="FILE", help="JSON file with a pipeline's keys")
    drain.add_argument(
        "--log-level", metavar="LEVEL", help="of Spark's Kafka and sink classes, such as DEBUG"
    )
    drain.add_argument("--format", help="parquet, avro, json or orc (parquet)")
    drain.add_argument("--compression", help="zstd, or gzip for JSON, if not said")
    drain.add_argument(
        "--partition-by", nargs="*", metavar="COLUMN", help="topic, date, hour (topic date)"
    )
    drain.add_argument(
        "--source-option",
        dest="source_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's Kafka source; can be repeated",
    )
    drain.add_argument(
        "--sink-option",
        dest="sink_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of Spark's file sink; can be repeated",
    )

    validate = command("validate", validate_command, "prove that every drained offset is there")
    archive(validate)
    kafka(validate)
    validate.add_argument(
        "--scope",
        choices=["all", "open"],
        default="all",
        help="all generations and receipts, or only the one that drains append to (%(default)s)",
    )
    validate.add_argument("--deep", action="store_true", help="read all bytes of sealed files")
    acknowledge(validate)

    repair = command(
        "repair",
        repair_command,
        "drain lost offsets again, write a damaged manifest anew; deletes nothing",
    )
    archive(repair)
    kafka(repair)
    spark(repair)
    repair.add_argument("--deep", action="store_true", help="read all bytes of sealed files")
    repair.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")

    close = command(
        "roll", roll_command, "close the open generation, open the next at exact offsets"
    )
    archive(close)
    kafka(close)
    close.add_argument("--dry-run", action="store_true", help="show the plan, change nothing")

    backfill = command(
        "backfill", backfill_command, "drain what no receipt covers of a data interval"
    )
    archive(backfill)
    kafka(backfill)
    spark(backfill)
    add_backfill(backfill)
    acknowledge(backfill)

    reprocess = command(
        "reprocess", reprocess_command, "drain archived offsets again, and replace the old files"
    )
    archive(reprocess)
    kafka(reprocess)
    spark(reprocess)
    add_reprocess(reprocess)

    maintain = command(
        "maintain",
        maintain_command,
        "close a generation when it is due, compact small files, delete files that are too old",
    )
    archive(maintain)
    kafka(maintain)
    spark(maintain)
    add_maintain(maintain)

    inspect = command("inspect", inspect_command, "show what an archive holds")
    archive(inspect)

    files = command("files", files_command, "list the committed data files, one a line")
    archive(files)

    republish = command("republish", republish_command, "send an archive's records to Kafka")
    archive(republish)
    kafka(republish)
    spark(republish)
    add_republish(republish)

    translate = command(
        "translate-group",
        translate_group_command,
        "plan, commit or undo a consumer group's offsets after a republish",
    )
    archive(translate)
    kafka(translate)
    add_translate_group(translate)

    fetch = command(
        "jars", jars_command, "fetch the jars that Spark needs; the only command that does"
    )
    fetch.add_argument("--broker", action="store_true", help="those of the local broker as well")

    command(
        "class-archive",
        class_archive_command,
        "let Spark start faster on this machine: keep the classes that Java loads for a drain",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
