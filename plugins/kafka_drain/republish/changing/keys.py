"""The key of pseudonyms: read from a file, and held to a length."""

from __future__ import annotations

from pathlib import Path

from kafka_drain.errors import ConfigError

#: Lowest number of bytes: fewer could be guessed.
LEAST_BYTES = 16


def check_key(content: bytes, where: str) -> bytes:
    """Return a key without the line's end that editors leave behind it.

    Args:
        where: Its place, for the error message.

    Raises:
        ConfigError: When it is too short.
    """
    key = content.rstrip(b"\r\n")
    if len(key) < LEAST_BYTES:
        raise ConfigError(
            f"the key in {where} has {len(key):,} bytes, expected at least {LEAST_BYTES}, so that "
            "nobody can try all keys; `openssl rand -hex 32` makes one"
        )
    return key


def read_key(path: str) -> bytes:
    """Read a key from a file.

    Raises:
        ConfigError: When it can't be read, or is too short.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"hash_key_file: the key can't be read from {path}: {error.strerror}"
        ) from error
    return check_key(content, path)
