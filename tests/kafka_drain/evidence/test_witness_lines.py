"""The chain of a witness: what a change to any of its lines leads to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kafka_drain.evidence.keys import PublicKey, SigningKey
from kafka_drain.evidence.statement import Statement
from kafka_drain.evidence.witness_lines import (
    WitnessLine,
    check_lines,
    lines_about,
    next_statement,
    parse_lines,
)


@cache
def key(name: str) -> SigningKey:
    """A key by its name."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    return SigningKey(PublicKey.of(private.public_key()), private)


def parsed(lines: Sequence[bytes], *known: str) -> list[WitnessLine]:
    """Parse lines with some known keys."""
    publics = [key(name).public for name in known or ("mine",)]
    return parse_lines(lines, {public.id: public.verify for public in publics})


def appended(
    lines: Sequence[bytes],
    sha256: str,
    *,
    by: str = "mine",
    archive_id: str = "id",
    pipeline: str = "flights",
) -> list[bytes]:
    """Append a line about an archive's newest receipt."""
    about = Statement("witness", "2026-01-01T00:00:00+00:00", archive_id, pipeline)
    mine = lines_about(parsed(lines, "mine", "old", "thief"), archive_id, pipeline)
    statement = next_statement(mine, {"receipt": sha256}, about)
    assert statement is not None
    return [*lines, key(by).sign(statement).to_bytes()]


@cache
def three() -> tuple[bytes, ...]:
    """Three lines about one archive."""
    lines: list[bytes] = []
    for sha256 in "abc":
        lines = appended(lines, sha256)
    return tuple(lines)


def test_next_statement() -> None:
    """A line names the one before; without anything new there is none."""
    lines, about = parsed(three()), Statement("witness", "now", "id", "flights")
    following = next_statement(lines, {"receipt": "d"}, about)
    assert following is not None

    assert following.document["previous"] == hashlib.sha256(three()[-1]).hexdigest()
    assert following.heads == {"receipt": "d"}
    assert (following.archive_id, following.signed_at) == ("id", "now")
    assert (following.kind, following.pipeline) == ("witness", "flights")
    assert next_statement(lines, {"receipt": "c"}, about) is None
    assert next_statement(lines, {}, about) is None
    assert next_statement([], {}, about) is None


def test_check_lines_whole() -> None:
    """Lines as they were appended are whole, and so are none."""
    assert check_lines(parsed(three())) == ""
    assert check_lines(parsed(three()[:1])) == ""
    assert check_lines([]) == ""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (three()[1:], "line 1 follows a line that is gone: the beginning is missing"),
        ((three()[0], three()[2]), "line 2 follows a line that was changed or removed"),
        ((three()[1], three()[0], three()[2]), "line 1 follows a line that is gone"),
        ((three()[0], three()[2], three()[1]), "line 2 follows a line that was changed or removed"),
        # Old lines at the end would make an old state the newest.
        ((*three(), three()[0]), "line 4 repeats an earlier line"),
        ((*three(), three()[1]), "line 4 repeats an earlier line"),
        ((*three(), three()[2]), ""),
        ((*three(), *appended([], "d")), "line 4 begins a new chain"),
        # Cut at its end, a witness can't show it: what is left is whole.
        (three()[:2], ""),
        # Bytes that aren't a line change nothing, if they hide none.
        ((three()[0], b'{"payl', *three()[1:]), ""),
        ((three()[0], b'{"payl', three()[2]), "line 3 follows a line that was changed or removed"),
    ],
)
def test_check_lines_changed(lines: Sequence[bytes], expected: str) -> None:
    """Lines that were removed, moved or added are found, except removed ones at the end."""
    found = check_lines(parsed(lines))

    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_check_lines_each_byte() -> None:
    """A line with any byte changed is found, except the newest, whose absence can't be."""
    lines = list(three())
    for place in range(len(lines[1])):
        bad = bytearray(lines[1])
        bad[place] ^= 1

        assert check_lines(parsed([lines[0], bytes(bad), lines[2]])), place


def test_check_lines_keys() -> None:
    """Lines before a rotation are covered by later ones; the newest must be by a known key."""
    old = appended(appended([], "a", by="old"), "b", by="old")
    rotated = appended(old, "c")

    assert check_lines(parsed(rotated, "mine", "old")) == ""
    assert check_lines(parsed(rotated, "mine")) == ""
    assert "line 2, the newest, is signed by the unknown key" in check_lines(parsed(old, "mine"))
    thief = appended(three(), "d", by="thief")
    assert "line 4, the newest, is signed by the unknown key" in check_lines(parsed(thief))
    # Before the change, and after it: the chain is whole, but a signature is of something else.
    swapped = rotated[0].replace(key("old").public.id.encode(), key("mine").public.id.encode())
    assert check_lines(parsed([swapped], "mine", "old")) == "line 1 has a wrong signature"


@pytest.mark.parametrize("after", [1, 2])
def test_check_lines_added_by_stranger(after: int) -> None:
    """A line that somebody else puts between others isn't covered by any; one before a rotation is.

    Two validations at the same moment before a rotation: the former key tells their lines apart.
    """
    lines = [*three()[:after], appended(three()[:after], "x", by="thief")[-1], *three()[after:]]
    found = check_lines(parsed(lines))
    assert found.startswith(f"line {after + 1} is signed by the unknown key")
    assert key("thief").public.id in found

    old = appended([], "a", by="old")
    forked = [*old, appended(old, "b", by="old")[-1], appended(old, "c", by="old")[-1]]
    rotated = appended(forked, "d")
    assert "a former key isn't given" in check_lines(parsed(rotated))
    assert check_lines(parsed(rotated, "mine", "old")) == ""


def test_check_lines_at_once() -> None:
    """Two validations at the same moment may follow one line; the next one follows either."""
    two = [*appended(three(), "d"), appended(three(), "e")[-1]]

    assert check_lines(parsed(two)) == ""
    assert check_lines(parsed(appended(two, "f"))) == ""
    about = Statement("witness", "a moment later", "id", "flights")
    begun = next_statement([], {"receipt": "a"}, about)
    assert begun is not None
    both = [three()[0], key("mine").sign(begun).to_bytes()]
    assert check_lines(parsed(both)) == ""
    assert check_lines(parsed(appended(both, "b"))) == ""


def test_lines_about() -> None:
    """Lines of other archives don't count, except those of the same pipeline."""
    lines = appended(three(), "x", archive_id="other", pipeline="orders")
    lines = appended(lines, "d")
    lines += appended([], "y", archive_id="third", pipeline="flights")

    assert [line.number for line in lines_about(parsed(lines), "id", "flights")] == [1, 2, 3, 5, 6]
    assert check_lines(lines_about(parsed(lines[:-1]), "id", "flights")) == ""
    assert check_lines(lines_about(parsed(lines[:-1]), "other", "orders")) == ""


def test_parse_lines_other_statements() -> None:
    """Signed statements of other kinds aren't lines; the lines after them are."""
    other = key("mine").sign(Statement("drill", "now")).to_bytes()
    found = parsed([other, *three(), *appended([], "x", by="thief")])

    assert [line.number for line in found] == [2, 3, 4, 5]
    assert [line.is_signed for line in found] == [True, True, True, False]
    assert [line.key_id for line in found[2:]] == [key("mine").public.id, key("thief").public.id]
