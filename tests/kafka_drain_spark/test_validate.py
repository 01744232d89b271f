"""What tasks tell of the files that they read, without a JVM."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.spark.job_spec import ValidateSpec
from kafka_drain_spark import validate
from kafka_drain_spark.validate import FILES_PER_TASK, run_validate
from tests.kafka_drain.golden import golden_copy, state_of


@pytest.mark.parametrize("is_large", [False, True])
def test_run_validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """Each file has a line, in the manifest's order: its content, or what is wrong with it.

    Many files are shared out to more tasks than there are cores.
    """
    asked: list[int] = []
    archive = golden_copy(tmp_path / "archive")
    files: list[dict[str, Any]] = [
        {
            "path": file.path,
            "size": file.size,
            "modified": file.modified,
            "batch": file.batch,
            "log": file.log,
        }
        for file in state_of(archive.generation(1)).new
    ]
    (tmp_path / "archive/generations/0001/data" / files[1]["path"]).unlink()

    def in_tasks(_: object, items: Any, number: int, function: Any) -> Any:
        asked.append(number)
        return lambda: list(function(items[: len(files)]))

    monkeypatch.setattr(validate, "in_tasks", in_tasks)
    monkeypatch.setattr(validate, "cores_of", lambda _: 3)
    answers = tmp_path / "answers"
    spec = ValidateSpec(
        archive=str(archive.root),
        data_name="generations/0001/data",
        file_format="parquet",
        files=files * (FILES_PER_TASK if is_large else 1),
        answers_path=str(answers),
        result_path="",
        log_levels={},
    )
    spark: Any = object()

    found = run_validate(spark, spec)

    assert asked == [len(files) if is_large else 3]
    assert found == {"files": len(files)}
    assert stat.S_IMODE(answers.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [[*line] for line in lines] == [["file"], ["finding"], *[["file"]] * (len(files) - 2)]
    assert [line["file"]["path"] for line in (lines[0], *lines[2:])] == [
        f"generations/0001/data/{each['path']}" for each in (files[0], *files[2:])
    ]
