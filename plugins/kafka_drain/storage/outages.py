"""Telling object store errors from damaged bytes, without importing any store's package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_drain.errors import StoreUnavailableError

#: Packages that stores are accessed with; they raise their own exceptions.
_CLIENTS = {
    *("aiobotocore", "aiohttp", "asyncio", "azure", "botocore"),
    *("fsspec", "gcsfs", "google", "requests", "s3fs"),
}


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
        raise StoreUnavailableError(
            f"{path} can't be read from its store: {type(error).__name__}: {error}; check that "
            "the store is running, and that the credentials allow reading"
        ) from error


def _is_outage(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] in _CLIENTS:
        return True
    if isinstance(error, (ConnectionError, PermissionError, TimeoutError)):
        return True
    # pyarrow's errors for bytes of the wrong format have no errno.
    return isinstance(error, OSError) and error.errno is not None
