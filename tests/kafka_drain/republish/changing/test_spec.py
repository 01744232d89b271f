"""What is dropped and changed, as users ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.function_id import FunctionId
from kafka_drain.republish.changing.spec import ChangeRequest, ChangeSpec

WANTED = ChangeRequest(("key=a",), ("$.a", "header:b=x"), ("key", "$.c"), ("d",), "m:f", mark=True)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"filters": ("nothing",)}, "filter 'nothing' isn't acceptable"),
        ({"mask": ("key",)}, "mask key would give all records the same key"),
        ({"mask": ("$.a", "$.a=x")}, "may be the same part of a record"),
        ({"mask": ("$.a",), "hashed": ("$.a.b",)}, "may be the same part of a record"),
        ({"hashed": ("$.a=x",)}, "takes no value"),
        ({"hashed": ("$.a[-1]",)}, "counts from the end"),
        ({"function": "m.f"}, "accepted: a function as module:function"),
        ({"mark": True}, "mark_changed has nothing to mark"),
        ({"mark": True, "filters": ("key",)}, "mark_changed has nothing to mark"),
    ],
)
def test_check(wanted: dict[str, Any], said: str) -> None:
    """What can't be carried out is refused."""
    with pytest.raises(ConfigError, match=said):
        ChangeRequest(**wanted).check()


def test_wanted_is_anything() -> None:
    """Each thing that is asked for counts; a mark alone doesn't."""
    WANTED.check()
    assert WANTED
    assert not ChangeRequest(mark=True)
    for name in ("filters", "mask", "hashed", "drop_headers"):
        assert ChangeRequest(**{name: ("x",)})
    assert ChangeRequest(function="m:f")


def test_spec_to_dict() -> None:
    """A spec is read as it was written; other functions and keys have another digest."""
    function = FunctionId("m:f", "0" * 64, "3.12")
    spec = ChangeSpec(WANTED, function, "id")

    read = ChangeSpec.from_dict(spec.to_dict() | {"dropped": 5})
    assert read.to_dict() == spec.to_dict()
    others = [
        ChangeSpec(WANTED, FunctionId("m:f", "1" * 64, "3.12"), "id"),
        ChangeSpec(WANTED, function, "other"),
        ChangeSpec(ChangeRequest(), None, ""),
    ]
    assert len({each.digest for each in (spec, *others)}) == 4
    assert ChangeSpec.from_dict(others[2].to_dict()) == others[2]
    # Records carry it: a later release must resume a run, and verify it, with the same one.
    assert spec.digest == "f1197c3c28a28bb5647cf1a6ca4d463ce6e7e16cdb410b040e89ce59c3c8d631"
