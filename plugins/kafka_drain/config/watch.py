"""The pipeline key `watch`: when a drain starts before its schedule says so. Opens nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self


class Watch(BaseModel):
    """Limits at which a drain starts, beside the schedule; at least one of the two.

    Attributes:
        lag: Offsets in Kafka that a drain would read.
        hours_to_expiry: Hours before Kafka may delete a record that isn't drained.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lag: Annotated[int, Field(ge=1)] | None = None
    hours_to_expiry: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if self.lag is None and self.hours_to_expiry is None:
            raise ValueError(
                "watch = {} is not acceptable; accepted: lag, hours_to_expiry, or both, such as "
                "{'lag': 1_000_000, 'hours_to_expiry': 12}"
            )
        return self
