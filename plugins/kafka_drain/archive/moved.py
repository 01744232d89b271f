"""Whether an archive lies where Spark wrote it: the manifest holds absolute paths."""

from __future__ import annotations

import os

from kafka_drain.archive.generation_state import GenerationState
from kafka_drain.storage.paths import is_local

__all__ = ["moved_from"]


def moved_from(state: GenerationState) -> str:
    """Return the folder that the manifest's paths name; empty when the archive still lies there."""
    root = state.generation.root
    for written in sorted(state.manifest.roots):
        if is_local(root):
            path = "/" + written.removeprefix("file:").lstrip("/")
            if os.path.realpath(path) != os.path.realpath(str(root)):
                return path
        # Hadoop says s3a where others say s3.
        elif written.partition("://")[2] != str(root).partition("://")[2].rstrip("/"):
            return written
    return ""
