"""Requests to an HDFS over HTTP (WebHDFS), without Java.

A NameNode is asked for everything, and leads to the DataNode that has, or takes, a file's content:
this machine has to reach the HTTP addresses of both. A request that wasn't answered is repeated,
because none of them does harm when it is: the caller of a rename finds out what became of it.

An error is a JSON document with the name of Java's exception (Hadoop's documentation, WebHDFS REST
API, "Error Responses").

No text of `requests` is shown or passed on: it contains URLs, and those of DataNodes may contain a
token.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit

from kafka_drain.errors import MachineError, StoreUnavailableError
from kafka_drain.progress import STORE_REQUESTS

if TYPE_CHECKING:
    from requests import Response, Session


class Meaning(Enum):
    """The meaning of a NameNode's or a DataNode's answer."""

    #: The request was carried out.
    DONE = "done"
    #: The content is at another address, or has to be sent there.
    ELSEWHERE = "elsewhere"
    #: It isn't the NameNode that is in charge, or it is starting: another one may be.
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

#: Parts of the message of a plain IOException, and of a RetriableException.
_BY_MESSAGE = {
    "Failed to find datanode": Meaning.NO_DATANODE,
    "could only be written to 0 of": Meaning.NO_DATANODE,
    "Could not obtain block": Meaning.NO_DATANODE,
    "in safe mode": Meaning.SAFE_MODE,
    # Answered for as long as it loads its image.
    "Namenode is in startup mode": Meaning.STANDBY,
}

_UNAUTHORIZED = 401

#: Seconds to wait before all NameNodes are asked again: after none could be reached, and after one
#: said that it is in standby or starting, because then another one is taking over.
_UNREACHED = (0.5, 1.0, 2.0)
_TAKING_OVER = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class HdfsAnswer:
    """An answer.

    Attributes:
        meaning: In short.
        said: In the server's own words; empty if it did what it was asked.
    """

    meaning: Meaning
    said: str = ""


def meaning_of(status: int, content: bytes) -> HdfsAnswer:
    """Return the meaning of a response.

    Args:
        status: HTTP's.
        content: The beginning of its body, at least; not looked at if it isn't an error.
    """
    if status < 300:
        return HdfsAnswer(Meaning.DONE)
    if status < 400:
        return HdfsAnswer(Meaning.ELSEWHERE)
    name, message = _exception(content)
    if not name:
        denied = Meaning.DENIED if status == _UNAUTHORIZED else Meaning.FAILED
        return HdfsAnswer(denied, f"HTTP {status}")
    meaning = _BY_EXCEPTION.get(name)
    if meaning is None:
        meaning = next((m for part, m in _BY_MESSAGE.items() if part in message), Meaning.FAILED)
    # Java's stack trace follows in some messages.
    first = message.partition("\n")[0]
    return HdfsAnswer(meaning, f"{name}: {first}" if first else name)


def is_refused_rename(content: bytes) -> bool:
    """Return whether a rename that was answered without an error wasn't done.

    So answers a server that doesn't know the option of the newer rename, as HttpFS.
    """
    return content.replace(b" ", b"") == b'{"boolean":false}'


def pause_after(rounds: int, *, is_in_standby: bool) -> float | None:
    """Return the seconds to wait before all NameNodes are asked again; None to give up.

    Args:
        rounds: Number of rounds so far.
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


#: Seconds for a connection, and between two bytes of an answer.
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
#: Number of attempts to ask a DataNode, each time another one if there is.
_DATANODES = 3
#: Connections that are kept: as many as files are read at the same moment.
_CONNECTIONS = 64
#: Maximum size of an error in an answer, in bytes.
_ERROR_BYTES = 64 << 10

_REMEDIES = {
    Meaning.SAFE_MODE: (
        "the NameNode is in safe mode and takes no writes; nothing was changed. Try again when "
        "`hdfs dfsadmin -safemode get` says that it is off"
    ),
    Meaning.NO_DATANODE: "check that its DataNodes are running and have space, and try again",
}


