"""What an erasure is asked for: files of keys and headers, refusals, what goes to the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.erasures import header_hash, key_hash
from kafka_drain.errors import ConfigError
from kafka_drain.maintenance.erasure_request import (
    ErasureRequest,
    asks_the_same,
    parse_keys,
    read_headers,
    read_keys,
    refuse_names,
    scope_of,
)

SALT = b"salt"


def test_read_keys(tmp_path: Path) -> None:
    """One key a line: text, or bytes with a prefix; empty lines are none."""
    path = tmp_path / "keys"
    path.write_bytes(
        "user-1\r\n\nhex:00fF\nbase64:AP8=\n größe \nhexen:x\nurn:a:b\nhex:\n"
        "a\u2028b\x0cc\nd\re".encode()
    )

    assert read_keys(str(path)) == {
        b"user-1",
        b"\x00\xff",
        " größe ".encode(),
        b"hexen:x",
        b"urn:a:b",
        b"",
        "a\u2028b\x0cc".encode(),
        b"d\re",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ok\nhex:0g\n", "keys line 2 isn't hex"),
        (b"hex:00:00\n", "keys line 1 isn't hex"),
        (b"base64:A\n", "line 1 isn't base64"),
        (b"base64:AP8=!\n", "line 1 isn't base64"),
        (b"\xff\n", "isn't UTF-8 text"),
    ],
)
def test_read_keys_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """A line that isn't what it says is refused by its number, without its text."""
    path = tmp_path / "keys"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=message) as refused:
        read_keys(str(path))

    assert "0g" not in str(refused.value)


def test_parse_keys() -> None:
    """Of a connection's text, a line may end as Windows has it."""
    assert parse_keys("a\r\nb\r\n\rc", "connection c") == {b"a", b"b", b"\rc"}
    with pytest.raises(ConfigError, match="connection c line 2 isn't hex"):
        parse_keys("a\nhex:0", "connection c")


@pytest.mark.parametrize("read", [read_keys, read_headers])
def test_read_byte_order_mark(read: Any, tmp_path: Path) -> None:
    """A mark that Windows's editors put before the text isn't a part of the first line's record.

    No record would have it: that person's would stay, and the receipt say that they were erased.
    """
    path = tmp_path / "names"
    path.write_text("user=1\nuser=2\n", encoding="utf-8-sig")

    with pytest.raises(ConfigError, match="names begins with a byte order mark") as refused:
        read(str(path))

    assert "user=1" not in str(refused.value)
    with pytest.raises(ConfigError, match="connection c begins with a byte order mark"):
        parse_keys("\ufeffa\nb", "connection c")


def test_read_keys_missing(tmp_path: Path) -> None:
    """A file that isn't there is named."""
    with pytest.raises(ConfigError, match="keys can't be read: No such file"):
        read_keys(str(tmp_path / "keys"))


def test_read_headers(tmp_path: Path) -> None:
    """Name and value at the first equals sign; the value like a key."""
    path = tmp_path / "headers"
    path.write_text("user=1\nuser=a=b\nraw=hex:00\nempty=\n")

    assert read_headers(str(path)) == {
        ("user", b"1"),
        ("user", b"a=b"),
        ("raw", b"\x00"),
        ("empty", b""),
    }


@pytest.mark.parametrize("line", ["user", "=1"])
def test_read_headers_refused(tmp_path: Path, line: str) -> None:
    """A line without a name or an equals sign is no header."""
    path = tmp_path / "headers"
    path.write_text(f"a=1\n{line}\n")

    with pytest.raises(ConfigError, match="headers line 2 isn't a header"):
        read_headers(str(path))
    path.write_text("a=hex:0\n")
    with pytest.raises(ConfigError, match="headers line 1 isn't hex"):
        read_headers(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"request": " "}, "^an erasure needs the request's id and who asked"),
        ({"by": ""}, "needs the request's id and who asked"),
        ({"keys": frozenset()}, "the file of keys has none"),
        ({"headers": frozenset()}, "the file of headers has none"),
        ({"topics": frozenset({"t", "u", "v"})}, "has no topic u, v; it has t, x"),
        ({"from_ms": 5, "to_ms": 5}, "^the time range is empty"),
        ({"keys": None}, "must name its records"),
        ({"keys": None, "for_ever": True}, "must name its records"),
    ],
)
def test_check_refused(changes: dict[str, Any], message: str) -> None:
    """A request that names nothing, or nobody, is refused."""
    with pytest.raises(ConfigError, match=message):
        ErasureRequest(**{"request": "r", "by": "b", "keys": frozenset({b"k"})} | changes).check(
            {"t", "x"}
        )


