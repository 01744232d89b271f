"""What the answers of HDFS's REST interface mean, and when to ask again. Opens nothing.

An error is a JSON document with the name of Java's exception (Hadoop's documentation, WebHDFS REST
API, "Error Responses").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum


class Meaning(Enum):
    """What a NameNode or a DataNode says."""

    #: It did what it was asked.
    DONE = "done"
    #: The content is at another address, or has to be sent there.
    ELSEWHERE = "elsewhere"
    #: It isn't the NameNode that is in charge.
    STANDBY = "standby"
    #: There is no such file or folder.
    MISSING = "missing"
    #: There is one already.
    EXISTS = "exists"
    #: This user may not.
    DENIED = "denied"
    #: The NameNode takes no writes now.
    SAFE_MODE = "safe mode"
    #: No DataNode has the content, or can take it.
    NO_DATANODE = "no DataNode"
    #: A quota is used up.
    FULL = "full"
    #: Something else.
    FAILED = "failed"


_BY_EXCEPTION = {
    "StandbyException": Meaning.STANDBY,
    "ObserverRetryOnActiveException": Meaning.STANDBY,
    "FileNotFoundException": Meaning.MISSING,
    "FileAlreadyExistsException": Meaning.EXISTS,
    "AccessControlException": Meaning.DENIED,
    "SecurityException": Meaning.DENIED,
    "AuthenticationException": Meaning.DENIED,
    "SafeModeException": Meaning.SAFE_MODE,
    "NSQuotaExceededException": Meaning.FULL,
    "DSQuotaExceededException": Meaning.FULL,
    "QuotaByStorageTypeExceededException": Meaning.FULL,
    "BlockMissingException": Meaning.NO_DATANODE,
}

#: What the message of a plain IOException contains, and of a RetriableException.
_BY_MESSAGE = {
    "Failed to find datanode": Meaning.NO_DATANODE,
    "could only be written to 0 of": Meaning.NO_DATANODE,
    "Could not obtain block": Meaning.NO_DATANODE,
    "in safe mode": Meaning.SAFE_MODE,
}

_UNAUTHORIZED = 401

#: Seconds to wait before all NameNodes are asked again: after none could be reached, and after one
#: said that it is in standby, because then another one is taking over.
_UNREACHED = (0.5, 1.0, 2.0)
_TAKING_OVER = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered.

    Attributes:
        meaning: In short.
        said: In the server's own words; empty if it did what it was asked.
    """

    meaning: Meaning
    said: str = ""


def meaning_of(status: int, content: bytes) -> Answer:
    """Return what a response means.

    Args:
        status: HTTP's.
        content: The beginning of its body, at least; not looked at if it isn't an error.
    """
    if status < 300:
        return Answer(Meaning.DONE)
    if status < 400:
        return Answer(Meaning.ELSEWHERE)
    name, message = _exception(content)
    if not name:
        denied = Meaning.DENIED if status == _UNAUTHORIZED else Meaning.FAILED
        return Answer(denied, f"HTTP {status}")
    meaning = _BY_EXCEPTION.get(name)
    if meaning is None:
        meaning = next((m for part, m in _BY_MESSAGE.items() if part in message), Meaning.FAILED)
    # Java's stack trace follows in some messages.
    first = message.partition("\n")[0]
    return Answer(meaning, f"{name}: {first}" if first else name)


def is_refused_rename(content: bytes) -> bool:
    """Return whether a rename that was answered without an error wasn't done.

    So answers a server that doesn't know the option of the newer rename, as HttpFS.
    """
    return content.replace(b" ", b"") == b'{"boolean":false}'


def pause_after(rounds: int, *, is_in_standby: bool) -> float | None:
    """Return the seconds to wait before all NameNodes are asked again; None to give up.

    Args:
        rounds: How often all were asked.
        is_in_standby: Whether one said that it is in standby, the last time.
    """
    pauses = _TAKING_OVER if is_in_standby else _UNREACHED
    return pauses[rounds - 1] if rounds <= len(pauses) else None


def _exception(content: bytes) -> tuple[str, str]:
    """Return name and message of Java's exception; empty if it is something else."""
    try:
        found = json.loads(content)["RemoteException"]
        return str(found["exception"]), str(found.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""
