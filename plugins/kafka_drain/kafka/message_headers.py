"""Headers of a message, as the client returns them."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

# Python 3.11's direct call of a C method doesn't check whether it failed.
_headers_of = methodcaller("headers")

#: In the place of headers that no drain keeps: a name that isn't UTF-8 ends it.
_REFUSED = [{"key": "\ufffd", "value": None}]


def headers_of(message: Any) -> list[dict[str, Any]] | None:
    """Return a message's headers; a header that no drain keeps if the client can't read them."""
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):
        # Don't call again: confluent-kafka 2.16 would return a null pointer in a tuple.
        return _REFUSED
    return [{"key": name, "value": value} for name, value in headers] if headers else None


def header_bytes(message: Any) -> int:
    """Return the number of bytes of a message's headers."""
    headers = headers_of(message) or ()
    return sum(len(each["key"]) + len(each["value"] or b"") for each in headers)
