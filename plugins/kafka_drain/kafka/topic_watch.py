"""Look, while a job runs, whether Kafka and the job's topics are still there: clients wait longer.

A consumer or a producer can't tell a topic that was deleted from one that isn't known yet, so it
asks again until its own timeout, and reports only that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafka_drain.errors import KafkaDrainError, KafkaUnavailableError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.progress import duration_text

#: Time between two looks.
LOOK_SECONDS = 3.0
#: A look may take this part of the time, however long an answer takes.
SHARE = 0.05
#: Time between the first look that misses a topic and the one that confirms it: a broker that has
#: just started may not know all topics yet.
CONFIRM_SECONDS = 0.5
#: For how long Kafka may not answer, unless a job says otherwise.
AWAY_SECONDS = 120.0


def vanished(meant: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe topics that were deleted or recreated, with the ids.

    Args:
        meant: The topic ids at the beginning, also as an archive counts them; empty where unknown.
        now: The ids of those that exist.
    """
    found = []
    for name, id in sorted(meant.items()):
        if name not in now:
            found.append(f"topic {name}{f' with id {id}' if id else ''} was deleted")
        elif is_other_topic(id, now[name]):
            found.append(
                f"topic {name} was deleted, and another of that name was made: its id was {id}, "
                f"it is now {now[name]}"
            )
    return found


@dataclass(frozen=True)
class TopicWatch:
    """The topics of a job that runs.

    Attributes:
        meant: Their ids, as the job was planned with.
        what: The job and the consequence, as text: ends the message.
        away_seconds: For how long Kafka may not answer before what waits for it is ended.
    """

    cluster: KafkaCluster
    meant: Mapping[str, str]
    what: str
    away_seconds: float = AWAY_SECONDS

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

    def _away(self, seconds: float, error: KafkaDrainError) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"Kafka hasn't answered for {duration_text(seconds)}, so what waited for it was ended; "
            f"what was committed before stays, and a retry resumes after it. {error}"
        )

    def blame(self, error: KafkaDrainError) -> KafkaDrainError:
        """Return the error for topics that vanished if some did, and else the given one.

        If Kafka doesn't answer, that is said with it: it may be why.
        """
        if isinstance(error, (TopicError, KafkaUnavailableError)):
            return error
        if missed := self.cluster.look():
            return type(error)(f"{error}. Kafka doesn't answer now: {missed}")
        # The job's own error says more than that Kafka doesn't answer either.
        with suppress(KafkaDrainError):
            return self.look() or error
        return error

    @contextmanager
    def ending(
        self, stop: Callable[[], object], unless: tuple[type[KafkaDrainError], ...] = ()
    ) -> Iterator[None]:
        """Watch within the context; end the jobs in it when a topic has vanished, or Kafka has.

        Args:
            stop: Ends it, so that it raises an error; called from another thread.
            unless: Errors that are raised as they are.

        Raises:
            TopicError: Names the topics that vanished, whatever the error within the context was.
            KafkaUnavailableError: When Kafka hasn't answered for too long.
        """
        ended, gone = threading.Event(), list[KafkaDrainError]()

        def watch() -> None:
            pause = LOOK_SECONDS
            since: float | None = None
            while not ended.wait(pause):
                began = time.monotonic()
                missed = self.cluster.look()
                away = time.monotonic() - since if since is not None else 0.0
                if ended.is_set():
                    return
                if missed is None or away >= self.away_seconds:
                    try:
                        gone.extend(filter(None, [self.look()]))
                    except KafkaUnavailableError as error:
                        if missed is not None:
                            gone.append(self._away(away, error))
                    except KafkaDrainError:
                        # Not to know isn't to miss.
                        pass
                if missed is None:
                    since = None
                    pause = max(LOOK_SECONDS, (time.monotonic() - began) / SHARE)
                else:
                    # What runs handles an outage that isn't long itself. Counted from the first
                    # answer that was missed: this process may have been suspended before it.
                    pause, since = LOOK_SECONDS, since or time.monotonic()
                if gone:
                    if not ended.is_set():
                        stop()
                    return

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
