"""Base of the operators: each works on a pipeline, given as one or as its keys."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.config.checks import removed, unknown
from kafka_drain.config.options import Options
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.places import calling_line, named
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import listed, terminal_errors_fail
from kafka_drain_airflow.run_conf import Form, check_conf, refuse_unused

T = TypeVar("T", bound=Options)

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


#: Modules between a user's line and an operator's arguments.
_OWN = ("kafka_drain_airflow.", "airflow.")

#: The arguments of every operator of this Airflow.
_AIRFLOWS = frozenset(inspect.signature(BaseOperator.__init__).parameters) - {"self", "kwargs"}


def refuse_arguments(operator: type[Any], given: Mapping[str, Any], pipeline: object) -> None:
    """Refuse arguments that neither an operator nor Airflow takes.

    Args:
        operator: The operator's class.
        given: The arguments that aren't the operator's own.
        pipeline: The pipeline that it was given, or its keys, or what they will come from.

    Raises:
        ConfigError: If there is one: names the pipeline, the line of the user's file, and what is
            meant; of an argument of Airflow's own Spark operators, where its value belongs.
    """
    for name, value in given.items():
        if name in BELONGS or name in Pipeline.model_fields:
            where = BELONGS.get(name, f"{name} of the pipeline")
            what = f"set {where}" if where else "kafka-drain sets it itself; leave it out"
            problem = f"{operator.__name__} takes no argument {name!r}: {what}"
        elif name in getattr(operator, "removed_arguments", {}):
            problem = str(removed(name, value, operator.removed_arguments[name]))
        elif name not in _AIRFLOWS:
            known = {own for base in operator.__mro__ for own in _arguments(base)}
            what = f"argument of {operator.__name__}"
            problem = str(unknown(name, value, known | _AIRFLOWS, what))
        else:
            continue
        keys = pipeline if isinstance(pipeline, Mapping) else {}
        called = keys.get("name", getattr(pipeline, "name", None))
        raise ConfigError(f"{named(called, calling_line(_OWN))}: {problem}")


def _arguments(operator: type) -> list[str]:
    """Return the names of the arguments that an operator takes beside those of its bases."""
    if not issubclass(operator, PipelineOperator):
        return []
    parameters = inspect.signature(vars(operator).get("__init__", operator)).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]


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


class FormOperator(BaseOperator):
    """Refuses a run's conf with a name that isn't a field of its DAG's form, if it has a form.

    In a user's own DAG it has none: there, a conf is the user's.
    """

    #: The form of the factory's DAG; None in a user's own.
    form: Form | None = None

    def pre_execute(self, context: Any) -> None:
        """Check the names in the run's conf.

        Raises:
            AirflowFailException: If one is unknown, or one field has two; names them.
        """
        super().pre_execute(context)
        if self.form is not None:
            dag = context["dag"]
            with terminal_errors_fail():
                # Not the task's params: Airflow 2 puts the conf's names into them.
                given = context["dag_run"].conf
                check_conf(self.dag_id, self.form, given, dag.params)
                if not conf.getboolean("core", "dag_run_conf_overrides_params", fallback=True):
                    refuse_unused(given, context["params"])


class PipelineOperator(FormOperator):
    """Works on a pipeline.

    :param pipeline: the pipeline, or its keys as a dict, which may come from another task and whose
        texts may be templates (templated)
    """

    template_fields: Sequence[str] = ("pipeline",)
    #: Replacements for arguments that only earlier releases know.
    removed_arguments: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *, pipeline: Pipeline | Mapping[str, Any], **kwargs: Any) -> None:
        refuse_arguments(type(self), kwargs, pipeline)
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

    def set_options(self, declaration: type[Options], given: Mapping[str, Any]) -> None:
        """Keep the arguments that are a verb's options, until their templates are rendered."""
        for name in declaration.model_fields:
            setattr(self, name, given[name])

    def options(self, declaration: type[T], **more: Any) -> T:
        """Return a verb's options, without those that a form or a template left empty.

        Args:
            more: Options that aren't arguments.

        Raises:
            ConfigError: When one isn't acceptable, or two contradict each other.
        """
        given: dict[str, Any] = {}
        for name, field in declaration.model_fields.items():
            value = getattr(self, name)
            value = listed(value) if field.default == () else value
            # A template that finds nothing renders to the text None, unless the DAG renders
            # natively.
            is_nothing = value == "None" and field.default in (None, "")
            if value not in (None, "", []) and not is_nothing:
                given[name] = value
        return declaration(**given, **more)
