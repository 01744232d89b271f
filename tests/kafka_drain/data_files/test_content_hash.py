"""The hash of a record's content: what has to be told apart is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.content_hash import content_hash
from kafka_drain.data_files.rows import Headers

maybe_bytes = st.none() | st.binary(max_size=3)
headers = st.none() | st.lists(st.tuples(st.text("ab", max_size=2), maybe_bytes), max_size=3)
contents = st.tuples(maybe_bytes, maybe_bytes, headers)


def test_content_hash_alike_parts() -> None:
    """Records whose parts are cut elsewhere, are null or empty, or swapped have hashes apart."""
    different: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, None, None),
        (b"", None, None),
        (None, b"", None),
        (b"", b"", None),
        (b"a", None, None),
        (None, b"a", None),
        (b"a", b"b", None),
        (b"ab", b"", None),
        (b"", b"ab", None),
        (b"ab", None, None),
        (b"", b"", [("", None)]),
        (b"", b"", [("", b"")]),
        (b"", b"", [("a", b"b")]),
        (b"", b"", [("ab", b"")]),
        (b"", b"", [("ab", None)]),
        (b"", b"", [("", b"ab")]),
        (b"", b"", [("a", b""), ("b", b"")]),
        (b"", b"", [("b", b""), ("a", b"")]),
        (b"", b"", [("a", b""), ("a", b"")]),
        (b"", b"a", [("b", b"")]),
    ]

    assert len({content_hash(*content) for content in different}) == len(different)


def test_content_hash_no_headers() -> None:
    """A record without headers is the same as one with an empty list of them."""
    assert content_hash(b"k", b"v", None) == content_hash(b"k", b"v", [])


def test_content_hash_is_kept() -> None:
    """The hash of a record doesn't change with versions: fingerprints in reports are compared."""
    assert content_hash(b"k", None, [("a", b"b"), ("c", None)]) == 0x1568CAC0DF7984AB


@given(contents, contents)
def test_content_hash_any_two(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Two records have one hash if they are the same record, and only then."""
    is_same = (*one[:2], one[2] or None) == (*other[:2], other[2] or None)

    assert (content_hash(*one) == content_hash(*other)) == is_same
    assert 0 <= content_hash(*one) < 1 << 64
