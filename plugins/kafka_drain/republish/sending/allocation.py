"""Memory allocator settings of the processes that send and verify."""

from __future__ import annotations

#: Environment of such a process. Threads of pyarrow and librdkafka come and go, and free memory
#: that other threads allocated. glibc's arenas (eight per core), its growing trim threshold and
#: pyarrow's own pool would retain another 40 MB per million records.
ALLOCATION = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
