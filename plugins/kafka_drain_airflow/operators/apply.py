"""Base of the operators that send, replace or delete: they show a plan, and apply it on request."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from kafka_drain_airflow.connections import is_true
from kafka_drain_airflow.operators.spark_job import SparkJobOperator


class ApplyOperator(SparkJobOperator):
    """Makes a plan, and applies it if told to.

    :param apply: whether to apply the plan; otherwise it is only logged (templated)
    :param is_dry_run: deprecated, removed in 0.4: the opposite of ``apply`` (templated)
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "apply", "is_dry_run")

    #: Whether the plan is applied if ``apply`` isn't set, as before 0.2; always False from 0.4 on.
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
        """Return whether to apply the plan.

        Raises:
            ConfigError: If the value is neither true nor false.
        """
        if self.is_dry_run is not None:
            self._deprecated("dry_run will be removed in 0.4; set apply, its opposite")
            return not is_true("dry_run", self.is_dry_run)
        if self.apply is None:
            if self.acts_untold:
                self._deprecated("applies its plan without apply set; from 0.4 on it won't: set it")
            return self.acts_untold
        return is_true("apply", self.apply)

    def say_dry_run(self) -> None:
        """Log that nothing was changed, and how to apply the plan."""
        self.say("dry run: nothing was changed; set apply to apply the plan")

    def _deprecated(self, what: str) -> None:
        """Warn, and also log: Python's deprecation warnings don't reach the users of a DAG."""
        warnings.warn(f"{type(self).__name__}: {what}", DeprecationWarning, stacklevel=3)
        self.log.warning("%s: %s", type(self).__name__, what)