class WebHdfs:
    """One HDFS.

    Args:
        name: Its name in messages: its URL.
        name_nodes: The URLs of its NameNodes, such as `http://host:9870`.
        user: Name of the user; empty with Kerberos, whose ticket says it.
        is_kerberized: Whether it wants a login with Kerberos.
        wait: Waits for a number of seconds.

    Raises:
        MachineError: When the package for Kerberos isn't installed.
    """

    def __init__(
        self,
        name: str,
        name_nodes: Sequence[str],
        user: str,
        *,
        is_kerberized: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._name = name
        self._name_nodes = list(name_nodes)
        self._who = {} if is_kerberized or not user else {"user.name": user}
        self._is_kerberized = is_kerberized
        self._wait = wait
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        if is_kerberized:
            _kerberos()

    def ask(self, method: str, operation: str, path: str, **parameters: object) -> Any:
        """Have the NameNode do something.

        Returns:
            Its answer, parsed; None if it has none.

        Raises:
            FileNotFoundError: When the path doesn't exist.
            FileExistsError: When it exists already.
            PermissionError: When this user may not.
            OSError: When it can't be done.
            StoreUnavailableError: When no NameNode answers, or not now.
        """
        answer, response = self._asked(method, operation, path, parameters)
        if answer.meaning is not Meaning.DONE:
            self._fail(answer, path)
        return response.json() if response.content else None

    def rename(self, path: str, to: str, *, overwrite: bool) -> None:
        """Rename a file in one step; the NameNode lets one of many do it.

        Raises:
            FileExistsError: When there is a file of that name, and it isn't to be overwritten.
            FileNotFoundError: When the file doesn't exist (any more).
            OSError: As `ask` does.
            StoreUnavailableError: As `ask` does.
        """
        # Without this parameter it would be the older rename, which moves into a folder.
        options = {"destination": to, "renameoptions": "OVERWRITE" if overwrite else "NONE"}
        answer, response = self._asked("PUT", "RENAME", path, options)
        if answer.meaning is not Meaning.DONE:
            self._fail(answer, to if answer.meaning is Meaning.EXISTS else path)
        if is_refused_rename(response.content):
            if not overwrite:
                raise FileExistsError(errno.EEXIST, "there is a file already", to)
            raise OSError(
                errno.EREMOTEIO,
                f"{self._name} can't replace a file by a rename: it answers as HttpFS does; "
                "the HTTP address of a NameNode is needed",
                to,
            )

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a file's content, or a part of it.

        Raises:
            FileNotFoundError: When the file doesn't exist.
            OSError: As `ask` does.
            StoreUnavailableError: As `ask` does, or when no DataNode answers.
        """
        part = {} if length is None else {"length": length}
        if start:
            part["offset"] = start

        return self._transferred(
            "GET", "OPEN", path, part, lambda url: self._session().get(url, **_TIMES)
        )

    def write(self, path: str, content: bytes, *, named: str = "") -> None:
        """Write a file, over one that may be there; others see how it grows.

        Each block is on the disks of its DataNodes when this returns (Hadoop's `SYNC_BLOCK`).

        Args:
            named: The path that errors name, if it isn't that one.

        Raises:
            OSError: As `ask` does.
            StoreUnavailableError: As `ask` does, or when no DataNode answers.
        """
        wanted = {"overwrite": "true", "createflag": "CREATE,OVERWRITE,SYNC_BLOCK"}
        headers = {"Content-Type": "application/octet-stream"}

        def put(url: str) -> Response:
            return self._session().put(url, data=content, headers=headers, **_TIMES)

        self._transferred("PUT", "CREATE", path, wanted, put, named=named)

    def _transferred(
        self,
        method: str,
        operation: str,
        path: str,
        parameters: dict[str, Any],
        transfer: Callable[[str], Response],
        *,
        named: str = "",
    ) -> bytes:
        """Ask a NameNode for a content's address, and transfer it; return the response."""
        from requests import RequestException

        named = named or path
        silent: list[str] = []
        for _ in range(_DATANODES):
            excluded = {"excludedatanodes": ",".join(silent)} if silent else {}
            answer, response = self._asked(method, operation, path, {**parameters, **excluded})
            if answer.meaning is Meaning.NO_DATANODE and silent:
                break
            if answer.meaning is not Meaning.ELSEWHERE:
                self._fail(answer, named)
            url = response.headers["Location"]
            STORE_REQUESTS[threading.get_ident()] = time.monotonic()
            try:
                got = transfer(url)
                content = got.content
                # urllib3 1 doesn't compare them.
                is_whole = len(content) == int(got.headers.get("Content-Length", len(content)))
            except RequestException:
                is_whole = False
            finally:
                STORE_REQUESTS.pop(threading.get_ident())
            if is_whole:
                answer = meaning_of(got.status_code, content[:_ERROR_BYTES])
                if answer.meaning is Meaning.DONE:
                    return content
                self._fail(answer, named)
            silent.append(urlsplit(url).hostname or "")
        done = "read" if method == "GET" else "written"
        raise StoreUnavailableError(
            f"{self._name}{named} can't be {done}: its DataNode at {urlsplit(url).netloc} doesn't "
            "answer; check that it is running, and that this machine reaches the HTTP addresses of "
            "all DataNodes"
        )

    def _asked(
        self, method: str, operation: str, path: str, parameters: dict[str, Any]
    ) -> tuple[HdfsAnswer, Response]:
        """Ask the NameNodes one after the other until the one that is in charge answers."""
        from requests import RequestException

        wanted = {"op": operation, **parameters, **self._who}
        for rounds in range(1, 100):
            seen: list[str] = []
            is_in_standby = False
            for name_node in list(self._name_nodes):
                url = f"{name_node}/webhdfs/v1{quote(path or '/', safe='/')}"
                STORE_REQUESTS[threading.get_ident()] = time.monotonic()
                try:
                    response = self._session().request(
                        method, url, params=wanted, allow_redirects=False, **_TIMES
                    )
                except RequestException as error:
                    seen.append(f"{name_node} {_why(error)}")
                    continue
                finally:
                    STORE_REQUESTS.pop(threading.get_ident())
                answer = meaning_of(response.status_code, response.content[:_ERROR_BYTES])
                if answer.meaning is not Meaning.STANDBY:
                    self._prefer(name_node)
                    return answer, response
                is_starting = "startup mode" in answer.said
                seen.append(f"{name_node} is {'starting' if is_starting else 'in standby'}")
                is_in_standby = True
            pause = pause_after(rounds, is_in_standby=is_in_standby)
            if pause is None:
                break
            self._wait(pause)
        raise StoreUnavailableError(
            f"no NameNode of {self._name} answers: {'; '.join(seen)}. Check that one is active, "
            "that this machine reaches its HTTP address, and that HADOOP_CONF_DIR, if the address "
            "isn't the usual one or has a nameservice, is set to a folder with core-site.xml and "
            "hdfs-site.xml"
        )

    def _prefer(self, name_node: str) -> None:
        with self._lock:
            if self._name_nodes[0] != name_node:
                self._name_nodes.remove(name_node)
                self._name_nodes.insert(0, name_node)

    def _fail(self, answer: HdfsAnswer, path: str) -> NoReturn:
        if answer.meaning is Meaning.MISSING:
            raise FileNotFoundError(errno.ENOENT, answer.said, f"{self._name}{path}")
        if answer.meaning is Meaning.EXISTS:
            raise FileExistsError(errno.EEXIST, answer.said, f"{self._name}{path}")
        if answer.meaning is Meaning.DENIED:
            raise PermissionError(errno.EACCES, answer.said, f"{self._name}{path}")
        if answer.meaning is Meaning.FULL:
            raise OSError(errno.EDQUOT, answer.said, f"{self._name}{path}")
        if remedy := _REMEDIES.get(answer.meaning):
            raise StoreUnavailableError(f"{self._name}{path}: {remedy} ({answer.said})")
        raise OSError(errno.EREMOTEIO, answer.said or answer.meaning.value, f"{self._name}{path}")

    def _session(self) -> Session:
        """Return the connections of this process: a fork may not use those of its parent."""
        with self._lock:
            session = self._sessions.get(os.getpid())
            if session is None:
                self._sessions = {os.getpid(): (session := self._opened())}
            return session

    def _opened(self) -> Session:
        from requests import Session
        from requests.adapters import HTTPAdapter

        session = Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
        # Otherwise a length can't be compared.
        session.headers["Accept-Encoding"] = "identity"
        if self._is_kerberized:
            session.auth = _kerberos()
        return session


_TIMES: Any = {"timeout": (_CONNECT_SECONDS, _READ_SECONDS)}


def _kerberos() -> Any:
    try:
        from requests_kerberos import OPTIONAL, HTTPKerberosAuth
    except ImportError as error:
        raise MachineError(
            "HADOOP_CONF_DIR says that its HDFS wants Kerberos, which needs the Python package "
            f"requests-kerberos ({error}); install kafka-drain[kerberos]"
        ) from error
    return HTTPKerberosAuth(mutual_authentication=OPTIONAL)


def _why(error: Exception) -> str:
    """Return why there was no answer; not in the exception's words, which have a URL."""
    from requests import ConnectTimeout, Timeout
    from requests.exceptions import SSLError

    if isinstance(error, SSLError):
        return "has no certificate that is trusted here (REQUESTS_CA_BUNDLE)"
    if isinstance(error, ConnectTimeout):
        return f"can't be connected to within {_CONNECT_SECONDS:g} s"
    if isinstance(error, Timeout):
        return f"doesn't answer within {_READ_SECONDS:g} s"
    text = str(error)
    if "Name or service not known" in text or "name resolution" in text or "resolve" in text:
        return "has a host that isn't known here"
    return "refuses connections" if "refused" in text else "closes the connection"
