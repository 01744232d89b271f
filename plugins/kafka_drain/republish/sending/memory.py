"""Memory of the processes that send and verify: how it is allocated, and collected."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Environment of such a process. Threads of pyarrow and librdkafka come and go, and free memory
#: that other threads allocated: glibc's arenas (eight per core), its growing thresholds and
#: pyarrow's own pool would retain another 40 MB per million records. A threshold that is set
#: doesn't grow, so that the one for mmap is set, too: with 128 KiB each fetched or read megabyte is
#: mapped and cleared page by page, a fifth of a republish's processor time.
ALLOCATION = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 20),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

#: More of it for processes of Python alone. Huge pages save most faults of what is mapped. NumPy,
#: which pyarrow loads, would start a thread for each core that waits for work by spinning.
PYTHON = {
    **ALLOCATION,
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "OPENBLAS_NUM_THREADS": "1",
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
