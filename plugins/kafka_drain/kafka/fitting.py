"""The fate of a topic's settings where another cluster doesn't take them. Opens nothing.

Clusters differ in age, vendor and features. What a cluster takes is asked from it, setting by
setting (`KafkaCluster.refused_settings`); here is what follows from its answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_drain.kafka.keeping import AFTER, BEFORE, DIFFERENCE

#: Settings of replicas that are slowed down while partitions move: a state of that cluster's
#: brokers.
THROTTLES = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)

_IN_SYNC = "min.insync.replicas"

#: Settings that say nothing of records: without them a topic holds the same.
_DISPENSABLE = ("remote.", "local.retention.", "confluent.", "redpanda.")

_LEAST = re.compile(r"must be at least (\d+)", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown (topic )?config", re.IGNORECASE)


class SettingFate(str, Enum):
    """The fate of a setting."""

    KEPT = "kept"
    RAISED = "raised"
    LOWERED = "lowered"
    TRANSLATED = "translated"
    LEFT_OUT = "left out"
    NEVER = "never copied"
    REFUSED = "refused"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Fitted:
    """The fate of one setting.

    Attributes:
        name: The setting.
        value: Its value in the source.
        becomes: Its settings on the new topic; empty for a setting that is left out.
        why: The reason; empty if it is kept.
    """

    name: str
    value: str
    fate: SettingFate
    becomes: Mapping[str, str]
    why: str = ""

    def __str__(self) -> str:
        if self.fate == SettingFate.KEPT:
            return f"{self.name}={self.value}: kept"
        set_ = ", ".join(f"{name}={value}" for name, value in self.becomes.items())
        return f"{self.name}={self.value}: {self.fate}{f', {set_}' if set_ else ''} ({self.why})"


def fit(
    config: Mapping[str, str], refusals: Mapping[str, str], replicas: int
) -> tuple[Fitted, ...]:
    """Return the fate of each setting of a source topic on a new one.

    Args:
        config: The source's settings.
        refusals: Those that the target refuses, with its words.
        replicas: Number of replicas that the new topic gets.
    """
    return tuple(
        _fitted(name, value, config, refusals.get(name), replicas)
        for name, value in sorted(config.items())
    )


def _fitted(
    name: str, value: str, config: Mapping[str, str], refusal: str | None, replicas: int
) -> Fitted:
    if name in THROTTLES:
        why = "which replicas are throttled is a matter of the source's brokers"
        return Fitted(name, value, SettingFate.NEVER, {}, why)
    if refusal is None:
        if name == _IN_SYNC and value.isdecimal() and int(value) > replicas:
            why = f"the topic gets {replicas} replicas, and would take no record"
            return Fitted(name, value, SettingFate.LOWERED, {name: str(replicas)}, why)
        return Fitted(name, value, SettingFate.KEPT, {name: value})
    if name == DIFFERENCE:
        both = {other: value for other in (BEFORE, AFTER) if other not in config}
        return Fitted(
            name, value, SettingFate.TRANSLATED, both, "the target has one setting for each side"
        )
    least = _LEAST.search(refusal)
    if least is not None and value.lstrip("-").isdecimal() and int(value) < int(least[1]):
        why = f"the target takes at least {least[1]}"
        return Fitted(name, value, SettingFate.RAISED, {name: least[1]}, why)
    if _UNKNOWN.search(refusal):
        return Fitted(name, value, SettingFate.LEFT_OUT, {}, "the target doesn't know it")
    if name.startswith(_DISPENSABLE):
        return Fitted(name, value, SettingFate.LEFT_OUT, {}, f"the target answered: {refusal}")
    return Fitted(name, value, SettingFate.REFUSED, {}, f"the target answered: {refusal}")


def config_of(fitted: Iterable[Fitted]) -> dict[str, str]:
    """Return the settings of the new topic."""
    return {name: value for each in fitted for name, value in each.becomes.items()}
