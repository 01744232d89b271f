"""Errors of object stores, told from those of damaged bytes; imports no store's package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_drain.errors import StoreUnavailableError

__all__ = ["lies_in_store", "naming_outages"]

#: What stores are read with: these have errors of their own.
_CLIENTS = {
    *("aiobotocore", "aiohttp", "asyncio", "azure", "botocore"),
    *("fsspec", "gcsfs", "google", "s3fs"),
}


def lies_in_store(path: object) -> bool:
    """Whether a path is one of a store, and not of this machine's file systems."""
    # Only fsspec's paths have a protocol.
    return getattr(path, "protocol", "") not in ("", "file")


@contextmanager
def naming_outages(path: object) -> Iterator[None]:
    """Let what a store doesn't answer be no error of the file that was asked for.

    Args:
        path: What is read; of a path on this machine nothing is changed.

    Raises:
        StoreUnavailableError: In place of the store's own error.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if not lies_in_store(path) or not _is_outage(error):
            raise
        raise StoreUnavailableError(
            f"{path} can't be read of its store: {type(error).__name__}: {error}; check that the "
            "store runs, and that the credentials may read"
        ) from error


def _is_outage(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] in _CLIENTS:
        return True
    if isinstance(error, (ConnectionError, PermissionError, TimeoutError)):
        return True
    # pyarrow's, for bytes that aren't the format's, has no number.
    return isinstance(error, OSError) and error.errno is not None
