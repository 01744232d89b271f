"""Telling object store errors from damaged bytes, without importing any store's package."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_drain.errors import StoreUnavailableError

#: Packages that stores are accessed with; they raise their own exceptions.
_CLIENTS = {
    *("aiobotocore", "aiohttp", "asyncio", "azure", "botocore"),
    *("fsspec", "gcsfs", "google", "requests", "s3fs"),
}

#: What s3fs makes of a server's error (500), and of one that is busy (503) or saw a conflict.
_MOMENTARY = {errno.EREMOTEIO, errno.EBUSY, errno.ETIMEDOUT}
#: botocore's exceptions for an answer, and for what is wrong before anything is asked.
_NOT_SILENT = {
    *("ClientError", "ParamValidationError"),
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"),
}
#: HTTP's statuses below 500 with which a server asks for a later attempt, and those from 500 with
#: which it doesn't: it will never do it.
_LATER, _NEVER = (408, 429), (501, 505, 507, 511)
#: S3's codes for a refusal (403) that no right of the login undoes, and what does.
_REMEDIES = {
    "InvalidObjectState": "run `aws s3api restore-object`, and keep lifecycle rules off it",
    "RequestTimeTooSkewed": "set this machine's clock",
    "ExpiredToken": "renew the credentials, which have expired",
}
#: Parts of the codes with which S3 and the services that act like it ask for fewer requests.
_TOO_MANY = ("SlowDown", "Throttl")


def lies_in_store(path: object) -> bool:
    """Return whether a path is in an object store rather than on a file system."""
    # Only fsspec's paths have a protocol.
    return getattr(path, "protocol", "") not in ("", "file")


@contextmanager
def naming_outages(path: object) -> Iterator[None]:
    """Report a store's failure as an outage, not as an error of the requested file.

    Args:
        path: The path being read; errors of local paths pass unchanged.

    Raises:
        StoreUnavailableError: Replaces the store's own exception.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if not lies_in_store(path) or not _is_outage(error):
            raise
        seen = f"{path} can't be read from its store: {type(error).__name__}: {error}"
        remedy = "check that the store is running, and that the credentials allow reading"
        raise StoreUnavailableError(f"{seen}; {remedy_of(error) or remedy}") from error


@contextmanager
def naming_silence(path: object) -> Iterator[None]:
    """Report what a store's package raises when nothing answers, or says that it is busy.

    So are refusals that aren't for the login's rights.

    Args:
        path: The path being asked for; errors of local paths pass unchanged, as do other answers.

    Raises:
        StoreUnavailableError: Replaces the exception.
    """
    try:
        yield
    except Exception as error:
        if remedy := remedy_of(error):
            raise StoreUnavailableError(f"{path} can't be read: {error}; {remedy}") from error
        if not may_pass(path, error):
            raise
        raise StoreUnavailableError(
            f"{path}: its store doesn't answer, or is busy: {type(error).__name__}: {error}; check "
            "that it is running, and try again"
        ) from error


def may_pass(path: object, error: Exception) -> bool:
    """Return whether an error is of a path's store, which may do what was asked for later."""
    # A client of ours tells an outage from a refusal itself.
    is_told = getattr(path, "tells_outages", False)
    return lies_in_store(path) and not is_told and is_momentary(error)


def is_momentary(error: Exception) -> bool:
    """Return whether an object store didn't answer, or said that it may do so later."""
    if isinstance(error, OSError):
        is_silent = isinstance(error, (ConnectionError, TimeoutError))
        return is_silent or error.errno in _MOMENTARY or asks_for_later(error.__cause__)
    kind = type(error)
    if kind.__module__.partition(".")[0] not in _CLIENTS or kind.__name__ in _NOT_SILENT:
        return False
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return not isinstance(status, int) or is_later(status)


def asks_for_later(answer: BaseException | None) -> bool:
    """Return whether botocore's exception for an answer says that a later attempt may succeed.

    s3fs makes EIO of each code that it doesn't know, such as those of a proxy or of MinIO; then the
    exception is its cause.
    """
    said = getattr(answer, "response", None)
    if not isinstance(said, dict):
        return False
    status = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return is_later(status) or any(part in code_of(answer) for part in _TOO_MANY)


def code_of(answer: BaseException | None) -> str:
    """Return S3's code in botocore's exception for an answer; empty for others."""
    said = getattr(answer, "response", None)
    return str(said.get("Error", {}).get("Code", "")) if isinstance(said, dict) else ""


def remedy_of(error: BaseException) -> str:
    """Return what helps against a refusal that isn't for the login's rights; empty for others.

    s3fs makes a PermissionError of it, as of those.
    """
    return _REMEDIES.get(code_of(error.__cause__), "")


def is_later(status: int) -> bool:
    """Return whether HTTP's status of an answer says that a later attempt may succeed."""
    return status in _LATER or (status >= 500 and status not in _NEVER)


def _is_outage(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] in _CLIENTS:
        return True
    if isinstance(error, (ConnectionError, PermissionError, TimeoutError)):
        return True
    # pyarrow's errors for bytes of the wrong format have no errno.
    return isinstance(error, OSError) and error.errno is not None
