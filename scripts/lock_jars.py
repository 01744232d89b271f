"""Rewrite `jars.lock`: path, size and SHA-256 of each jar that Ivy retrieves for `ivy.xml`."""

from __future__ import annotations

import sys

from kafka_drain.errors import KafkaDrainError
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.jars import lock as jar_lock
from scripts import ivy

__all__ = ["main"]


def main() -> int:
    """Write the lock file and print the changes; return the exit status."""
    try:
        found = {conf: ivy.resolve(conf) for conf in jars.CONFS}
    except KafkaDrainError as error:
        print(f"lock-jars: {error}", file=sys.stderr)
        return 1
    text = jar_lock.format_lock(found)
    path = jar_lock.LOCK_FILE
    before = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
    path.write_text(text, encoding="utf-8")
    after = set(text.splitlines())
    for line in sorted(before ^ after, key=lambda line: line.split()[2:]):
        print("-" if line in before else "+", line)
    print(f"{path.name}: {len(after)} jars, {len(before ^ after)} lines changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
