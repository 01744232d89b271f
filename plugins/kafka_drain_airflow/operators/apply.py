"""What the operators share that send, replace or delete: they show a plan, and do it when told."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from kafka_drain_airflow.connections import is_true
from kafka_drain_airflow.operators.spark_job import SparkJobOperator

__all__ = ["ApplyOperator"]


class ApplyOperator(SparkJobOperator):
    """Plans, and does what it planned where it is told to.

    :param apply: whether to do it; otherwise only the plan is logged (templated)
    :param is_dry_run: deprecated, and goes away in 0.4: the opposite of ``apply`` (templated)
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "apply", "is_dry_run")

    #: Whether it acts where nothing says so, as it did before 0.2; from 0.4 on none does.
    acts_untold: ClassVar[bool] = False

    def __init__(
        self,
        *,
        apply: bool | str | None = None,
        is_dry_run: bool | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.apply = apply
        self.is_dry_run = is_dry_run

    def applies(self) -> bool:
        """Whether to do what is planned.

        Raises:
            ConfigError: When it is told neither true nor false.
        """
        if self.is_dry_run is not None:
            self._deprecated("dry_run goes away in 0.4: set apply, its opposite")
            return not is_true("dry_run", self.is_dry_run)
        if self.apply is None:
            if self.acts_untold:
                self._deprecated("acts without apply, and from 0.4 on won't: set it")
            return self.acts_untold
        return is_true("apply", self.apply)

    def say_dry_run(self) -> None:
        """Say that nothing was done, and how it is."""
        self.say("dry run: nothing was changed; apply does it")

    def _deprecated(self, what: str) -> None:
        """Warn in the task's log too: Python shows such warnings to nobody who runs a DAG."""
        warnings.warn(f"{type(self).__name__}: {what}", DeprecationWarning, stacklevel=3)
        self.log.warning("%s: %s", type(self).__name__, what)
