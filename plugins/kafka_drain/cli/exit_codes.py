"""The exit codes of `kafka-drain`."""

from __future__ import annotations

__all__ = ["FAILED", "INTERRUPTED", "MEANINGS", "OK", "USAGE"]

OK, FAILED, USAGE = 0, 1, 2
#: As shells have it for SIGINT.
INTERRUPTED = 130

#: What each tells, for `--help` and the reference.
MEANINGS = {
    OK: "done, and what was validated is complete",
    FAILED: "failed, or validation has findings",
    USAGE: "usage, configuration or a wrong folder",
    INTERRUPTED: "interrupted",
}
