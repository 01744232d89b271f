"""Requests to an HDFS, by servers that answer what a test says; the real one is in tests/stores.

Each answer is one that Hadoop 3.4.1 gives.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from requests import Response, Session, exceptions

from kafka_drain.errors import MachineError, StoreUnavailableError
from kafka_drain.progress import STORE_REQUESTS
from kafka_drain.storage.webhdfs import WebHdfs

#: What a server does: a status, a body and headers; None to close the connection without a word.
Reply = tuple[int, bytes, dict[str, str]] | None

STANDBY = "StandbyException"


def remote(exception: str, message: str = "why", status: int = 403) -> Reply:
    said = {"RemoteException": {"exception": exception, "message": message}}
    return status, json.dumps(said).encode(), {}


class Server:
    """A server that gives the answers of a list, and the last one for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = {name: values[0] for name, values in parse_qs(parts.query, True).items()}
                kind = self.headers.get("Content-Type", "")
                server.asked.append({"path": parts.path, "body": body, "type": kind, **query})
                replies = server.replies
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                if reply is None:
                    return
                status, content, headers = reply
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_DELETE = _any

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def operations(self) -> list[str]:
        return [each["op"] for each in self.asked]


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*replies: Reply) -> Server:
        started.append(Server(*replies))
        return started[-1]

    yield start
    for server in started:
        server.http.shutdown()
        server.http.server_close()


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def client(waited: list[float]) -> Iterator[Callable[..., WebHdfs]]:
    made: list[WebHdfs] = []

    def make(*servers: Server | str) -> WebHdfs:
        urls = [server if isinstance(server, str) else server.url for server in servers]
        made.append(WebHdfs("hdfs://ns", urls, "me", wait=waited.append))
        return made[-1]

    yield make
    for each in made:
        for session in each._sessions.values():
            session.close()


OK: Reply = (200, b'{"boolean":true}', {})
#: Where nothing listens.
NOWHERE = "http://127.0.0.1:9"


def to(server: Server, token: str = "") -> Reply:
    return 307, b"", {"Location": f"{server.url}/webhdfs/v1/a?op=X&delegation={token}"}


def test_ask(serve: Any, client: Any) -> None:
    """The user is named, the path is quoted, and the answer is parsed."""
    server = serve(OK)

    assert client(server).ask("PUT", "MKDIRS", "/a b/c+%=") == {"boolean": True}

    [asked] = server.asked
    assert asked["path"] == "/webhdfs/v1/a%20b/c%2B%25%3D"
    assert (asked["op"], asked["user.name"]) == ("MKDIRS", "me")


def test_ask_without_name(serve: Any) -> None:
    """Who has no name gives none; an answer may be empty."""
    server = serve((200, b"", {}))
    one = WebHdfs("hdfs://ns", [server.url], "")

    assert one.ask("PUT", "SETTIMES", "/a") is None

    assert "user.name" not in server.asked[0]
    one._session().close()


def test_ask_standby(serve: Any, client: Any, waited: list[float]) -> None:
    """The NameNode in charge is found, and asked first from then on."""
    standby, active = serve(remote(STANDBY)), serve(OK)
    one = client(NOWHERE, standby, active)

    for _ in range(3):
        one.ask("GET", "GETFILESTATUS", "/a")

    assert (len(standby.asked), len(active.asked), waited) == (1, 3, [])


def test_ask_failover(serve: Any, client: Any, waited: list[float]) -> None:
    """While none is in charge, all are asked again; then the one that has taken over answers."""
    first, second = serve(remote(STANDBY)), serve(remote(STANDBY), remote(STANDBY), OK)

    client(first, second).ask("GET", "GETFILESTATUS", "/a")

    assert waited == [0.5, 1.0]


def test_ask_starting(serve: Any, client: Any, waited: list[float]) -> None:
    """A NameNode that is starting isn't in charge: the other one is asked, and from then on first.

    Hadoop 3.4.1 answers so while it loads its image, which takes minutes.
    """
    said = remote("RetriableException", "Namenode is in startup mode")
    starting, active = serve(said), serve(OK)
    one = client(starting, active)

    for _ in range(3):
        one.ask("GET", "GETFILESTATUS", "/a")

    assert (len(starting.asked), len(active.asked), waited) == (1, 3, [])
    with pytest.raises(StoreUnavailableError, match=f"{starting.url} is starting"):
        client(starting).ask("GET", "GETFILESTATUS", "/a")


def test_ask_nobody(serve: Any, client: Any, waited: list[float]) -> None:
    """Each NameNode is named with what it said, and so is what may be wrong."""
    standby = serve(remote(STANDBY))

    with pytest.raises(StoreUnavailableError, match="HADOOP_CONF_DIR") as caught:
        client(NOWHERE, standby).ask("GET", "GETFILESTATUS", "/a")

    said = f"no NameNode of hdfs://ns answers: {NOWHERE} refuses connections; {standby.url} is in"
    assert str(caught.value).startswith(said)
    assert waited == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_ask_unreached(client: Any, waited: list[float]) -> None:
    """Where nothing listens, it is over sooner."""
    with pytest.raises(StoreUnavailableError, match="refuses connections"):
        client(NOWHERE).ask("GET", "GETFILESTATUS", "/a")

    assert waited == [0.5, 1.0, 2.0]


