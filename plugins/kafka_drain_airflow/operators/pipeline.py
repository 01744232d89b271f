"""Base of the operators: each works on a pipeline, given as one or as its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import terminal_errors_fail

#: Arguments of Airflow's own Spark operators, and where their values belong here.
BELONGS = {
    "application": "",
    "application_args": "",
    "archives": "spark_conf['spark.archives'] of the pipeline",
    "conf": "spark_conf of the pipeline",
    "conn_id": "spark_conn_id of the pipeline",
    "deploy_mode": "deploy-mode in the extra of the Spark connection",
    "driver_class_path": "jars of the pipeline",
    "driver_memory": "driver_memory of the pipeline",
    "executor_cores": "spark_conf['spark.executor.cores'] of the pipeline",
    "executor_memory": "spark_conf['spark.executor.memory'] of the pipeline",
    "files": "spark_conf['spark.files'] of the pipeline",
    "jars": "jars of the pipeline",
    "java_class": "",
    "keytab": "the extra of the Spark connection",
    "master": "the host of the Spark connection",
    "name": "",
    "num_executors": "spark_conf['spark.executor.instances'] of the pipeline",
    "packages": "jars of the pipeline",
    "principal": "the extra of the Spark connection",
    "properties_file": "spark_conf of the pipeline",
    "py_files": "",
    "spark_binary": "the extra of the Spark connection",
    "total_executor_cores": "spark_conf['spark.cores.max'] of the pipeline",
    "yarn_queue": "queue in the extra of the Spark connection",
}


def refuse_arguments(operator: str, given: Mapping[str, Any]) -> None:
    """Refuse arguments of Airflow's own Spark operators, which would have no effect here.

    Raises:
        ConfigError: If there is one; says where its value belongs.
    """
    for name in given.keys() & BELONGS.keys():
        where = BELONGS[name]
        what = f"set {where}" if where else "kafka-drain sets it itself; leave it out"
        raise ConfigError(f"{operator} takes no argument {name!r}: {what}")


def pipeline_of(given: object) -> Pipeline:
    """Return a pipeline, given as one or as its keys.

    Raises:
        ConfigError: If it is neither, or a key isn't accepted.
    """
    if isinstance(given, Pipeline):
        return given
    if isinstance(given, Mapping):
        return Pipeline(**{str(key): value for key, value in given.items()})
    raise ConfigError(
        f"pipeline = {given!r} is neither a Pipeline nor a dict of its keys; a task that chooses "
        "pipelines returns dicts, such as Pipeline(...).model_dump(exclude_unset=True), and a "
        "template needs render_template_as_native_obj=True in its DAG"
    )


class PipelineOperator(BaseOperator):
    """Works on a pipeline.

    :param pipeline: the pipeline, or its keys as a dict, which may come from another task and whose
        texts may be templates (templated)
    """

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: Pipeline | Mapping[str, Any], **kwargs: Any) -> None:
        refuse_arguments(type(self).__name__, kwargs)
        super().__init__(**kwargs)
        # A dict until the task runs: then its templates are rendered.
        self.pipeline: Pipeline = pipeline  # type: ignore[assignment]

    def pre_execute(self, context: Any) -> None:
        """Read the pipeline, once its templates are rendered.

        Raises:
            AirflowFailException: If a key isn't accepted; names the key and what is accepted.
        """
        super().pre_execute(context)
        with terminal_errors_fail():
            self.pipeline = pipeline_of(self.pipeline)
