"""How the processes that send and verify get memory, and give it back."""

from __future__ import annotations

__all__ = ["ALLOCATION"]

#: Environment of such a process. Threads of pyarrow and librdkafka come and go, and free what
#: another one allocated: glibc's arenas (eight a core), its growing thresholds for giving memory
#: back, and pyarrow's own pool would keep 40 MB more for each million records.
ALLOCATION = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
