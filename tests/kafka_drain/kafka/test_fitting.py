"""What becomes of a topic's settings on a cluster of another age or vendor."""

from __future__ import annotations

import pytest

from kafka_drain.kafka.fitting import SettingFate, config_of, fit

UNKNOWN = "Unknown topic config name: x"
LEAST = "Invalid value 524288 for configuration segment.bytes: Value must be at least 1048576"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"


@pytest.mark.parametrize(
    ("name", "value", "refusal", "fate", "becomes"),
    [
        ("retention.ms", "5", None, SettingFate.KEPT, {"retention.ms": "5"}),
        ("segment.bytes", "524288", None, SettingFate.KEPT, {"segment.bytes": "524288"}),
        ("segment.bytes", "524288", LEAST, SettingFate.RAISED, {"segment.bytes": "1048576"}),
        ("segment.bytes", "-1", LEAST, SettingFate.RAISED, {"segment.bytes": "1048576"}),
        # Not what the broker means.
        ("segment.bytes", "1048576", LEAST, SettingFate.REFUSED, {}),
        ("segment.bytes", "-", LEAST, SettingFate.REFUSED, {}),
        ("segment.bytes", "1x", LEAST, SettingFate.REFUSED, {}),
        ("segment.bytes", "2000000", LEAST, SettingFate.REFUSED, {}),
        (DIFFERENCE, "9", None, SettingFate.KEPT, {DIFFERENCE: "9"}),
        (DIFFERENCE, "9", UNKNOWN, SettingFate.TRANSLATED, {BEFORE: "9", AFTER: "9"}),
        ("message.format.version", "3.0", UNKNOWN, SettingFate.LEFT_OUT, {}),
        ("confluent.tier.enable", "true", UNKNOWN, SettingFate.LEFT_OUT, {}),
        ("redpanda.remote.read", "true", UNKNOWN, SettingFate.LEFT_OUT, {}),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker.",
            SettingFate.LEFT_OUT,
            {},
        ),
        ("cleanup.policy", "compact", "Policy: delete only", SettingFate.REFUSED, {}),
        ("leader.replication.throttled.replicas", "0:1", None, SettingFate.NEVER, {}),
        ("follower.replication.throttled.replicas", "*", UNKNOWN, SettingFate.NEVER, {}),
        ("min.insync.replicas", "2", None, SettingFate.KEPT, {"min.insync.replicas": "2"}),
        ("min.insync.replicas", "3", None, SettingFate.LOWERED, {"min.insync.replicas": "2"}),
    ],
    ids=str,
)
def test_fit(
    name: str, value: str, refusal: str | None, fate: SettingFate, becomes: dict[str, str]
) -> None:
    """Each setting has its fate, with a reason unless it is kept; two replicas are there."""
    [fitted] = fit({name: value}, {} if refusal is None else {name: refusal}, 2)

    assert (fitted.fate, fitted.becomes) == (fate, becomes)
    assert bool(fitted.why) == (fate != SettingFate.KEPT)
    assert str(fitted).startswith(f"{name}={value}: {fate}")


def test_fit_translated_beside_newer() -> None:
    """A bound that the source sets for one side counts, not the older one for both."""
    fitted = fit({DIFFERENCE: "9", AFTER: "3"}, {DIFFERENCE: UNKNOWN}, 1)

    assert config_of(fitted) == {BEFORE: "9", AFTER: "3"}


@pytest.mark.parametrize(
    ("name", "value", "refusal", "line"),
    [
        ("retention.ms", "5", None, "retention.ms=5: kept"),
        (
            "segment.bytes",
            "7",
            LEAST,
            "segment.bytes=7: raised, segment.bytes=1048576 (the target takes at least 1048576)",
        ),
        (
            DIFFERENCE,
            "9",
            UNKNOWN,
            f"{DIFFERENCE}=9: translated, {BEFORE}=9, {AFTER}=9 "
            "(the target has one setting for each side)",
        ),
        ("x", "1", UNKNOWN, "x=1: left out (the target doesn't know it)"),
        (
            "follower.replication.throttled.replicas",
            "*",
            None,
            "follower.replication.throttled.replicas=*: never copied "
            "(which replicas are throttled is a matter of the source's brokers)",
        ),
    ],
    ids=str,
)
def test_fitted_line(name: str, value: str, refusal: str | None, line: str) -> None:
    """The plan's line of a setting: what becomes of it, what is set, and why."""
    [fitted] = fit({name: value}, {} if refusal is None else {name: refusal}, 2)

    assert str(fitted) == line
