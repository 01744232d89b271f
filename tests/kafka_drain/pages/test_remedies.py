"""What a red page says: the sentence and the command that mends it."""

from __future__ import annotations

import re
import shlex

import pytest

from kafka_drain.cli.main import parser
from kafka_drain.findings import Reason
from kafka_drain.pages.archive_status import LastRun, archive_status
from kafka_drain.pages.remedies import remedies, standing_remedy, with_archive

ARCHIVE = "/data/flights of today"


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_remedies_each_reason(reason: Reason) -> None:
    """Each reason has its own sentence, and its commands can be pasted: they name the archive."""
    [one] = remedies({reason.value: 3}, ARCHIVE)

    assert (one.number, one.meaning) == (3, reason.meaning)
    assert one.is_error is (reason.severity == "error")
    for command in re.findall(r"`kafka-drain ([^`]*)`", one.what_to_do):
        words = shlex.split(command)
        if words[0] in ("repair", "roll", "reprocess", "validate"):
            assert words[1] == ARCHIVE
            if words[-1] != "--acknowledge-expired":
                parser().parse_args(words)


def test_remedies_order() -> None:
    """What makes an archive incomplete comes first; a reason of a newer release is told too."""
    found = remedies({"file_orphan": 1, "of_tomorrow": 2, "file_missing": 3}, "/a")

    assert [one.code for one in found] == ["of_tomorrow", "file_missing", "file_orphan"]
    assert found[0].meaning == "unknown to this release"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `kafka-drain roll`", "run `kafka-drain roll /a`"),
        ("`kafka-drain repair --deep --apply`!", "`kafka-drain repair /a --deep --apply`!"),
        ("`kafka-drain files` and `repair`", "`kafka-drain files` and `repair`"),
    ],
)
def test_with_archive(text: str, expected: str) -> None:
    """Only commands that work on an archive get one."""
    assert with_archive(text, "/a") == expected


def test_with_archive_of_a_hostile_name() -> None:
    """A path can't end the command, or start another one."""
    assert with_archive("`kafka-drain roll`", "/a; rm b") == "`kafka-drain roll '/a; rm b'`"
    assert "ARCHIVE" in with_archive("`kafka-drain roll`", "/a`b")


def test_standing_remedy() -> None:
    """Each status that isn't good and has no findings says what to do."""
    for readable in (True, False):
        for verdict in (None, "complete", "findings"):
            for last in LastRun:
                for older in (True, False):
                    status = archive_status(
                        is_readable=readable,
                        verdict=verdict,
                        last=last,
                        is_older=older,
                        expires_soon=False,
                        has_unknown=False,
                    )
                    told = standing_remedy(status.words, "/a")
                    assert bool(told) is (status.words not in ("findings", "complete"))
