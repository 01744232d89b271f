"""Base of the operators that send, replace or delete: they show a plan, and apply it on request."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_drain.errors import ConfigError
from kafka_drain.output import say
from kafka_drain_airflow.connections import is_true
from kafka_drain_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from kafka_drain.archive.frozen_plan import FrozenPlan, PlanDecision


class ApplyOperator(SparkJobOperator):
    """Makes a plan, and applies it if told to.

    :param apply: whether to apply the plan; otherwise it is only logged (templated)
    :param is_dry_run: deprecated, removed in 0.4: the opposite of ``apply`` (templated)
    :param freeze: whether a plan that is only logged is also written to the archive, to be
        approved: its id is returned as ``plan_id``, its text in Markdown as ``approval``
        (templated)
    :param plan_id: the id of a plan that was frozen: exactly this one is applied, or the task fails
        and says what has changed since; what else was asked for doesn't count (templated)
    :param plan_hours: hours within which a frozen plan may be started (templated)
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields,
        *("apply", "is_dry_run", "freeze", "plan_id", "plan_hours"),
    )

    #: Whether the plan is applied if ``apply`` isn't set, as before 0.2; always False from 0.4 on.
    acts_untold: ClassVar[bool] = False

    #: Whether only a plan that was frozen is applied; a factory sets it if its DAG needs approval.
    needs_plan = False

    def __init__(
        self,
        *,
        apply: bool | str | None = None,
        is_dry_run: bool | str | None = None,
        freeze: bool | str = False,
        plan_id: str | None = None,
        plan_hours: float | str = 24,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.apply = apply
        self.is_dry_run = is_dry_run
        self.freeze = freeze
        self.plan_id = plan_id
        self.plan_hours = plan_hours

    def applies(self) -> bool:
        """Return whether to apply the plan.

        Raises:
            ConfigError: If the value is neither true nor false, or a plan's id is needed and there
                is none.
        """
        if not self._told_to_apply():
            return False
        if self.needs_plan and self.approved_plan() is None:
            raise ConfigError(
                f"plan_id = {self.plan_id!r} is no plan's id, and this task does only what was "
                "approved. Nothing was done; give the id that a run without one says, or, where "
                "task approve asks a person, trigger a new run"
            )
        return True

    def _told_to_apply(self) -> bool:
        if self.is_dry_run is not None:
            self._deprecated("dry_run will be removed in 0.4; set apply, its opposite")
            return not is_true("dry_run", self.is_dry_run)
        if self.apply is None:
            if self.acts_untold:
                self._deprecated("applies its plan without apply set; from 0.4 on it won't: set it")
            return self.acts_untold
        return is_true("apply", self.apply)

    def approved_plan(self) -> str | None:
        """Return the id of the plan to apply; None to make one."""
        # A template that finds nothing renders to the text None, unless the DAG renders natively.
        given = str(self.plan_id or "").strip()
        return given if given not in ("", "None") else None

    def frozen_for(self) -> timedelta | None:
        """Return the lifetime of the plan if it is to be frozen; None if it isn't.

        Raises:
            ConfigError: If a value isn't acceptable.
        """
        if not is_true("freeze", self.freeze):
            return None
        from kafka_drain.archive.frozen_plan import lifetime

        return lifetime(float(self.plan_hours))

    def say_dry_run(self, frozen: FrozenPlan | None = None) -> None:
        """Log that nothing was changed, and how to apply the plan."""
        if frozen is None:
            say("dry run: nothing was changed; set apply to apply the plan")
            return
        for line in frozen.lines():
            say(line)
        say(f"dry run: nothing was changed; set plan_id {frozen.id} and apply to apply it")

    def carries_out(self, frozen: FrozenPlan, decision: PlanDecision) -> bool:
        """Return whether to carry out a frozen plan; log the reason if it isn't."""
        from kafka_drain.archive.frozen_plan import PlanDecision

        if decision is PlanDecision.DO_NOTHING:
            say(f"plan {frozen.id} has been carried out already; nothing was changed")
            return False
        if not self.applies():
            self.say_dry_run(frozen)
            return False
        return True

    def _deprecated(self, what: str) -> None:
        """Warn, and also log: Python's deprecation warnings don't reach the users of a DAG."""
        warnings.warn(f"{type(self).__name__}: {what}", DeprecationWarning, stacklevel=4)
        self.log.warning("%s: %s", type(self).__name__, what)
