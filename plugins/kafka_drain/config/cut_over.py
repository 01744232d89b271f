"""The pipeline key `cut_over`: a move of all clients to another cluster. Opens nothing."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kafka_drain.config.options import shown

#: Name of the cut-over and of its mirror.
RUN_NAME = "cut-over"

#: Number of offsets that the target may lack when the producers are turned off.
MAX_LAG = 10_000

#: Time for which the source's ends must stay the same.
QUIET_SECONDS = 60.0


class CutOver(BaseModel):
    """A cut-over of a pipeline's topics to another cluster.

    Attributes:
        kafka_conn_id: Airflow connection of the target's cluster.
        run_name: Name of the cut-over and of its mirror; give that of an existing mirror to
            continue it.
        mirror: Options of the republish, by their names, such as `placement`; by default, each
            record goes to the topic of the same name, which is created if it is missing.
        groups: Consumer groups that move; by default, all that have offsets.
        max_lag: Number of offsets that the target may lack when the producers are turned off.
        quiet_seconds: Time for which the source's ends must stay the same, in seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka_conn_id: Annotated[str, Field(min_length=1)]
    run_name: Annotated[
        str, Field(min_length=1), shown(flags=["--run-name", "--run"], metavar="NAME")
    ] = RUN_NAME
    mirror: dict[str, Any] = {}
    groups: Annotated[list[str], shown(flags=["--group"], metavar="GROUP")] = []
    max_lag: Annotated[int, Field(ge=0), shown(metavar="N")] = MAX_LAG
    quiet_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False), shown(metavar="N")] = (
        QUIET_SECONDS
    )