def test_ask_lost_answer(serve: Any, client: Any) -> None:
    """A connection that is closed without an answer is no answer."""
    server = serve(None, OK)

    assert client(server).ask("DELETE", "DELETE", "/a") == {"boolean": True}
    assert server.operations == ["DELETE", "DELETE"]


@pytest.mark.parametrize(
    ("reply", "error", "match"),
    [
        (remote("FileNotFoundException", "no /a", 404), FileNotFoundError, "no /a.*hdfs://ns/a"),
        (remote("FileAlreadyExistsException"), FileExistsError, "hdfs://ns/a"),
        (remote("AccessControlException", "user=me"), PermissionError, "user=me.*hdfs://ns/a"),
        (remote("DSQuotaExceededException"), OSError, r"Errno 122.*hdfs://ns/a"),
        (remote("IOException", "odd"), OSError, "Errno 121.*IOException: odd"),
        (remote("SafeModeException"), StoreUnavailableError, "hdfs://ns/a: .*is in safe mode"),
        ((503, b"", {}), OSError, "HTTP 503"),
        ((307, b"", {"Location": "x"}), OSError, "elsewhere"),
    ],
)
def test_ask_fails(
    serve: Any, client: Any, reply: Reply, error: type[Exception], match: str
) -> None:
    """What is wrong is told by type, with the server's own words."""
    with pytest.raises(error, match=match):
        client(serve(reply)).ask("GET", "GETFILESTATUS", "/a")


@pytest.mark.parametrize(("overwrite", "option"), [(False, "NONE"), (True, "OVERWRITE")])
def test_rename(serve: Any, client: Any, overwrite: bool, option: str) -> None:
    """The newer rename is asked for, which has no folder to move into."""
    server = serve((200, b"", {}))

    client(server).rename("/.a.tmp", "/a", overwrite=overwrite)

    [asked] = server.asked
    assert (asked["renameoptions"], asked["destination"]) == (option, "/a")


@pytest.mark.parametrize(
    ("reply", "overwrite", "error", "named"),
    [
        (remote("FileAlreadyExistsException"), False, FileExistsError, "hdfs://ns/a"),
        (remote("FileNotFoundException", status=404), False, FileNotFoundError, "hdfs://ns/.a.tmp"),
        ((200, b'{"boolean":false}', {}), False, FileExistsError, "/a"),
        ((200, b'{"boolean": false}', {}), True, OSError, "/a"),
    ],
)
def test_rename_refused(
    serve: Any, client: Any, reply: Reply, overwrite: bool, error: type[OSError], named: str
) -> None:
    """A rename that wasn't done is an error, also where a server says so without one."""
    with pytest.raises(error) as caught:
        client(serve(reply)).rename("/.a.tmp", "/a", overwrite=overwrite)

    assert (type(caught.value), caught.value.filename) == (error, named)


def test_read(serve: Any, client: Any) -> None:
    """The NameNode says where, a DataNode gives the content."""
    data = serve((200, b"content", {}))
    names = serve(to(data))
    one = client(names)

    assert one.read("/a") == b"content"
    assert one.read("/a", 3, 4) == b"content"

    whole, part = names.asked
    assert not {"offset", "length"} & whole.keys()
    assert (part["offset"], part["length"]) == ("3", "4")


@pytest.mark.parametrize("reply", [None, (200, b"con", {"Content-Length": "7"})])
def test_read_another_node(serve: Any, client: Any, reply: Reply) -> None:
    """A DataNode that doesn't answer, or stops half way, is left out the next time."""
    silent, data = serve(reply), serve((200, b"content", {}))
    names = serve(to(silent), to(data))

    assert client(names).read("/a") == b"content"
    assert [each.get("excludedatanodes") for each in names.asked] == [None, "127.0.0.1"]


def test_read_no_node(serve: Any, client: Any) -> None:
    """Nothing that is shown has the token with which a DataNode is asked."""
    names = serve(to(serve(None), token="secret"))

    with pytest.raises(StoreUnavailableError, match=r"its DataNode at 127\.0\.0\.1") as caught:
        client(names).read("/a")

    assert len(names.asked) == 3
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_read_none_left(serve: Any, client: Any) -> None:
    """When the NameNode has no other DataNode, the one that didn't answer is named."""
    names = serve(to(serve(None)), remote("IOException", "Failed to find datanode"))

    with pytest.raises(StoreUnavailableError, match=r"its DataNode at 127\.0\.0\.1"):
        client(names).read("/a")


