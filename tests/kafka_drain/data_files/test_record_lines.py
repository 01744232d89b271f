"""Records as lines of JSON: nothing is lost, and nothing wrong is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.record_lines import (
    EARLIEST,
    LATEST,
    NAMED,
    TIMESTAMP_TYPES,
    RecordLine,
    parse_record,
    read_lines,
)
from kafka_drain.errors import ConfigError, DataFileError

content = st.none() | st.binary() | st.text().map(str.encode)
records = st.builds(
    RecordLine,
    topic=st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True),
    key=content,
    value=content,
    partition=st.none() | st.integers(0, 2**31 - 1),
    offset=st.none() | st.integers(0, 2**63 - 1),
    timestamp=st.none() | st.integers(EARLIEST, LATEST),
    timestamp_type=st.none() | st.sampled_from([*TIMESTAMP_TYPES]),
    headers=st.lists(st.tuples(st.text(), content), max_size=4).map(tuple),
)

PLAIN = {"topic": "a", "key": None, "value": "v"}


@given(st.lists(records, max_size=5))
def test_read_lines_as_written(written: list[RecordLine]) -> None:
    """What is written is read again, also with line separators of Unicode in the texts."""
    lines = [record.line() for record in written]
    assert not any("\n" in line for line in lines)

    found = read_lines("".join(f"{line}\n" for line in lines).encode(), "f")

    assert found == list(enumerate(written, 1))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (b"", ""),
        ("grün\x00\u2028".encode(), "grün\x00\u2028"),
        (b"\xff", {"base64": "/w=="}),
        # Its own form, as text.
        (b'{"base64": "/w=="}', '{"base64": "/w=="}'),
    ],
)
def test_line_content(value: bytes | None, written: Any) -> None:
    assert json.loads(RecordLine("a", None, value).line())["value"] == written


def test_line_changed_type() -> None:
    """A number that Kafka doesn't have isn't written as none."""
    with pytest.raises(DataFileError, match="timestampType is 5"):
        RecordLine("a", None, None, timestamp_type=5).line()


def test_parse_record_made_by_hand() -> None:
    assert parse_record(b' {"topic": "a", "value": "v", "key": null}\r\n') == RecordLine(
        "a", None, b"v"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\xff", "isn't UTF-8"),
        (b"\xef\xbb\xbf{}", "isn't JSON"),
        (b'{"topic": "a"', "isn't JSON (Expecting ',' delimiter at character 14)"),
        (b"[" * 100_000, "isn't a record"),
        (b"9" * 5_000, "isn't a record"),
        (b"[]", "the line is a list"),
        (b'{"topic": "a", "topic": "b"}', 'has "topic" twice'),
        (b'{"topic": "a", "key": {"base64": "", "base64": ""}}', 'has "base64" twice'),
        ({**PLAIN, "valeu": 1}, '"valeu" is unknown; accepted: topic, partition'),
        ({"topic": "a", "key": "k"}, "value is missing; write null for none"),
        ({**PLAIN, "topic": None}, "topic is null"),
        ({**PLAIN, "topic": "a b"}, 'topic is "a b"'),
        ({**PLAIN, "topic": ".."}, 'topic is ".."'),
        ({**PLAIN, "partition": -1}, "partition is -1; accepted: a whole number from 0 to"),
        ({**PLAIN, "partition": 2**31}, "partition is 2147483648"),
        ({**PLAIN, "partition": True}, "partition is true"),
        ({**PLAIN, "partition": 1.0}, "partition is 1.0"),
        ({**PLAIN, "offset": "7"}, 'offset is "7"'),
        ({**PLAIN, "offset": 2**63}, "offset is 9223372036854775808"),
        ({**PLAIN, "timestamp": LATEST + 1}, f"timestamp is {LATEST + 1}"),
        ({**PLAIN, "timestamp": "2026-01-01"}, 'timestamp is "2026-01-01"'),
        ({**PLAIN, "timestamp": float("nan")}, "timestamp is NaN"),
        ({**PLAIN, "timestamp_type": "create"}, 'timestamp_type is "create"'),
        ({**PLAIN, "timestamp_type": []}, "timestamp_type is a list"),
        ({**PLAIN, "key": 4711}, "key is a number"),
        ({**PLAIN, "value": {"a": 1}}, "value is an object"),
        ({**PLAIN, "value": {"base64": None}}, "value is an object"),
        ({**PLAIN, "value": {"base64": "secret"}}, "value.base64 is text of 6 characters"),
        ({**PLAIN, "value": {"base64": "/w"}}, "value.base64 is text of 2 characters"),
        ({**PLAIN, "value": {"base64": "/x=="}}, "value.base64 is text of 4 characters"),
        ({**PLAIN, "value": {"base64": "/w==\n"}}, "value.base64 is text of 5 characters"),
        ({**PLAIN, "value": "\ud800"}, "value is text of 1 characters"),
        ({**PLAIN, "headers": {}}, "headers is an object"),
        ({**PLAIN, "headers": ["h"]}, "headers[0] is text of 1 characters"),
        ({**PLAIN, "headers": [{"name": "h"}]}, "headers[0].value is missing"),
        ({**PLAIN, "headers": [{"name": 1, "value": None}]}, "headers[0].name is a number"),
        ({**PLAIN, "headers": [{"name": "\udfff", "value": None}]}, "headers[0].name is text"),
        ({**PLAIN, "headers": [{"name": "h", "value": 1}]}, "headers[0].value is a number"),
        ({**PLAIN, "headers": [{"name": "", "value": "", "secret": 1}]}, "headers[0].a name is"),
        (b'{"topic": "a", "value": {"secret": 1, "secret": 2}}', "has a name twice"),
    ],
)
def test_parse_record_wrong(line: Any, said: str) -> None:
    """Each mistake is named by its field, and no content is shown."""
    written = line if isinstance(line, bytes) else json.dumps(line).encode()
    with pytest.raises(ValueError) as raised:
        parse_record(written)
    assert str(raised.value).startswith(said)
    assert "secret" not in str(raised.value)


def test_read_lines_wrong() -> None:
    """The first wrong lines are named, others counted; empty lines count, but are none."""
    lines = ["", json.dumps(PLAIN), *["{}"] * (NAMED + 2)]
    with pytest.raises(ConfigError) as raised:
        read_lines("\n".join(lines).encode(), "cases.jsonl")
    said = str(raised.value)
    assert said.startswith("cases.jsonl: line 3: topic is missing")
    assert f"line {NAMED + 2}: " in said
    assert said.endswith("; and 2 more lines. Correct the file; nothing was sent")
