"""Which errors of which store's package say that a condition wasn't met."""

from __future__ import annotations

import pytest
from upath import UPath

from kafka_drain.storage.conditional_writes import is_refused, version_of
from kafka_drain.storage.schemes import HDFS, PACKAGES


class OfAzure(Exception):
    """As azure-core's HttpResponseError: the response's status."""

    def __init__(self, status_code: int) -> None:
        super().__init__(status_code)
        self.status_code = status_code


class OfGoogle(OSError):
    """As gcsfs' HttpError: the response's status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class OfAws(Exception):
    """As botocore's ClientError, which s3fs translates: S3's own code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def translated(cause: Exception) -> OSError:
    """As s3fs does it."""
    error = OSError("translated")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileExistsError("there"), True),
        (FileNotFoundError("gone"), False),
        (OfAzure(412), True),
        (OfAzure(409), True),
        (OfAzure(403), False),
        (OfGoogle(412), True),
        (OfGoogle(503), False),
        (translated(OfAws("PreconditionFailed")), True),
        (translated(OfAws("ConditionalRequestConflict")), True),
        (translated(OfAws("NoSuchKey")), True),
        (translated(OfAws("AccessDenied")), False),
        (translated(ValueError("not AWS's")), False),
        (OSError("timed out"), False),
    ],
)
def test_is_refused(error: Exception, expected: bool) -> None:
    """A condition that isn't met is no failure; anything else is one."""
    assert is_refused(error) is expected


def test_version_of_local_file(tmp_path: object) -> None:
    """A file of this machine has no version; a link creates it exclusively."""
    assert version_of(UPath(f"{tmp_path}")) is None


def test_schemes_all_known() -> None:
    """Each store has its conditions, but HDFS, whose lease is a chain of files."""
    from kafka_drain.storage import conditional_writes

    assert {*conditional_writes._STORES} == {*PACKAGES} - {HDFS}
