"""Which errors of a store's package mean that it doesn't answer now, and which are its answer."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import StoreUnavailableError
from kafka_drain.storage.outages import (
    asks_for_later,
    is_later,
    is_momentary,
    may_pass,
    naming_outages,
    naming_silence,
)
from tests.tables import each_of

PLACE = UPath("memory://bucket/a.json")


def of(package: str, name: str = "HttpError", **more: Any) -> Exception:
    """Return an exception of a package."""
    made = type(name, (Exception,), {"__module__": f"{package}.errors", **more})
    error: Exception = made("no answer")
    return error


def translated(status: int, code: str = "") -> OSError:
    """Return what s3fs makes of an answer that it doesn't know."""
    error = OSError(errno.EIO, "an answer")
    error.__cause__ = of(
        "botocore",
        response={"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},
    )
    return error


def failed(number: int) -> OSError:
    """Return an error of the system."""
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    "error",
    [
        of("aiobotocore"),
        of("aiohttp", "ClientConnectorError"),
        of("asyncio", "InvalidStateError"),
        of("azure", "ServiceRequestError"),
        of("botocore", "EndpointConnectionError"),
        of("fsspec", "FSTimeoutError"),
        of("gcsfs"),
        of("google", "TransportError"),
        of("requests", "ProxyError"),
        of("s3fs"),
        of("azure", status_code=503),
        of("gcsfs", code=429),
        # Not a status: a text.
        of("azure", code="ServerBusy"),
        ConnectionResetError(),
        TimeoutError(),
        failed(errno.EREMOTEIO),
        failed(errno.EBUSY),
        failed(errno.ETIMEDOUT),
        translated(503),
        translated(400, "SlowDown"),
        translated(400, "SlowDownWrite"),
        translated(400, "ThrottlingException"),
    ],
    ids=repr,
)
def test_is_momentary(error: Exception) -> None:
    """What doesn't answer, or is busy, may answer later; a file system of this machine may not."""
    assert is_momentary(error)
    assert may_pass(PLACE, error)
    assert not may_pass(UPath("/archive/a.json"), error)
    for naming in (naming_silence, naming_outages):
        with pytest.raises(type(error)), naming(UPath("/archive/a.json")):
            raise error
    with pytest.raises(StoreUnavailableError, match=type(error).__name__), naming_silence(PLACE):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        of("botocore", "ClientError"),
        of("botocore", "ParamValidationError"),
        of("botocore", "NoCredentialsError"),
        of("botocore", "PartialCredentialsError"),
        of("botocore", "ProfileNotFound"),
        of("azure", status_code=403),
        of("gcsfs", code=404),
        of("pyarrow"),
        ValueError("no JSON"),
        failed(errno.EACCES),
        failed(errno.EIO),
        translated(403, "AccessDenied"),
        translated(501),
    ],
    ids=repr,
)
def test_is_momentary_answer(error: Exception) -> None:
    """An answer stays the same however often it is asked for."""
    assert not is_momentary(error)
    with pytest.raises(type(error)) as raised, naming_silence(PLACE):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (FileNotFoundError("none"), False),
        (of("botocore", "ClientError"), True),
        (PermissionError("no"), True),
        (ConnectionError("no"), True),
        (TimeoutError("no"), True),
        (failed(errno.EIO), True),
        # pyarrow's: it was read, and is damaged.
        (OSError("not a Parquet file"), False),
        (ValueError("no JSON"), False),
    ],
    ids=repr,
)
def test_naming_outages(error: Exception, is_outage: bool) -> None:
    """What a store doesn't give isn't damage of the file; that there is no file is an answer."""
    kind = StoreUnavailableError if is_outage else type(error)
    with pytest.raises(kind) as raised, naming_outages(PLACE):
        raise error

    assert isinstance(raised.value, StoreUnavailableError) is is_outage


@pytest.mark.parametrize("naming", [naming_outages, naming_silence])
@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("InvalidObjectState", "run `aws s3api restore-object`"),
        ("RequestTimeTooSkewed", "set this machine's clock"),
        ("ExpiredToken", "renew the credentials"),
    ],
)
def test_naming_refusals(code: str, remedy: str, naming: Any) -> None:
    """A refusal that no right of the login undoes isn't put down to its rights."""
    refused = PermissionError("no")
    refused.__cause__ = translated(403, code).__cause__

    with pytest.raises(StoreUnavailableError) as raised, naming(PLACE):
        raise refused

    assert remedy in str(raised.value)
    assert "allow reading" not in str(raised.value)


@each_of(
    "status, later",
    [
        *((status, True) for status in (408, 429, 500, 502, 503, 504)),
        *((status, False) for status in (200, 400, 403, 404, 501, 505, 507, 511)),
    ],
)
def test_is_later(status: int, later: bool) -> None:
    """Some of HTTP's statuses ask for a later attempt."""
    assert is_later(status) is later


@pytest.mark.parametrize("answer", [None, ValueError("none"), of("botocore", response="text")])
def test_asks_for_later_nothing(answer: BaseException | None) -> None:
    """What isn't an answer asks for nothing."""
    assert not asks_for_later(answer)
