"""Report outages of the servers that a command needs.

Clients of Kafka and Spark wait for minutes without a word. Beside them, a watch asks each server
every few seconds, says when it stops answering and when it answers again, and can end the wait.
Stores aren't asked, which would cost: requests to them that take long are said.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from kafka_drain.errors import KafkaDrainError, StoreUnavailableError
from kafka_drain.output import OutageLine
from kafka_drain.progress import STORE_REQUESTS, duration_text

#: Time between two looks.
LOOK_SECONDS = 4.0
#: Time that a look has to end when it isn't needed any more. What it calls may never return.
END_SECONDS = 15.0
#: Time between two lines about one outage.
REPEAT_SECONDS = 60.0
#: Time after which a request to a store takes long.
SLOW_SECONDS = 8.0

#: Returns why a server doesn't answer; None if it does.
Look = Callable[[], "KafkaDrainError | None"]


@dataclass
class Outages:
    """Outages of a server that is asked again and again.

    Attributes:
        over: What it does when the outage is over.
        since: When it was first missed, in seconds of the clock; None while it answers.
        said: When that was last said.
    """

    name: str
    over: str = field(default="answers again", kw_only=True)
    since: float | None = field(default=None, init=False)
    said: float = field(default=float("-inf"), init=False)

    def lasts(self, now: float) -> float:
        """Return the duration of the outage, in seconds; 0 while the server answers."""
        return 0.0 if self.since is None else now - self.since

    def news(self, now: float, missed: KafkaDrainError | None) -> OutageLine | None:
        """Return the line to log after a look; None for nothing new.

        Args:
            now: When the look began.
            missed: The look's error; None if the server answered.
        """
        if missed is None:
            since, self.since, self.said = self.since, None, float("-inf")
            if since is None:
                return None
            again = f"{self.name} {self.over}, after {duration_text(now - since)}"
            return OutageLine(again, is_over=True)
        self.since = now if self.since is None else self.since
        if now - self.said < REPEAT_SECONDS:
            return None
        self.said = now
        waited = now - self.since
        still = f"still waiting after {duration_text(waited)}" if waited else "waiting"
        return OutageLine(f"{still}: {missed}", is_over=False)


@dataclass
class _Watched(Outages):
    """A server that is watched.

    Attributes:
        look: Asks it.
        after: For how long it may be missed, in seconds.
        end: Called once when it was missed for longer, with what the last look returned.
    """

    look: Look
    after: float = float("inf")
    end: Callable[[KafkaDrainError], object] = lambda _: None


class ServerWatch:
    """Watches servers in a thread of its own, from the first one that is added until it is closed.

    Args:
        say: Takes lines; called in that thread.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._watched: list[_Watched] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(
        self,
        name: str,
        look: Look,
        *,
        after: float = float("inf"),
        end: Callable[[KafkaDrainError], object] = lambda _: None,
        over: str = "answers again",
    ) -> None:
        """Watch a server, unless one of this name is watched.

        Args:
            name: Its name and address.
            look: Returns why it doesn't answer; None if it does. It should take seconds at most.
            after: For how long it may not answer, in seconds.
            end: Called once when it hasn't for longer, with the last error; ends what waits for it.
            over: What it does when the outage is over.
        """
        if any(watched.name == name for watched in self._watched):
            return
        self._watched.append(_Watched(name, look, after=after, end=end, over=over))
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="outages", daemon=True)
            self._thread.start()

    def hush(self) -> None:
        """Say nothing any more."""
        self._closed.set()

    def close(self) -> None:
        """Say nothing any more, and wait for the end of a look that has begun: seconds at most.

        A client that is in use while the process ends may crash it.
        """
        self.hush()
        if self._thread is not None:
            # How the command ended is decided.
            with suppress(KeyboardInterrupt):
                self._thread.join(END_SECONDS)

    def _keep(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            for watched in list(self._watched):
                now = time.monotonic()
                missed = watched.look()
                line = watched.news(now, missed)
                if self._closed.is_set():
                    return
                if line is not None:
                    self._say(line)
                if missed is not None and watched.lasts(now) >= watched.after:
                    self._watched.remove(watched)
                    watched.end(missed)


def slow_requests() -> Look:
    """Return a look at this process's requests to stores: it says for how long one has taken."""
    begun: dict[object, float] = {}

    def look() -> KafkaDrainError | None:
        nonlocal begun
        # Not imported: who hasn't loaded it asks no object store.
        now, asyn = time.monotonic(), sys.modules.get("fsspec.asyn")
        loop = asyn.loop[0] if asyn is not None else None
        tasks = asyn.asyncio.all_tasks(loop) if asyn is not None and loop is not None else ()
        # Each request that a thread waits for, with its retries.
        asked = [t for t in tasks if getattr(t.get_coro(), "__name__", "") == "_runner"]
        begun = {task: begun.get(task, now) for task in asked}
        took = now - min([*begun.values(), *STORE_REQUESTS.values()], default=now)
        if took < SLOW_SECONDS:
            return None
        return StoreUnavailableError(
            f"a request to a store has taken {duration_text(took)} so far: unless it lists many "
            "files or moves a large one, check the store's address, and that it is running"
        )

    return look


_WATCH: ContextVar[ServerWatch | None] = ContextVar("watch", default=None)


@contextmanager
def told_of_outages(say: Callable[[str], object]) -> Iterator[None]:
    """Say within the context when a server that `watch` named, or a store, stops answering.

    Args:
        say: Takes lines; called in another thread.
    """
    opened = ServerWatch(say)
    opened.add("the request to a store", slow_requests(), over="has ended")
    token = _WATCH.set(opened)
    try:
        yield
    finally:
        _WATCH.reset(token)
        opened.close()


def watch(name: str, look: Look) -> None:
    """Let the context that `told_of_outages` made watch a server; nothing without one."""
    opened = _WATCH.get()
    if opened is not None:
        opened.add(name, look)


def hush() -> None:
    """Let the context that `told_of_outages` made say nothing any more; nothing without one."""
    opened = _WATCH.get()
    if opened is not None:
        opened.hush()
