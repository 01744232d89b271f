"""Look, while a job runs, whether its topics are still there: clients themselves wait for minutes.

A consumer or a producer can't tell a topic that was deleted from one that isn't known yet, so it
asks again until its own timeout, and reports only that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafka_drain.errors import KafkaDrainError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster

#: Time between two looks.
LOOK_SECONDS = 3.0
#: A look may take this part of the time, however long an answer takes.
SHARE = 0.05
#: Time between the first look that misses a topic and the one that confirms it: a broker that has
#: just started may not know all topics yet.
CONFIRM_SECONDS = 0.5


def vanished(meant: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what happened to topics that aren't what they were, with the ids.

    Args:
        meant: The topic ids at the beginning; empty where unknown.
        now: The ids of those that exist.
    """
    found = []
    for name, id in sorted(meant.items()):
        if name not in now:
            found.append(f"topic {name}{f' with id {id}' if id else ''} was deleted")
        elif id and now[name] != id:
            found.append(
                f"topic {name} was deleted, and another of that name was made: its id was {id}, "
                f"it is now {now[name]}"
            )
    return found


@dataclass(frozen=True)
class TopicWatch:
    """The topics of a job that runs.

    Attributes:
        cluster: Their cluster.
        meant: Their ids, as the job was planned with.
        what: What the job is and what follows, as text: ends the message.
    """

    cluster: KafkaCluster
    meant: Mapping[str, str]
    what: str

    def look(self) -> TopicError | None:
        """Return the error for topics that vanished; None while all are there.

        Raises:
            KafkaDrainError: When Kafka doesn't answer, or refuses to.
        """
        if not vanished(self.meant, self.cluster.ids_of(self.meant)):
            return None
        time.sleep(CONFIRM_SECONDS)
        gone = vanished(self.meant, self.cluster.ids_of(self.meant))
        return TopicError(f"{'; '.join(gone)} {self.what}") if gone else None

    def blame(self, error: KafkaDrainError) -> KafkaDrainError:
        """Return the error for topics that vanished if some did, and else the given one."""
        if isinstance(error, TopicError):
            return error
        # The job's own error says more than that Kafka doesn't answer either.
        with suppress(KafkaDrainError):
            return self.look() or error
        return error

    @contextmanager
    def ending(
        self, stop: Callable[[], object], unless: tuple[type[KafkaDrainError], ...] = ()
    ) -> Iterator[None]:
        """Watch within the context; end what runs in it as soon as a topic has vanished.

        Args:
            stop: Ends it, so that it raises an error; called from another thread.
            unless: Errors that are raised as they are.

        Raises:
            TopicError: Names the topics that vanished, whatever the error within the context was.
        """
        ended, gone = threading.Event(), list[TopicError]()

        def watch() -> None:
            pause = LOOK_SECONDS
            while not ended.wait(pause):
                began = time.monotonic()
                # Not to know isn't to miss: what runs handles outages itself.
                with suppress(KafkaDrainError):
                    gone.extend(filter(None, [self.look()]))
                if gone:
                    if not ended.is_set():
                        stop()
                    return
                pause = max(LOOK_SECONDS, (time.monotonic() - began) / SHARE)

        watching = threading.Thread(target=watch, name="topic-watch", daemon=True)
        watching.start()
        try:
            yield
        except KafkaDrainError as error:
            if isinstance(error, unless):
                raise
            blamed = gone[0] if gone else self.blame(error)
            if blamed is error:
                raise
            raise blamed from error
        finally:
            ended.set()
            watching.join()
