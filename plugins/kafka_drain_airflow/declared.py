"""Declarations of a DAG file: each pipeline with its line, and none of a name or archive twice.

Airflow keeps one DAG of each id and says nothing of others in the same file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType

from kafka_drain.config.checks import refuse
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.places import calling_line, named
from kafka_drain.errors import ConfigError

#: Name of the global variable in which a DAG file remembers; it ends with the file's module.
_KEY = "__kafka_drain_declared__"
_OWN = (
    "kafka_drain_airflow.declared",
    "kafka_drain_airflow.dag_factory",
    "kafka_drain_airflow.task_group",
    "kafka_drain_airflow.watch_dag",
)


@dataclass
class Declared:
    """The declarations of one execution of a DAG file.

    Attributes:
        code: The code of this execution: a reloaded module keeps its variables, but not its code.
        dags: The declaration that created a DAG, by its id.
        archives: The pipeline that drains to an archive.
    """

    code: CodeType
    dags: dict[str, str] = field(default_factory=dict)
    archives: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, dag_ids: Iterable[str], archive: str = "") -> None:
        """Remember a pipeline or a group.

        Raises:
            ConfigError: If a DAG of an id, or an archive, is another's.
        """
        for dag_id in dag_ids:
            if dag_id in self.dags:
                raise ConfigError(
                    f"{what}: {self.dags[dag_id]} in this file already creates the DAG "
                    f"{dag_id!r}, and Airflow keeps only one of each id; give it another name"
                )
            self.dags[dag_id] = what
        if not archive:
            return
        # Both schemes name the same bucket.
        key = archive.replace("s3a://", "s3://", 1)
        if key in self.archives:
            raise ConfigError(
                f"{what}: archive = {archive!r} is that of {self.archives[key]}; each pipeline "
                "needs an archive of its own"
            )
        self.archives[key] = what


def of_pipeline(given: object) -> AbstractContextManager[None]:
    """Name a pipeline, and the line that calls the factory, in the errors of the body.

    Raises:
        ConfigError: If it isn't a Pipeline.
    """
    line = calling_line(_OWN)
    if not isinstance(given, Pipeline):
        accepted = "a Pipeline(name=…, topics=[…], archive=…)"
        raise ConfigError(f"{line}: {refuse('pipeline', given, accepted)}".removeprefix(": "))
    return _placed(named(given.name, line))


def of_pipelines(what: str, given: object) -> AbstractContextManager[None]:
    """Name what is made of several pipelines, and the line, in the errors of the body.

    Raises:
        ConfigError: If it isn't a list of Pipelines.
    """
    line = calling_line(_OWN)
    where = f"{what} ({line})" if line else what
    if not isinstance(given, Sequence) or not all(isinstance(p, Pipeline) for p in given):
        raise ConfigError(
            f"{where}: pipelines = {given} is not acceptable; accepted: a list of Pipelines"
        )
    return _placed(where)


@contextmanager
def _placed(what: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        # What is inside has said it already, of this pipeline or of one of several.
        if re.match(rf"{re.escape(what)}|pipeline '\S+' \(", str(error)):
            raise
        raise ConfigError(f"{what}: {error}") from error


def declare(pipeline: Pipeline, dag_ids: Iterable[str]) -> None:
    """Remember a pipeline and the ids of its DAGs.

    Raises:
        ConfigError: If this DAG file has declared one of its name, or with its archive, before.
    """
    declared = _declared()
    if declared is not None:
        what = named(pipeline.name, calling_line(_OWN))
        declared.add(what, dag_ids, pipeline.archive)


def declare_group(name: str, dag_id: str) -> None:
    """Remember a group of pipelines and the id of its DAG.

    Raises:
        ConfigError: If this DAG file has declared a DAG of this id before.
    """
    declared = _declared()
    if declared is not None:
        declared.add(f"group {name!r} ({calling_line(_OWN)})", [dag_id])


def declare_watch(dag_id: str) -> None:
    """Remember the id of a DAG that watches pipelines.

    Raises:
        ConfigError: If this DAG file has declared a DAG of this id before.
    """
    declared = _declared()
    if declared is not None:
        declared.add(f"the watch of pipelines ({calling_line(_OWN)})", [dag_id])


def _declared() -> Declared | None:
    """Return the declarations of the DAG file that runs now; None outside of one.

    The DAG file is the nearest module on the stack that is just being executed; a program that
    calls the factory is none.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") == "__main__":
        return None
    found = frame.f_globals.get(_KEY)
    if not isinstance(found, Declared) or found.code is not frame.f_code:
        found = frame.f_globals[_KEY] = Declared(frame.f_code)
    return found
