"""Create the CDS archive of the classes that a drain loads, by draining generated records."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import partition_columns
from kafka_drain.errors import MachineError
from kafka_drain.spark.cds import archive_folder, archive_name, find_class_archive, remove_outdated
from kafka_drain.spark.client_mode import run_environment
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.java import require_java
from kafka_drain.spark.job_spec import WarmUpSpec
from kafka_drain.spark.submit import (
    IN_CLIENT,
    SparkApplication,
    prepare_application,
    spark_home,
)

_TIME_LIMIT_SECONDS = 600
_LINES_OF_SPARK = 8


def class_archive_of_this_machine() -> Path | None:
    """Return the CDS archive that is valid for this machine's drains, or None.

    Raises:
        MachineError: When Java, pyspark or a jar is missing.
    """
    return find_class_archive(_name(_connector()))


def _connector() -> list[str]:
    return [str(jar) for jar in jars.verified(jars.CONNECTOR)]


def _name(connector: list[str]) -> str:
    return archive_name(require_java(), spark_home(), connector)


def write_class_archive() -> dict[str, Any]:
    """Drain generated records with Spark, and archive the classes that Java loaded.

    Returns:
        path, bytes, and seconds (0 when the archive already existed).

    Raises:
        MachineError: When Java, pyspark or a jar is missing, or Java wrote no archive.
    """
    began = time.monotonic()
    found = class_archive_of_this_machine()
    if found is None:
        connector = _connector()
        found = _write(_name(connector), connector)
    return {
        "path": str(found),
        "bytes": found.stat().st_size,
        "seconds": round(time.monotonic() - began, 1),
    }


def _write(name: str, connector: list[str]) -> Path:
    folder = archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # On the same file system as the target, so that an atomic rename can name the finished archive.
    with tempfile.TemporaryDirectory(prefix=".class-archive-", dir=folder) as scratch:
        unnamed = Path(scratch) / "classes.jsa"
        output = _run(_application(Path(scratch), connector, unnamed))
        if not unnamed.is_file():
            raise MachineError(
                "Java wrote no CDS archive; Spark works without one, but takes a few seconds "
                "longer to start. The last lines of the run:\n" + _last_lines(output)
            )
        named = folder / f"{name}-{unnamed.stat().st_size}.jsa"
        unnamed.rename(named)
    remove_outdated(name)
    return named


def _application(folder: Path, connector: list[str], archive: Path) -> SparkApplication:
    pipeline = Pipeline(name="class_archive", topics=["none"], archive=str(folder / "archive"))
    spec_path = folder / "warm_up.json"
    WarmUpSpec(
        pipeline=pipeline.name,
        reader_options={},
        file_format=pipeline.format,
        writer_options={
            **pipeline.writer_options,
            "path": f"{pipeline.archive}/data",
            "checkpointLocation": f"{pipeline.archive}/checkpoint",
        },
        partition_by=pipeline.partition_by,
        columns=partition_columns(pipeline.partition_by),
        log_levels=pipeline.log_levels,
        start="{}",
        planned_end="{}",
        result_path=str(folder / "result.json"),
        jars=connector,
    ).write(spec_path)
    application = prepare_application(
        "class_archive",
        kind="warm_up",
        spec_path=spec_path,
        pipeline=pipeline,
        folder=folder,
    )
    key = "spark.driver.extraJavaOptions"
    options = f"{application.conf[key]} -XX:ArchiveClassesAtExit={archive}"
    return replace(application, conf=application.conf | {key: options})


def _run(application: SparkApplication) -> str:
    """Run spark-submit and return its output."""
    try:
        ended = subprocess.run(
            application.command("local[1]", IN_CLIENT),
            check=False,
            env=run_environment(application, "local[1]"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"Java wrote no CDS archive within {_TIME_LIMIT_SECONDS} s; Spark works without one"
        ) from error
    if ended.returncode:
        raise MachineError(
            f"the run that loads the classes failed with exit code {ended.returncode}; Spark works "
            "without a CDS archive. Its last lines:\n" + _last_lines(ended.stdout)
        )
    return ended.stdout


def _last_lines(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-_LINES_OF_SPARK:])