def test_read_all_gone(serve: Any, client: Any) -> None:
    """A NameNode without DataNodes says so itself."""
    with pytest.raises(StoreUnavailableError, match="check that its DataNodes are running"):
        client(serve(remote("IOException", "Failed to find datanode"))).read("/a")


def test_read_replaced(serve: Any, client: Any) -> None:
    """A file that went away between the two requests is missing."""
    data = serve(remote("FileNotFoundException", status=404))

    with pytest.raises(FileNotFoundError):
        client(serve(to(data))).read("/a")


def test_write(serve: Any, client: Any) -> None:
    """The content goes to a DataNode, which writes it to its disk before it answers."""
    data = serve((201, b"", {}))
    names = serve(to(data))

    client(names).write("/a", b"content")

    [asked] = names.asked
    assert asked["body"] == b""
    assert "SYNC_BLOCK" in asked["createflag"]
    assert asked["overwrite"] == "true"
    assert (data.asked[0]["body"], data.asked[0]["type"]) == (
        b"content",
        "application/octet-stream",
    )


def test_requests_end(serve: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request waits for ever: neither for a connection, nor for the next byte."""
    asked = list[tuple[str, object]]()
    send = Session.request

    def noting(session: Session, method: str, url: str, **options: Any) -> Response:
        # Who waits for it is told if it takes long.
        assert [*STORE_REQUESTS] == [threading.get_ident()]
        asked.append((method, options.get("timeout")))
        return send(session, method, url, **options)

    monkeypatch.setattr(Session, "request", noting)
    one = client(serve(to(serve((200, b"content", {})))))

    one.read("/a")
    one.write("/a", b"content")

    assert [method for method, _ in asked] == ["GET", "GET", "PUT", "PUT"]
    assert {timeout for _, timeout in asked} == {(10.0, 60.0)}
    assert STORE_REQUESTS == {}


def test_write_refused(serve: Any, client: Any) -> None:
    """An error names the file that is meant, not the one beside it."""
    full = remote("IOException", "File /.a could only be written to 0 of the 1")

    with pytest.raises(StoreUnavailableError, match=r"^hdfs://ns/a: check that its DataNodes"):
        client(serve(to(serve(full)))).write("/.a.tmp", b"content", named="/a")
    with pytest.raises(StoreUnavailableError, match=r"^hdfs://ns/\.a\.tmp: check"):
        client(serve(to(serve(full)))).write("/.a.tmp", b"content")


def test_session_of_process(serve: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork opens connections of its own."""
    one = client(serve(OK))
    mine = one._session()
    assert one._session() is mine
    monkeypatch.setattr(os, "getpid", lambda: 1)

    assert one._session() is not mine
    mine.close()


def test_kerberos_without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that is missing is named, before anything is asked."""
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)

    with pytest.raises(MachineError, match=r"requests-kerberos.*kafka-drain\[kerberos\]"):
        WebHdfs("hdfs://ns", ["http://n:1"], "me", is_kerberized=True)


def test_kerberos(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Kerberos, its ticket says who asks."""

    class Package:
        OPTIONAL = 2

        class HTTPKerberosAuth:
            def __init__(self, mutual_authentication: int) -> None:
                assert mutual_authentication == Package.OPTIONAL

            def __call__(self, request: Any) -> Any:
                request.headers["Authorization"] = "Negotiate ticket"
                return request

    monkeypatch.setitem(sys.modules, "requests_kerberos", Package)
    server = serve(OK)
    one = WebHdfs("hdfs://ns", [server.url], "me", is_kerberized=True)

    one.ask("GET", "GETFILESTATUS", "/a")

    assert "user.name" not in server.asked[0]
    one._session().close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (exceptions.SSLError("certificate"), "has no certificate that is trusted here"),
        (exceptions.ConnectTimeout("u"), "can't be connected to within 10 s"),
        (exceptions.ReadTimeout("u"), "doesn't answer within 60 s"),
        (exceptions.ConnectionError("[Errno -2] Name or service not known"), "isn't known here"),
        (exceptions.ConnectionError("Temporary failure in name resolution"), "isn't known here"),
        (exceptions.ConnectionError("Failed to resolve 'n'"), "isn't known here"),
        (exceptions.ConnectionError("[Errno 111] Connection refused"), "refuses connections"),
        (exceptions.ChunkedEncodingError("http://n/?delegation=s3cret"), "closes the connection"),
    ],
)
def test_ask_silent(error: Exception, why: str, client: Any) -> None:
    """Why there is no answer is told in our words: those of `requests` have a URL, or a token."""
    one = client("http://n:1")

    def request(*_: Any, **__: Any) -> None:
        raise error

    one._session().request = request

    with pytest.raises(StoreUnavailableError, match=f"http://n:1 .*{why}") as caught:
        one.ask("GET", "GETFILESTATUS", "/a")

    assert "s3cret" not in str(caught.value)
