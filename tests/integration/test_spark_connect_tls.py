"""A Spark Connect server behind a proxy that ends TLS and asks for a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.security.certificates import Certificates
from tests.spark_connect import Server, assert_exact, command_lines, start_client
from tests.tls_proxy import tls_proxy

pytestmark = [pytest.mark.integration, pytest.mark.connect]

TOKEN = "s3cret-of-the-proxy"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of one's own."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def proxy(server: Server, certificates: Certificates) -> Iterator[str]:
    """The proxy's address."""
    with tls_proxy(server.port, certificates.sign("connect"), TOKEN) as port:
        yield f"sc://127.0.0.1:{port}/;use_ssl=true"


def test_drain_through_proxy(
    proxy: str,
    server: Server,
    certificates: Certificates,
    topic: str,
    tmp_path: Path,
    bootstrap_servers: str,
    cluster: Any,
) -> None:
    """A drain with a token through TLS is exact, and the token is in no output and no command."""
    archive = tmp_path / "archive"
    started = start_client(
        tmp_path,
        *("drain", archive, "--topic", topic, "--bootstrap-servers", bootstrap_servers),
        *("--master", proxy),
        **{TOKEN_VARIABLE: TOKEN, ROOTS_VARIABLE: str(certificates.authority)},
    )

    seen = []
    while started.process.poll() is None:
        seen += command_lines()

    started.end()
    assert_exact(archive, cluster)
    assert any(b"main.py" in line for line in seen)
    assert not [line for line in seen if TOKEN.encode() in line]
    assert TOKEN not in started.said() + started.result() + server.said()
    assert not [
        path
        for path in archive.rglob("*")
        if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("token", "trusts", "says"),
    [
        ("wr0ng-t0ken", True, rf"refuses the token; set \${TOKEN_VARIABLE}"),
        ("", True, "refuses the token"),
        (TOKEN, False, f"doesn't have a trusted certificate; name a PEM file .* {ROOTS_VARIABLE}"),
    ],
    ids=["wrong-token", "no-token", "untrusted"],
)
def test_drain_refused(
    token: str,
    trusts: bool,
    says: str,
    proxy: str,
    certificates: Certificates,
    topic: str,
    tmp_path: Path,
    bootstrap_servers: str,
) -> None:
    """A wrong token and a certificate that isn't trusted are said at once, without the token."""
    started = start_client(
        tmp_path,
        *("drain", tmp_path / "archive", "--topic", topic),
        *("--bootstrap-servers", bootstrap_servers, "--master", proxy),
        **({TOKEN_VARIABLE: token} if token else {}),
        **({ROOTS_VARIABLE: str(certificates.authority)} if trusts else {}),
    )

    started.seconds_until_it_says(says)

    started.end(2)
    assert not token or token not in started.said() + started.result()


def test_drain_without_tls(
    server: Server, topic: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    """A token for a server without TLS is refused, and the message says what it needs."""
    started = start_client(
        tmp_path,
        *("drain", tmp_path / "archive", "--topic", topic, "--master", server.master),
        *("--bootstrap-servers", bootstrap_servers),
        **{TOKEN_VARIABLE: TOKEN},
    )

    started.end(2)
    assert "doesn't speak TLS, which use_ssl and a token need" in started.said()
    assert TOKEN not in started.said()
