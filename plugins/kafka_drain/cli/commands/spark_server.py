"""`kafka-drain spark-server`: start a Spark Connect server that fits kafka-drain's jobs."""

from __future__ import annotations

import argparse
import signal
import sys

from kafka_drain.cli.console import say
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.cli.options import pairs
from kafka_drain.config.spark_conf import check_spark_conf
from kafka_drain.spark.connect import DEFAULT_PORT
from kafka_drain.spark.connect_server import ServerOptions, run_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (%(default)s); anyone who reaches it can run code",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port (%(default)s)")
    parser.add_argument(
        "--master", default="local[*]", help="where its tasks run: a Spark master (%(default)s)"
    )
    parser.add_argument(
        "--memory", default="2g", metavar="SIZE", help="heap size of its driver (%(default)s)"
    )
    parser.add_argument(
        *("--spark-conf", "--conf"),
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="Spark configuration; can be repeated",
    )
    parser.add_argument("--jar", action="append", default=[], help="a further jar; can be repeated")
    parser.add_argument(
        "--with-store",
        action="store_true",
        help="also the jars with which Spark opens S3; credentials come from the environment",
    )


def run(options: argparse.Namespace) -> int:
    """Run a server until it is interrupted or terminated."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        sys.exit(OK)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = ServerOptions(
        host=options.host,
        port=options.port,
        master=options.master,
        memory=options.memory,
        conf=check_spark_conf(pairs("--spark-conf", options.spark_conf)),
        jars=options.jar,
        with_store=options.with_store,
    )
    try:
        code = run_server(server)
    except SystemExit:
        if not stopped:
            raise
        return OK
    # Whatever its code: it was to run until it is stopped.
    say(f"the Spark Connect server ended by itself, with exit code {code}")
    return FAILED
