"""What was found, as the fields of a republish."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.find.as_republish import as_republish
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import Position
from kafka_drain.find.search import Match
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain_airflow.forms import params_of


def match(topic: str, partition: int, offset: int, *, is_sealed: bool = True) -> Match:
    return Match(
        position=Position(topic, 1, partition, offset),
        topic_id="id",
        timestamp=0,
        timestamp_type=0,
        key=None,
        value=None,
        headers=None,
        file="f",
        is_sealed=is_sealed,
    )


FOUND = [match("a", 0, 1), match("a", 0, 2), match("a", 0, 5), match("a", 1, 1), match("b", 0, 7)]
OFFSETS = {"offsets": ["a:0:1-3", "a:0:5-6", "a:1:1-2", "b:0:7-8"]}
TIMES = {"from_time": "2026-01-01T00:00:00Z", "to_time": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize(
    ("given", "is_all", "everything", "cannot"),
    [
        # Whatever was looked for: the offsets are all there is.
        ({"keys": ["k"]}, True, OFFSETS, []),
        (TIMES, True, OFFSETS, []),
        # More match: fields select them only if the criteria are such fields.
        ({}, False, {}, []),
        (
            {**TIMES, "topics": ["a"], "partitions": ["0", "1"]},
            False,
            {
                "topics": ["a"],
                "partitions": ["0", "1"],
                "from_time": "2026-01-01T00:00:00.000Z",
                "to_time": "2026-01-02T00:00:00.000Z",
            },
            [],
        ),
        (
            {"topics": ["a"], "partitions": ["0"], "offset": "1-9"},
            False,
            {"topics": ["a"], "partitions": ["0"], "offsets": ["a:0:1-9"]},
            [],
        ),
        *(
            ({**TIMES, **inside}, False, None, ["no fields select those"])
            for inside in (
                {"keys": ["k"]},
                {"headers": ["h=v"]},
                {"value_contains": "v"},
                {"jsonpath": "$.a"},
            )
        ),
    ],
)
def test_as_republish(
    given: dict[str, Any], is_all: bool, everything: dict[str, Any] | None, cannot: list[str]
) -> None:
    """The records are selected by offsets; all that match, by the criteria if these are fields."""
    selected = as_republish(Criteria.of(**given), FOUND, is_all=is_all)

    assert selected.these == OFFSETS
    assert selected.all == everything
    assert len(selected.cannot) == len(cannot)
    assert all(part in said for part, said in zip(cannot, selected.cannot, strict=True))


def test_as_republish_cannot() -> None:
    """Files that aren't sealed, and topics that were created again, are said to be trouble."""
    found = [*FOUND, match("a", 0, 9, is_sealed=False)]
    selected = as_republish(Criteria(), found, is_all=True, recreated={"a", "other"})

    [recreated, unsealed] = selected.cannot
    assert recreated.startswith("a was deleted and created again")
    # As the plan of a republish does.
    assert recreated.endswith("refuses offsets that both have: select by time instead.")
    assert unsealed.startswith("1 of these records")


@pytest.mark.parametrize("is_all", [True, False])
def test_as_republish_accepted(is_all: bool) -> None:
    """The form of a republish, and its request, accept each field."""
    given = {**TIMES, "topics": ["a"], "partitions": ["0"], "offset": "1-9"}
    selected = as_republish(Criteria.of(**given), FOUND, is_all=is_all)
    params = params_of("republish")

    assert selected.all is not None
    for name, value in selected.all.items():
        assert params[name].resolve(value) == value
    request = RepublishRequest.model_validate(selected.all)
    assert {"offsets", *selected.all} <= request.model_fields_set
