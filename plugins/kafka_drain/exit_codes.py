"""The exit codes of `kafka-drain`."""

from __future__ import annotations

__all__ = ["FAILED", "INTERRUPTED", "OK", "USAGE"]

OK, FAILED, USAGE = 0, 1, 2
#: As shells have it for SIGINT.
INTERRUPTED = 130
