"""What HDFS's answers mean."""

from __future__ import annotations

import json

import pytest

from kafka_drain.storage.webhdfs import (
    HdfsAnswer,
    Meaning,
    is_refused_rename,
    meaning_of,
    pause_after,
)
from tests.tables import each_of


def remote(exception: str, message: object = "why\n\tat java\n\tat java") -> bytes:
    said = {"exception": exception, "javaClassName": f"org.{exception}", "message": message}
    return json.dumps({"RemoteException": said}).encode()


@each_of(
    "status, content, meaning",
    [
        (200, b"", Meaning.DONE),
        (201, remote("StandbyException"), Meaning.DONE),
        (299, b"", Meaning.DONE),
        (300, b"", Meaning.ELSEWHERE),
        (307, b"", Meaning.ELSEWHERE),
        (399, b"", Meaning.ELSEWHERE),
        (403, remote("StandbyException"), Meaning.STANDBY),
        (403, remote("ObserverRetryOnActiveException"), Meaning.STANDBY),
        (404, remote("FileNotFoundException"), Meaning.MISSING),
        (403, remote("FileAlreadyExistsException"), Meaning.EXISTS),
        (403, remote("AccessControlException"), Meaning.DENIED),
        (401, remote("SecurityException"), Meaning.DENIED),
        (401, remote("AuthenticationException"), Meaning.DENIED),
        (403, remote("SafeModeException"), Meaning.SAFE_MODE),
        (403, remote("RetriableException", "Name node is in safe mode."), Meaning.SAFE_MODE),
        (403, remote("RetriableException", "Namenode is in startup mode"), Meaning.STANDBY),
        (403, remote("NSQuotaExceededException"), Meaning.FULL),
        (403, remote("DSQuotaExceededException"), Meaning.FULL),
        (403, remote("QuotaByStorageTypeExceededException"), Meaning.FULL),
        (403, remote("BlockMissingException"), Meaning.NO_DATANODE),
        (403, remote("IOException", "Failed to find datanode, suggest"), Meaning.NO_DATANODE),
        (
            403,
            remote("IOException", "File /a could only be written to 0 of the 1 minReplication"),
            Meaning.NO_DATANODE,
        ),
        (403, remote("IOException", "Could not obtain block: B"), Meaning.NO_DATANODE),
        (403, remote("IOException"), Meaning.FAILED),
        (403, remote("IOException", None), Meaning.FAILED),
        (500, b"<html>", Meaning.FAILED),
        (401, b"<html>", Meaning.DENIED),
        (400, b"[]", Meaning.FAILED),
        (400, b'{"RemoteException": 1}', Meaning.FAILED),
        (400, b'{"RemoteException": {}}', Meaning.FAILED),
        (400, b'{"RemoteException": []}', Meaning.FAILED),
    ],
)
def test_meaning_of(status: int, content: bytes, meaning: Meaning) -> None:
    """Java's exception decides, then its message; without one, HTTP's status."""
    assert meaning_of(status, content).meaning is meaning


def test_meaning_of_says() -> None:
    """The server's own words are kept, without Java's stack trace."""
    assert meaning_of(200, b"") == HdfsAnswer(Meaning.DONE)
    assert meaning_of(403, remote("IOException")).said == "IOException: why"
    assert meaning_of(403, remote("IOException", None)).said == "IOException"
    assert meaning_of(503, b"no") == HdfsAnswer(Meaning.FAILED, "HTTP 503")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"boolean":false}', True),
        (b'{ "boolean": false }', True),
        (b'{"boolean":true}', False),
        (b"", False),
    ],
)
def test_is_refused_rename(content: bytes, expected: bool) -> None:
    """The newer rename answers nothing; the older one says whether it was done."""
    assert is_refused_rename(content) is expected


@pytest.mark.parametrize(
    ("is_in_standby", "pauses"),
    [(False, [0.5, 1.0, 2.0, None, None]), (True, [0.5, 1.0, 2.0, 4.0, 8.0, None, None])],
)
def test_pause_after(is_in_standby: bool, pauses: list[float | None]) -> None:
    """Longer while one NameNode takes over from another, but not for ever."""
    rounds = range(1, len(pauses) + 1)

    assert [pause_after(n, is_in_standby=is_in_standby) for n in rounds] == pauses
