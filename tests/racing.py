"""Leases that many try to take at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kafka_drain.errors import LockedError
from kafka_drain.storage.lease import Lease

__all__ = ["take_at_once"]


def take_at_once(takers: Sequence[Lease]) -> tuple[list[str], list[LockedError]]:
    """Let all acquire at once; return the winners' tokens and what the others were told."""
    start = threading.Barrier(len(takers))
    won: list[str] = []
    refused: list[LockedError] = []

    def take(lease: Lease) -> None:
        start.wait()
        try:
            lease.acquire()
            won.append(lease.token)
        except LockedError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(taker,)) for taker in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, refused