@pytest.mark.parametrize(
    "naming",
    [
        {"keys": frozenset({b""})},
        {"headers": frozenset({("h", b"")})},
        {"topics": frozenset({"t"})},
        {"from_ms": 0},
        {"to_ms": 0},
        {"from_ms": 4, "to_ms": 5},
    ],
)
def test_check(naming: dict[str, Any]) -> None:
    """One criterion is enough."""
    ErasureRequest("r", "b", **naming).check({"t"})


def test_document() -> None:
    """The document has hashes, never what they are of; nor does the request's text."""
    request = ErasureRequest(
        "r",
        "b",
        keys=frozenset({b"secret-1", b"secret-2"}),
        headers=frozenset({("h", b"secret-3")}),
        topics=frozenset({"u", "t"}),
        from_ms=1,
        to_ms=2,
        for_ever=True,
    )

    document = request.document(SALT, scope_of([("t", "1")], {}), "now")

    assert document.content() == {
        "format_version": 1,
        "request": "r",
        "by": "b",
        "asked_at": "now",
        "salt": SALT.hex(),
        "keys": sorted(key_hash(SALT, key) for key in (b"secret-1", b"secret-2")),
        "headers": [{"name": "h", "hash": header_hash(SALT, "h", b"secret-3")}],
        "topics": ["t", "u"],
        "from_ms": 1,
        "to_ms": 2,
        "scope": [{"topic": "t", "topic_id": "1", "ends": None}],
        "for_ever": True,
    }
    assert "secret" not in repr(request)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"keys": frozenset({b"l"})}, False),
        ({"headers": frozenset({("h", b"1")})}, False),
        ({"topics": frozenset({"t"})}, False),
        ({"from_ms": 1}, False),
        ({"to_ms": 1}, False),
        ({"for_ever": True}, False),
        ({"by": "c"}, False),
        ({"request": "s"}, False),
    ],
)
def test_asks_the_same(changes: dict[str, Any], same: bool) -> None:
    """The same request is recognised later, when Kafka's ends are others; any change is not."""
    asked: dict[str, Any] = {"request": "r", "by": "b", "keys": frozenset({b"k"})}
    first = ErasureRequest(**asked).document(SALT, [], "yesterday")
    later = ErasureRequest(**asked | changes).document(
        SALT, scope_of([], {("t", "1"): {0: 5}}), "today"
    )

    assert asks_the_same(first, later) is same


def test_scope_of() -> None:
    """A topic that Kafka has ends where its partitions do; of any other all is meant."""
    scope = scope_of([("t", "1"), ("t", "0")], {("t", "1"): {1: 5, 0: 3}, ("u", "2"): {0: 0}})

    assert [(row.topic, row.topic_id, row.ends) for row in scope] == [
        ("t", "0", None),
        ("t", "1", {"0": 3, "1": 5}),
        ("u", "2", {"0": 0}),
    ]


@pytest.mark.parametrize(
    ("all_records", "has_keys", "has_headers", "message"),
    [
        (False, True, False, None),
        (False, False, True, None),
        (False, True, True, None),
        (True, False, False, None),
        (False, False, False, "^the file names no keys and no headers; set all_records"),
        (True, True, False, "^all_records is set, but the file names keys or headers"),
        (True, False, True, "^all_records is set, but the file names keys or headers"),
        (True, True, True, "^all_records is set, but the file names keys or headers"),
    ],
)
def test_refuse_names(
    all_records: bool, has_keys: bool, has_headers: bool, message: str | None
) -> None:
    """Either keys or headers are named, or all records are meant: never neither, never both."""

    def refuse() -> None:
        refuse_names(
            all_records=all_records, has_keys=has_keys, has_headers=has_headers, where="the file"
        )

    if message is None:
        refuse()
    else:
        with pytest.raises(ConfigError, match=message):
            refuse()
