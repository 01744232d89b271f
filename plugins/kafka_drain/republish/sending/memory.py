"""Memory of the processes that send and verify: how it is allocated, and collected."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Environment of such a process. Threads of pyarrow and librdkafka come and go, and free memory
#: that other threads allocated. glibc's arenas (eight per core), its growing trim threshold and
#: pyarrow's own pool would retain another 40 MB per million records.
ALLOCATION = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: Number of new objects after which the collector runs; more than a batch of records creates.
OBJECTS = 200_000

_lock = threading.Lock()
_inside: list[tuple[int, int, int]] = []


@contextmanager
def little_garbage_collection() -> Iterator[None]:
    """Run the collector rarely: scanning batches of records for cycles costs up to a sixth.

    Several threads may be inside; the last one to leave restores the threshold.
    """
    with _lock:
        _inside.append(gc.get_threshold())
        gc.set_threshold(OBJECTS, *_inside[0][1:])
    try:
        yield
    finally:
        with _lock:
            first = _inside[0]
            _inside.pop()
            if not _inside:
                gc.set_threshold(*first)
