"""What a republish may be asked for, and where that sends each topic."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.request import CHANGED, HOW, WHERE, WHICH, RepublishRequest
from kafka_drain.republish.planning.runs import run_key

topics = st.text("abcXYZ019._-", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"delivery": "at_most_once"}, r"delivery = 'at_most_once'.*exactly_once.*at_least_once"),
        ({"engine": "flink"}, r"engine = 'flink'.*auto.*worker.*spark"),
        (
            {"placement": "random"},
            r"placement = 'random'.*original, key, key:crc32, key:fnv1a or a partition number",
        ),
        ({"placement": -1}, "placement = -1 is not acceptable"),
        ({"keep_ids": ["t:key"]}, "keep_ids requires a schema_map"),
        ({"hash_key_file": "/key"}, "hash_key_file requires fields to hash"),
        ({"pace": 0}, "pace = 0: Input should be greater than 0"),
        ({"pace": -1}, "pace = -1: Input should be greater than 0"),
        ({"pace": "nan"}, "pace = 'nan': Input should be a finite number"),
        ({"pace": "inf"}, "pace = 'inf': Input should be a finite number"),
        ({"pace": 1, "engine": "spark"}, "engine = 'spark' can't keep a pace"),
        ({"mask": ["email"]}, "mask 'email' isn't acceptable"),
        ({"change": "rules"}, "a function as module:function"),
        ({"keep_ids": ["key"], "schema_map": "dr"}, "such as orders:key"),
        ({"keep_ids": ["t:header"], "schema_map": "dr"}, "such as orders:key"),
    ],
)
def test_request_value_not_acceptable(asked: dict[str, Any], says: str) -> None:
    """A value that isn't known is refused together with those that are."""
    with pytest.raises(ConfigError, match=says):
        RepublishRequest(**asked)


@pytest.mark.parametrize("value", ["fast", "strict"])
def test_request_transactions_removed(value: str) -> None:
    """An option that only older releases know is refused with what there is instead."""
    says = rf"'transactions' \(value '{value}'\) was removed: each transaction .* Leave it out"
    with pytest.raises(ConfigError, match=says):
        RepublishRequest(target_topic="t", transactions=value)


@pytest.mark.parametrize("transactions", ["fast", "strict"])
def test_matches_request_of_older_release(transactions: str) -> None:
    """How a run's transactions were made doesn't change what it sends; all else counts."""
    older = {
        "target_topic": "copy",
        "rename": {},
        "selection": {},
        "delivery": "exactly_once",
        "transactions": transactions,
        "engine": "auto",
        "placement": "original",
        "provenance": False,
    }

    assert RepublishRequest(target_topic="copy").matches_request(older)
    assert not RepublishRequest(target_topic="copy", engine="spark").matches_request(older)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"engine": "worker"}, "engine = 'worker' and delivery = 'at_least_once' contradict"),
        ({"placement": "key"}, "placement original without provenance"),
        ({"placement": 0}, "placement original without provenance"),
        ({"provenance": True}, "placement original without provenance"),
        ({"offsets": ["t:0:0-1"]}, "only whole partitions"),
        ({"from_time": "1970-01-01"}, "only whole partitions"),
        ({"to_time": "1970-01-01"}, "only whole partitions"),
        ({"records_per_second": 10}, "supports no limits"),
        ({"bytes_per_second": 0.5}, "supports no limits"),
        ({"pace": 1}, "supports no limits"),
        ({"schema_map": "dr"}, "can't replace schema ids"),
        ({"mask": ["$.a"]}, "can't leave out or change records"),
        ({"filters": ["key=a"]}, "can't leave out or change records"),
    ],
)
def test_request_at_least_once_cannot(asked: dict[str, Any], says: str) -> None:
    """What Spark's own sink can't do is refused, and the same is fine exactly once."""
    with pytest.raises(ConfigError, match=says):
        RepublishRequest(delivery="at_least_once", **asked)
    RepublishRequest(**asked)


def test_request_at_least_once() -> None:
    """Whole topics and partitions can be sent by Spark's own sink."""
    whole: dict[str, Any] = {"topics": ["a"], "partitions": [1]}

    for engine in ("auto", "spark"):
        RepublishRequest(delivery="at_least_once", engine=engine, **whole)


@pytest.mark.parametrize(
    ("target_topic", "topic", "expected"),
    [
        (None, "a", "a"),
        ("one", "a", "one"),
        ("{topic}_restored", "a", "a_restored"),
        ("x.{topic}.{topic}", "a", "x.a.a"),
        (None, "b", "renamed"),
        ("one", "b", "renamed"),
        ("{topic}_restored", "b", "renamed"),
        # Rows without a topic.
        (None, "", None),
        ("{topic}_restored", "", None),
        ("one", "", "one"),
    ],
)
def test_target_of(target_topic: str | None, topic: str, expected: str | None) -> None:
    """A topic goes where it was renamed to, else to the target topic, else to itself."""
    request = RepublishRequest(target_topic=target_topic, rename={"b": "renamed"})

    assert expected == request.target_of(topic)


