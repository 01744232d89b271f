"""The request for a cut-over, and the republish that is its mirror. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_drain.config.cut_over import MAX_LAG, QUIET_SECONDS, RUN_NAME, CutOver
from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.request import HOW, OWN_TOPIC, WHERE, RepublishRequest

#: Options of the republish that a cut-over decides itself; the selection is always everything.
_OWN = ("follow", "run_name", "into_source", "delivery", "repeat")


@dataclass(frozen=True, slots=True)
class CutOverRequest:
    """A request for a cut-over.

    Attributes:
        run_name: Name of the cut-over and of its mirror.
        mirror: The republish that each of the mirror's runs is.
        groups: Consumer groups that move; none for all that have offsets.
        max_lag: Number of offsets that the target may lack when the producers are turned off.
        quiet_seconds: Time for which the source's ends must stay the same.
    """

    run_name: str
    mirror: RepublishRequest
    groups: tuple[str, ...] = ()
    max_lag: int = MAX_LAG
    quiet_seconds: float = QUIET_SECONDS

    @classmethod
    def of(cls, settings: CutOver) -> CutOverRequest:
        """Return the request in a pipeline's settings.

        Raises:
            ConfigError: As `mirror_request` does.
        """
        return cls(
            settings.run_name,
            mirror_request(settings.run_name, settings.mirror),
            tuple(settings.groups),
            settings.max_lag,
            settings.quiet_seconds,
        )


def mirror_request(
    run_name: str = RUN_NAME, options: Mapping[str, Any] | None = None
) -> RepublishRequest:
    """Return the republish that each run of a cut-over's mirror is.

    Raises:
        ConfigError: When an option isn't one, has an invalid value, or would leave records out.
    """
    known = {
        name
        for name, option in RepublishRequest.options().items()
        if option["section"] in (WHERE, HOW) and name not in _OWN
    }
    # The request itself says what there is instead of an option that was removed.
    unknown = sorted(set(options or {}) - known - {*RepublishRequest.removed})
    if unknown:
        raise ConfigError(
            f"mirror has {', '.join(unknown)}, which a cut-over doesn't take: it moves all records "
            f"exactly once; accepted: {', '.join(sorted(known))}"
        )
    default = {"target_topic": OWN_TOPIC, "create_target": True}
    return RepublishRequest(**(default | dict(options or {})), follow=True, run_name=run_name)
