"""What archive.json may say about what was sealed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kafka_drain.archive.journal.identity import (
    generation_differs,
    identity_differs,
    ids_by_topic,
    note_of_settings,
)
from kafka_drain.archive.receipts import FileSet, Receipt, SealedPartition
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.tables import each_of

LEVELS = ("read_committed", "read_uncommitted")
RETENTIONS = (None, "", "30 days")
SETTINGS = [(level, retention) for level in LEVELS for retention in RETENTIONS]


@each_of("said", SETTINGS)
@each_of("noted", [None, *SETTINGS])
def test_identity_differs_settings(
    noted: tuple[str, str | None] | None, said: tuple[str, str | None]
) -> None:
    """Settings are those that a drain has used, if the journal notes any."""
    documents = {"archive.json": "digest", **(note_of_settings(*noted) if noted else {})}

    found = identity_differs((*said, None), {}, documents, {})

    assert bool(found) == (noted is not None and noted != said)
    assert not found or (repr(said[0]) in found and repr(said[1]) in found)


def test_identity_differs_settings_changed() -> None:
    """All settings that drains have used are accepted."""
    documents = {**note_of_settings("read_committed", None), **note_of_settings(*SETTINGS[-1])}

    differs = [s for s in SETTINGS if identity_differs((*s, None), {}, documents, {})]

    assert differs == SETTINGS[1:-1]


LOCKS = [
    None,
    {"mode": "governance", "days": 30},
    {"mode": "compliance", "days": 30},
    {"mode": "governance", "days": 31},
]


@pytest.mark.parametrize("said", LOCKS)
@pytest.mark.parametrize("noted", LOCKS)
def test_identity_differs_immutable(
    noted: dict[str, Any] | None, said: dict[str, Any] | None
) -> None:
    """An edit that takes the locks off new files, or makes them weaker, is found."""
    documents = note_of_settings("read_committed", None, noted)

    found = identity_differs(("read_committed", None, said), {}, documents, {})

    assert bool(found) == (noted != said)
    assert not found or found == (
        "says isolation_level 'read_committed' and retention None"
        + (f" and immutable {said!r}" if said else "")
        + ", which no drain has used"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            ("read_committed", None, {"mode": "governance", "days": 30, "later": 1}),
            '["read_committed",null,{"days":30,"mode":"governance"}]',
        ),
        (("read_committed", None), '["read_committed",null]'),
        (("read_uncommitted", "30 Tage für alle"), '["read_uncommitted","30 Tage für alle"]'),
    ],
)
def test_note_of_settings(settings: tuple[Any, ...], text: str) -> None:
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
    # The same if the first of them are known already.
    for at in range(len(generations) + 1):
        known = {topic: tuple(ids) for topic, ids in ids_by_topic(generations[:at]).items()}
        assert ids_by_topic(generations[at:], known) == expected


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
    assert identity_differs(("read_committed", None, None), topics, {}, {"t": {"2", "1"}}) == detail


def sealed(number: int = 2, **starts: int) -> Receipt:
    """A generation's receipt of topic t, whose partitions started at some offsets."""
    parts = tuple(
        SealedPartition.of(
            TopicPartition("t", int(name[1:])), OffsetRange(9_990, 9_999), 0,
            None, None, None, None, {}, None, start, 0, {},
        )
        for name, start in starts.items()
    )  # fmt: skip
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={"t": "1"},
        generation=number,
        first_batch=0,
        last_batch=0,
        sealed_at="",
        previous=None,
        partitions=parts,
        files=(),
        files_so_far=FileSet(),
    )


@pytest.mark.parametrize(
    ("number", "topics", "starts", "detail"),
    [
        (2, {"t": "1"}, (5, 7), ""),
        (None, {"t": "1"}, (5, 7), ""),
        (1, {"t": "1"}, (5, 7), "says generation 1, but its receipts say 2"),
        (2, None, (5, 7), ""),
        (2, {}, (5, 7), "says topic t has id None, but its receipts say '1'"),
        (2, {"t": "1", "later": "9"}, (5, 7), ""),
        (2, {"t": "3"}, (5, 7), "says topic t has id '3', but its receipts say '1'"),
        (2, {"t": "1"}, (), "starts t-0 at 0, but its receipts at 5"),
        (2, {"t": "1"}, (5,), "starts t-1 at 0, but its receipts at 7"),
        (2, {"t": "1"}, (5, 7, 9), ""),
        (2, {"t": "1"}, (1_000, 7), "starts t-0 at 1,000, but its receipts at 5"),
        (2, {"t": "1"}, (5, 6), "starts t-1 at 6, but its receipts at 7"),
        (2, {"t": "1"}, (5, 1_000), "starts t-1 at 1,000, but its receipts at 7"),
    ],
)
def test_generation_differs(
    number: int | None, topics: dict[str, str] | None, starts: tuple[int, ...], detail: str
) -> None:
    """What generation.json says is what was sealed; a partition that it doesn't say begins at 0."""
    said = {TopicPartition("t", partition): start for partition, start in enumerate(starts)}

    assert generation_differs(number, topics, said, sealed(p0=5, p1=7)) == detail


def test_generation_differs_long_start() -> None:
    """Offsets are told with thousands."""
    found = generation_differs(None, None, {TopicPartition("t", 0): 5}, sealed(p0=1_234))

    assert found == "starts t-0 at 5, but its receipts at 1,234"