@given(st.sets(topics, min_size=2), topics)
def test_target_of_each_topic_apart(names: set[str], suffix: str) -> None:
    """With the topic in the target's name, no two topics share a target."""
    request = RepublishRequest(target_topic="{topic}" + suffix)

    assert len({request.target_of(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "changed",
    [
        {"target_topic": "other"},
        {"rename": {"a": "b"}},
        {"partitions": [0]},
        {"delivery": "at_least_once"},
        {"engine": "spark"},
        {"placement": 3},
        {"provenance": True},
        {"schema_map": "dr"},
        {"schema_map": "dr", "keep_ids": ["t:key"]},
        {"filters": ["key=a"]},
        {"mask": ["$.a"]},
        {"hash_fields": ["key"]},
        {"drop_headers": ["a"]},
        {"change": "m:f"},
    ],
)
def test_request_name_of_other_request(changed: dict[str, Any]) -> None:
    """Whoever asks for something else gets another run."""
    asked = RepublishRequest(target_topic="t")
    other = RepublishRequest(**{"target_topic": "t", **changed})

    assert asked.to_dict() != other.to_dict()
    assert run_key(asked.name("p")) != run_key(other.name("p"))
    assert run_key(asked.name("p")) != run_key(asked.name("q"))


def test_request_name_of_same_request() -> None:
    """The same request, however it is put, is the same run; so is one that says how, not what."""
    asked = RepublishRequest(
        target_topic="{topic}_restored",
        rename={"a": "x", "b": "y"},
        topics=("b", "a"),
        to_time=datetime(2026, 1, 1, tzinfo=timezone.utc),
        placement="0",
        schema_map="dr",
        keep_ids=("t:key", "t:value"),
    )
    same = RepublishRequest(
        target_topic="{topic}_restored",
        rename={"b": "y", "a": "x"},
        topics=("a", "b", "a"),
        to_time=datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        placement=0,
        schema_map="dr",
        keep_ids=("t:value", "t:key"),
        create_target=True,
        sealed_only=True,
        repeat=True,
        into_source=True,
        records_per_second=10,
    )

    assert asked.name("p") == same.name("p")
    assert json.loads(json.dumps(asked.to_dict())) == same.to_dict()


@pytest.mark.parametrize(
    "asked", [{"target_topic": ""}, {"target_topic": " "}, {"rename": {"a": ""}}]
)
def test_request_no_name(asked: dict[str, Any]) -> None:
    """A target without a name is refused; whoever names none gets another than the source."""
    with pytest.raises(ConfigError, match=r"= ' ?' is not acceptable; accepted: a topic name"):
        RepublishRequest(**asked)

    assert RepublishRequest().target_of("a") == "a.restored"


def test_request_name_readable() -> None:
    """The run's folder says where the records went."""
    # As in 0.2: the run of the same request, begun by that release, is resumed.
    copy = run_key(RepublishRequest(target_topic="copy").name("flights"))
    assert copy == "flights-to-copy-b7d8479c09a0"
    assert run_key(RepublishRequest(target_topic="copy").name("flights")).startswith(
        "flights-to-copy-"
    )
    assert run_key(RepublishRequest(target_topic=None).name("flights")).startswith(
        "flights-to-the-same-topics-"
    )
    assert run_key(RepublishRequest().name("flights")).startswith("flights-to-each-topic.restored-")
    assert run_key(RepublishRequest(target_topic="{topic}_new").name("flights")).startswith(
        "flights-to-each-topic_new-"
    )


def test_request_named() -> None:
    """A run that has a name is called by it, whatever is asked for."""
    assert RepublishRequest(run_name="mine", target_topic="copy").name("flights") == "mine"


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf"), "fast"])
def test_request_limit_not_acceptable(limit: Any) -> None:
    """A limit is a number, or 0 for none; anything else is refused before anything is planned."""
    with pytest.raises(ConfigError, match=r"bytes_per_second = .*: Input should be "):
        RepublishRequest(bytes_per_second=limit)


def test_request_tells_all_at_once() -> None:
    """Whatever is wrong with several options is told in one error."""
    wrong: dict[str, Any] = {
        "placement": "random",
        "rename": {"a": ""},
        "from_time": "noon",
        "partitions": ["x"],
        "offsets": ["t:0:5-5"],
        "engine": "flink",
    }

    with pytest.raises(ConfigError) as refused:
        RepublishRequest(**wrong)

    said = str(refused.value)
    assert [name for name in wrong if name not in said] == []
    assert said.count("; accepted: ") == 4


def test_request_times_in_wrong_order() -> None:
    """Times that leave nothing between them are refused."""
    times: dict[str, Any] = {"from_time": "2026-01-02", "to_time": "2026-01-01"}

    with pytest.raises(ConfigError, match="is after to_time"):
        RepublishRequest(**times)


def test_request_misspelt() -> None:
    """An option that there isn't is refused with the one that was meant."""
    asked: dict[str, Any] = {"provenence": True}

    with pytest.raises(
        ConfigError, match=r"isn't a valid key of a republish; did you mean 'provenance'"
    ):
        RepublishRequest(**asked)


def test_request_limits() -> None:
    """Limits are records and bytes per second and the pace, in this order."""
    asked = RepublishRequest(records_per_second=5, bytes_per_second=9, pace=2)

    assert asked.limits == (5, 9, 2)
    assert RepublishRequest().limits == (0, 0, 0)


def test_request_marked() -> None:
    """Whether changed records are marked is part of the request, and of its name."""
    plain = RepublishRequest(mask=("$.a",))
    marked = RepublishRequest(mask=("$.a",), mark_changed=True)

    assert (plain.wanted.mark, marked.wanted.mark) == (False, True)
    assert plain.name("p") != marked.name("p")


def test_request_into_source() -> None:
    """Who sends into the source, and names no target, means each record's own topic."""
    assert RepublishRequest(into_source=True).target_of("a") == "a"
    assert RepublishRequest(into_source=True, target_topic="copy").target_of("a") == "copy"


def test_options_shown() -> None:
    """Each option has a section, one type, and a description in whole sentences."""
    options = RepublishRequest.options()

    assert options.keys() == RepublishRequest.model_fields.keys()
    for name, option in options.items():
        assert isinstance(option["type"], str), name
        assert option["section"] in (WHERE, WHICH, CHANGED, HOW), name
        assert option["description"].endswith("."), name
        # argparse puts values in place of it.
        assert "%" not in option["description"], name
