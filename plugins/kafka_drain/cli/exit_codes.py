"""The exit codes of `kafka-drain`."""

from __future__ import annotations

OK, FAILED, USAGE = 0, 1, 2
#: The conventional exit codes of shells for SIGHUP, SIGINT and SIGTERM.
HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143

#: The meaning of each, for `--help` and the reference.
MEANINGS = {
    OK: "done, and everything that was validated is complete",
    FAILED: "failed, or validation has findings",
    USAGE: "wrong usage, configuration or folder",
    HUNG_UP: "its terminal was closed",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated",
}
