"""The page of restores: never better than what was verified."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timezone
from html import unescape
from itertools import product
from typing import Any

import pytest

from kafka_drain.cli.main import parser
from kafka_drain.pages.humanize import size_text
from kafka_drain.pages.overview import Doing
from kafka_drain.pages.restores import (
    ArchiveRestores,
    Restore,
    TopicSent,
    restore_state,
    restores_page,
)
from tests.kafka_drain.archive.test_status import EVIL, Words
from tests.tables import each_of

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
LINKS = {"home": "", "archives": "/archives"}
RUNNING = Doing("republish_orders", "republish", "running", "/run", {})


def expected(
    has_receipt: bool, is_exact: bool | None, lost: int, gone: bool, opened: bool, running: bool
) -> tuple[str, str]:
    """The state as the documentation has it."""
    match (has_receipt, is_exact, bool(lost)):
        case (True, None, _):
            return "sent, not verified", "warning"
        case (True, True, _):
            return "verified, exact", "good"
        case (True, False, True):
            return "records lost", "bad"
        case (True, False, False):
            return "all there, but not exact", "warning"
    match (gone, opened, running):
        case (True, True, _):
            return "abandoned", "warning"
        case (True, False, _):
            return "abandoned", "quiet"
        case (False, True, True):
            return "sending", "quiet"
        case (False, False, True):
            return "planned", "quiet"
        case (False, True, False):
            return "started, not verified", "warning"
    return "planned, nothing sent", "quiet"


ALL = list(
    product((True, False), (None, True, False), (0, 3), (True, False), (True, False), (True, False))
)


@each_of("case", ALL)
def test_restore_state(case: tuple[bool, bool | None, int, bool, bool, bool]) -> None:
    """Each combination has one state, and only a verified run is good."""
    receipt, exact, lost, gone, opened, running = case

    state = restore_state(
        has_receipt=receipt,
        is_exact=exact,
        lost=lost,
        is_abandoned=gone,
        is_opened=opened,
        is_running=running,
    )

    assert (state.words, state.kind) == expected(*case)
    assert (state.kind == "good") is (receipt and exact is True)


def restore(run: str, **changes: object) -> Restore:
    values = {
        "key": f"{run}-0123",
        "started_at": f"2026-11-24T{len(run):02d}:00:00+00:00",
        "records": 1234,
        "size": 5_000_000,
        "topics": [TopicSent("orders", "orders_restored", 3, 1234)],
        "cluster_id": "cluster",
        "delivery": "exactly_once",
        "how": "engine worker",
    }
    return Restore(run, **(values | changes))  # type: ignore[arg-type]


def owner(*restores: Restore, **changes: object) -> ArchiveRestores:
    values = {"name": "orders", "page": "/p/orders", "archive": "/data/or ders"}
    return ArchiveRestores(**(values | {"restores": restores} | changes))  # type: ignore[arg-type]


def test_restores_page() -> None:
    """A row for each restore: what needs attention first, then the newest."""
    done = {"has_receipt": True, "seconds": 3.0, "verified": "1,234 records compared"}
    page = restores_page(
        [
            owner(
                restore("a", **done, is_exact=True),
                restore("bb", is_opened=True),
                restore("ccc", **done, is_exact=False, lost=2),
                restore("dddd", **done, is_exact=True),
            )
        ],
        NOW,
        LINKS,
    )

    heads, *rows = Words(page).rows
    assert [row[1] for row in rows] == ["ccc", "bb", "dddd", "a"]
    assert all(len(row) == len(heads) for row in rows)
    assert rows[0][2].startswith("records lost")
    assert rows[2][2:8] == [
        *("verified, exact", "orders_restored", "1,234"),
        *("2026-11-24 04:00:00 UTC", "3 s", "exactly once"),
    ]
    assert "orders &#8594; orders_restored: 1,234 records of 3 partitions" in page
    assert "2 of 4 restores needing attention" in page
    assert "kafka-drain republish &#39;/data/or ders&#39; --abandon bb-0123 --apply" in page
    assert 'content="30"' in page


def test_restores_page_targets_and_size() -> None:
    """The first of many targets are named, the others counted; a size is shown if known."""
    topics = [TopicSent(f"t{n}", f"copy{n}", 1, 1) for n in range(5)]
    plain = {"has_receipt": True, "is_exact": True}
    page = restores_page(
        [
            owner(
                restore("a", **plain, topics=topics, size=5_000_000),
                restore("bb", **plain, topics=topics[:3], size=None),
            )
        ],
        NOW,
        LINKS,
    )

    _, *rows = Words(page).rows
    assert [row[3] for row in rows] == ["copy0, copy1, copy2", "copy0, copy1, copy2 and 2 more"]
    assert "2 restores" in page
    assert page.count(size_text(5_000_000)) == 1
    # All of them, with their records.
    assert "t4 &#8594; copy4: 1 record" in page


def test_restores_page_name_without_settings() -> None:
    """Of a name that ends in the run's settings, only the part before them is read."""
    named = restore('orders to back {"engine": "auto"}', key="orders-to-back-0123")
    page = restores_page([owner(named)], NOW, LINKS)

    assert '">orders to back</td>' in page
    assert page.count("&#34;engine&#34;") == 1


