"""What somebody asks a republish for. Opens nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.placement import ORIGINAL, parse_placement
from kafka_drain.republish.planning.plan import (
    AT_LEAST_ONCE,
    DELIVERIES,
    ENGINES,
    EXACTLY_ONCE,
    TRANSACTIONS,
)
from kafka_drain.republish.planning.selection import Selection

__all__ = ["RESTORED", "RepublishRequest"]

_TOPIC = "{topic}"

#: The target where none is named: the source may hold the records still.
RESTORED = "{topic}.restored"


@dataclass(frozen=True)
class RepublishRequest:
    """Which records go where, and how.

    Attributes:
        target_topic: Target of all records; `{topic}` in it stands for the topic that a record
            came from, as in `{topic}.restored`. None sends each to the topic it came from.
        rename: Target topic by source topic, before `target_topic`.
        selection: Which records.
        delivery: `exactly_once` or `at_least_once`.
        transactions: `strict` or `fast`.
        engine: `auto`, `worker` or `spark`.
        placement: `original`, `key` or a partition's number.
        adds_provenance: Whether headers say where each record came from.
        creates_target: Whether target topics that are missing are made like their source.
        sealed_only: Whether files that no validation has sealed yet are left out; else they are
            refused.
        repeats: Whether records may be sent to a topic that an earlier run sent them to.
        into_source: Whether records may go into a topic that the archive drains and that holds
            records.

    Raises:
        ConfigError: When a value is not acceptable, or two contradict each other.
    """

    target_topic: str | None = RESTORED
    rename: Mapping[str, str] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    delivery: str = EXACTLY_ONCE
    transactions: str = "strict"
    engine: str = "auto"
    placement: str | int = ORIGINAL
    adds_provenance: bool = False
    creates_target: bool = False
    sealed_only: bool = False
    repeats: bool = False
    into_source: bool = False

    def __post_init__(self) -> None:
        for option, target in (
            ("target_topic", self.target_topic),
            *((f"rename of {topic}", target) for topic, target in self.rename.items()),
        ):
            if target is not None and not target.strip():
                raise ConfigError(
                    f"{option} = {target!r} is not acceptable; accepted: a topic's name, in which "
                    f"{_TOPIC} is the topic that a record came from; {RESTORED} without one"
                )
        for name, accepted in (
            ("delivery", DELIVERIES),
            ("transactions", TRANSACTIONS),
            ("engine", ENGINES),
        ):
            if getattr(self, name) not in accepted:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r} is not acceptable; accepted: "
                    f"{', '.join(accepted)}"
                )
        object.__setattr__(self, "placement", parse_placement(self.placement))
        if self.delivery == AT_LEAST_ONCE:
            self._check_at_least_once()

    def _check_at_least_once(self) -> None:
        if self.engine == "worker":
            raise ConfigError(
                "engine = 'worker' and delivery = 'at_least_once' contradict each other; expected "
                "engine spark or auto, as Spark's own sink sends at least once"
            )
        if self.placement != ORIGINAL or self.adds_provenance:
            raise ConfigError(
                "delivery = 'at_least_once' takes placement original and no provenance headers, as "
                "Spark's own sink knows neither; use exactly_once"
            )
        selection = self.selection
        if selection.offsets or selection.from_ms is not None or selection.to_ms is not None:
            raise ConfigError(
                "delivery = 'at_least_once' takes whole partitions only; use exactly_once for "
                "offsets or times"
            )

    def target_of(self, topic: str) -> str | None:
        """Return where a topic's records go; None when that can't be told without its name."""
        if topic in self.rename:
            return self.rename[topic]
        if self.target_topic is None:
            return topic or None
        if _TOPIC in self.target_topic and not topic:
            return None
        return self.target_topic.replace(_TOPIC, topic)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON types: what has to be the same in each attempt of a run."""
        return {
            "target_topic": self.target_topic,
            "rename": dict(sorted(self.rename.items())),
            "selection": self.selection.to_dict(),
            "delivery": self.delivery,
            "transactions": self.transactions,
            "engine": self.engine,
            "placement": self.placement,
            "provenance": self.adds_provenance,
        }

    def is_asked_by(self, asked: Mapping[str, Any]) -> bool:
        """Whether it asks for what a run was asked for, by this release or an older one.

        To the older one no target meant each record's own topic, which today `{topic}` may say.
        """

        def target(document: Mapping[str, Any]) -> dict[str, Any]:
            return {**document, "target_topic": document.get("target_topic") or _TOPIC}

        return target(asked) == target(self.to_dict())

    def name(self, pipeline: str) -> str:
        """Return a run's name that is the same whenever the same is asked for."""
        to = (self.target_topic or "the same topics").replace(_TOPIC, "each topic")
        return f"{pipeline} to {to} {json.dumps(self.to_dict(), sort_keys=True)}"
