"""What archive.json may say about what was sealed."""

from __future__ import annotations

import hashlib

import pytest

from kafka_drain.archive.journal.identity import (
    identity_differs,
    ids_by_topic,
    note_of_settings,
)

LEVELS = ("read_committed", "read_uncommitted")
RETENTIONS = (None, "", "30 days")
SETTINGS = [(level, retention) for level in LEVELS for retention in RETENTIONS]


@pytest.mark.parametrize("said", SETTINGS)
@pytest.mark.parametrize("noted", [None, *SETTINGS])
def test_identity_differs_settings(
    noted: tuple[str, str | None] | None, said: tuple[str, str | None]
) -> None:
    """Settings are those that a drain has used, if the journal notes any."""
    documents = {"archive.json": "digest", **(note_of_settings(*noted) if noted else {})}

    found = identity_differs(*said, {}, documents, {})

    assert bool(found) == (noted is not None and noted != said)
    assert not found or (repr(said[0]) in found and repr(said[1]) in found)


def test_identity_differs_settings_changed() -> None:
    """All settings that drains have used are accepted."""
    documents = {**note_of_settings("read_committed", None), **note_of_settings(*SETTINGS[-1])}

    differs = [s for s in SETTINGS if identity_differs(*s, {}, documents, {})]

    assert differs == SETTINGS[1:-1]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("read_committed", None), '["read_committed",null]'),
        (("read_uncommitted", "30 Tage für alle"), '["read_uncommitted","30 Tage für alle"]'),
    ],
)
def test_note_of_settings(settings: tuple[str, str | None], text: str) -> None:
    """A note names the hash of the settings as JSON, in UTF-8 and without spaces.

    Journals in use hold it: a release that writes another one refuses their archives.
    """
    assert note_of_settings(*settings) == {
        f"settings/{hashlib.sha256(text.encode()).hexdigest()}": "accepted"
    }


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        ([], {}),
        ([({}, {"t": "1"})], {}),
        ([({"t": "1"}, {"t": "1"})], {"t": {"1"}}),
        ([({"t": "1"}, {})], {"t": {"1"}}),
        # Recreated; drained, not sealed yet.
        ([({"t": "1"}, {"t": "1"}), ({}, {"t": "2"})], {"t": {"1", "2"}}),
        ([({"t": "1"}, {"t": "1"}), ({"t": "2"}, {"t": "2"})], {"t": {"2"}}),
        # Drained by the closed generation only.
        ([({"t": "1", "u": "3"}, {}), ({"t": "2"}, {"t": "2"})], {"t": {"2"}, "u": {"3"}}),
    ],
)
def test_ids_by_topic(
    generations: list[tuple[dict[str, str], dict[str, str]]], expected: dict[str, set[str]]
) -> None:
    """The newest sealed id of a topic counts, and that of a generation opened since."""
    assert ids_by_topic(generations) == expected


@pytest.mark.parametrize(
    ("topics", "detail"),
    [
        ({"t": "1"}, ""),
        ({"t": "2"}, ""),
        ({"t": "2", "later": "9"}, ""),
        ({"t": "3"}, "says topic t has id '3', but it was sealed as '1' or '2'"),
        ({}, "says topic t has id None, but it was sealed as '1' or '2'"),
    ],
)
def test_identity_differs_topics(topics: dict[str, str], detail: str) -> None:
    """A sealed topic keeps an accepted id; others may be added."""
    assert identity_differs("read_committed", None, topics, {}, {"t": {"2", "1"}}) == detail