def test_restores_page_running() -> None:
    """A running task works on the newest run that isn't finished, and is shown."""
    page = restores_page(
        [owner(restore("a", is_opened=True), restore("bb", is_opened=True), doing=[RUNNING])],
        NOW,
        LINKS,
    )

    _, *rows = Words(page).rows
    assert [(row[1], row[2].split("No task")[0]) for row in rows] == [
        ("a", "started, not verified"),
        ("bb", "sending"),
    ]
    assert "republish_orders, republish</a>: running" in page
    assert 'content="3"' in page


def test_restores_page_running_tasks() -> None:
    """As many of the newest unfinished runs are running as tasks are, as of mapped tasks."""
    ended = Doing("elt", "send", "failed", "/run", {})
    runs = [restore(name, is_opened=True) for name in ("a", "bb", "ccc")]
    page = restores_page([owner(*runs, doing=[RUNNING, ended, RUNNING])], NOW, LINKS)

    _, *rows = Words(page).rows
    assert [(row[1], row[2].split("No task")[0]) for row in rows] == [
        ("a", "started, not verified"),
        ("ccc", "sending"),
        ("bb", "sending"),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"has_receipt": True, "is_exact": False, "lost": 2}, "records lost"),
        ({"has_receipt": True, "is_exact": False}, "all there, but not exact"),
        ({"has_receipt": True}, "sent, not verified"),
        ({"is_opened": True}, "started, not verified"),
        ({"is_opened": True, "is_abandoned": True}, "abandoned"),
    ],
)
def test_restores_page_says_what_to_do(changes: dict[str, Any], words: str) -> None:
    """Each restore that needs attention says what to do; its commands can be pasted."""
    page = restores_page([owner(restore("a", **changes))], NOW, LINKS)

    assert f"{words}</span><div" in page
    said = unescape(page.split('<div class="quiet why">')[1].split("</div>")[0])
    assert len(said) > 40
    for command in re.findall("<code>kafka-drain ([^<]*)</code>", said):
        assert parser().parse_args(shlex.split(command)).archive == "/data/or ders"
    assert ("--abandon" in said) is (words == "started, not verified")
    # No document tells a run that was stopped from one whose verification found records lost.
    assert ("VerifyError" in said) is (words == "started, not verified")


def test_restores_page_unreadable() -> None:
    """A run whose document was changed has no numbers that could be taken for its own."""
    _, row = Words(restores_page([owner(restore("a", problem="was changed"))], NOW, LINKS)).rows

    assert row[2] == "unreadablewas changed"
    assert (row[4], row[8]) == ("", "")


@pytest.mark.parametrize(
    ("archives", "words", "kind"),
    [
        ([], "Nothing has been restored yet", "verdict waiting"),
        ([owner(problem="no way in")], "the restores of 1 archive can&#39;t be read", "findings"),
        ([owner(restore("a", has_receipt=True, is_exact=True))], "1 of them verified", "verdict"),
        ([owner(restore("a", problem="changed"))], "1 of 1 restore needing", "verdict findings"),
        (
            [owner(restore("a", has_receipt=True, is_exact=True), restore("b"))],
            "2 restores, 1 of them verified",
            "verdict waiting",
        ),
        (
            [owner(restore("a", problem="changed")), owner(problem="no way in")],
            "1 of 1 restore needing attention; the restores of 1 archive can&#39;t be read",
            "verdict findings",
        ),
    ],
)
def test_restores_page_headline(archives: list[ArchiveRestores], words: str, kind: str) -> None:
    """The headline is green only if all restores were verified."""
    page = restores_page(archives, NOW, LINKS)

    assert words in page
    assert f'{kind}">' in page


def test_restores_page_escapes() -> None:
    """Names of runs, topics, clusters and problems are text, whatever they contain."""
    topics = [TopicSent(EVIL, EVIL, 1, 1)] * 30
    odd = restore(EVIL, key=EVIL, topics=topics, cluster_id=EVIL, how=EVIL, verified=EVIL)
    sent = restore(EVIL, key=EVIL, is_opened=True, delivery=EVIL, started_at=EVIL)
    broken = restore(EVIL, problem=EVIL)
    archives = [
        ArchiveRestores(EVIL, EVIL, EVIL, [odd, sent, broken], 7, doing=[RUNNING]),
        ArchiveRestores(EVIL, EVIL, EVIL, problem=EVIL),
    ]

    page = restores_page(archives, NOW, {"home": EVIL, "archives": EVIL})

    assert page.count("<script>") == 1
    assert not Words(page).names & {"img", "onload"}
    assert "7 older restores" in page
