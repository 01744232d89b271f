"""The pipeline key `drill`: restores that are tried on a schedule. Opens nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kafka_drain.config.options import shown

SampleKind = Literal["newest_hour", "random_day", "whole"]
SAMPLES: tuple[SampleKind, ...] = get_args(SampleKind)

#: Begins the names of scratch topics.
PREFIX = "kafka-drain-drill"


class Drill(BaseModel):
    """Restores of a pipeline's archive that are tried on a schedule.

    Attributes:
        schedule: Schedule of `drill_<name>`, in Airflow's notation; None to run only on demand.
        sample: The restored part: `newest_hour`, `random_day` or `whole`.
        kafka_conn_id: Airflow connection of the cluster that gets the scratch topics; None for the
            pipeline's own.
        max_age_days: Age in days at which the last drill that passed is too old.
        prefix: Begins the names of the scratch topics.
        topic_config: Settings of the scratch topics, in addition to the source's limits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schedule: str | None = "@weekly"
    sample: SampleKind = "random_day"
    kafka_conn_id: str | None = None
    max_age_days: Annotated[
        int, Field(ge=1, le=365_000), shown(flags=["--max-age"], metavar="DAYS")
    ] = 14
    prefix: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$", max_length=100)] = PREFIX
    topic_config: Annotated[dict[str, str], shown(metavar="NAME=VALUE")] = {}

    @field_validator("topic_config", mode="before")
    @classmethod
    def _as_text(cls, config: Any) -> Any:
        # Kafka's settings are text; numbers are what people write.
        return {k: str(v) for k, v in config.items()} if isinstance(config, dict) else config
