"""End a child process that would go on when this process has ended, however it did."""

from __future__ import annotations

import subprocess

#: Reads the end of the pipe that this process holds; then lets the child end, and kills it after
#: 15 seconds.
_WATCHER = (
    'read -r _; kill -TERM "$1" 2>/dev/null || exit 0; n=0; '
    'while [ $n -lt 15 ] && kill -0 "$1" 2>/dev/null; do sleep 1; n=$((n + 1)); done; '
    'kill -KILL "$1" 2>/dev/null'
)


class EndsWithParent:
    """Ends a child when this process ends, by SIGKILL too: a process of its own holds a pipe.

    Args:
        process_id: The child.
    """

    def __init__(self, process_id: int) -> None:
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "kafka-drain-watcher", str(process_id)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Not ended by what ends this process's group, such as Ctrl-C.
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Leave the child alone from now on: it has ended, or is to go on."""
        self._watcher.kill()
        self._watcher.communicate()
