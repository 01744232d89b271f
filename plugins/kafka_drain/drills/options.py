"""The options of a drill. Opens nothing."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from kafka_drain.config.drill import SAMPLES, SampleKind
from kafka_drain.config.model import collected
from kafka_drain.config.options import Options, option
from kafka_drain.drills.sample import check_kind


def _sample(_: str, value: Any) -> Any:
    return check_kind(value) if isinstance(value, str) else value


class DrillOptions(Options):
    """The options of a drill."""

    declares: ClassVar[str] = "drill"

    sample: Annotated[SampleKind | None, BeforeValidator(collected(_sample))] = option(
        None,
        None,
        "newest_hour: the hour that ends with the newest record. random_day (default): a day (UTC) "
        "with records. whole: everything.",
        metavar="|".join(name.replace("_", "-") for name in SAMPLES),
    )
    seed: Annotated[int, Field(ge=0)] | None = option(
        None,
        None,
        "Seed of the random day, to repeat a drill. Default: a random one, which the result names.",
        metavar="N",
    )
