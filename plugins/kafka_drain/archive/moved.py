"""Detection of moved archives: the manifest holds absolute paths."""

from __future__ import annotations

import os

from kafka_drain.archive.generation_state import GenerationState
from kafka_drain.storage.paths import is_local


def moved_from(state: GenerationState) -> str:
    """Return the folder in the manifest's paths; empty if the archive is still there."""
    root = state.generation.root
    for written in sorted(state.manifest.roots):
        if is_local(root):
            path = "/" + written.removeprefix("file:").lstrip("/")
            if os.path.realpath(path) != os.path.realpath(str(root)):
                return path
        # Hadoop uses s3a for s3.
        elif written.partition("://")[2] != str(root).partition("://")[2].rstrip("/"):
            return written
    return ""
