"""Lines of a file of keys or headers, one a line. Opens nothing."""

from __future__ import annotations

from kafka_drain.errors import ConfigError


def lines_of(text: str, where: str) -> list[tuple[str, str]]:
    """Return the lines of a text that aren't empty, each with its place.

    Args:
        where: The file that it is from.

    Raises:
        ConfigError: When it begins with a byte order mark, which an editor has put there.
    """
    if text.startswith("\ufeff"):
        raise ConfigError(
            f"{where} begins with a byte order mark, with which no record would be found; save it "
            "as UTF-8 without one, or write a key that begins so as hex:…"
        )
    # Only at line feeds: a key may contain any other separator that Unicode has.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return [(line, f"{where} line {number}") for number, line in enumerate(lines, 1) if line]
