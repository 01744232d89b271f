"""A Maven repository: reached through logins, proxies and own authorities, and not trusted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.output import heard_by
from kafka_drain.progress import Ticker, read_progress_line
from kafka_drain.spark.jars import maven
from tests.maven_server import MavenServer, locked, maven_server
from tests.security.certificates import Certificates

ONE, THREE = "g/one/1/one-1.jar", "org/three/3/three-3.jar"
FILES = {ONE: b"one", THREE: b"the third"}
JARS = locked(FILES)
LOGIN = "reader:s3cr3t"
#: What a machine may say of its network, which isn't this test's.
OF_THE_MACHINE = """
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE SSL_CERT_FILE KAFKA_DRAIN_MAVEN_URL
""".split()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OF_THE_MACHINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no netrc"))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    with maven_server() as running:
        running.files |= FILES
        monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", running.url)
        yield running


def download(into: Path) -> list[str]:
    lines: list[str] = []
    into.mkdir(exist_ok=True)
    with heard_by(lines.append):
        maven.download(JARS, into, "some jars")
    return lines


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_download_all(repository: MavenServer, tmp_path: Path) -> None:
    """Each jar has its own name and bytes; the first and last lines say how much there is."""
    first, last = map(read_progress_line, download(tmp_path / "jars"))

    assert (tmp_path / "jars" / "one-1.jar").read_bytes() == b"one"
    assert (tmp_path / "jars" / "three-3.jar").read_bytes() == b"the third"
    assert names(tmp_path / "jars") == ["one-1.jar", "three-3.jar"]
    assert repository.asked == [f"/maven2/{ONE}", f"/maven2/{THREE}"]
    assert first is not None
    assert last is not None
    assert (first.what, first.done, last.done, last.total) == ("some jars", 0, 12, 12)
    assert last.unit == "bytes"


def test_download_progress(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On the way it says how many bytes have arrived, of all jars together."""
    monkeypatch.setattr(Ticker, "SECONDS", 0)

    seen = [at.done for line in download(tmp_path / "jars") if (at := read_progress_line(line))]

    assert seen == [0, 3, 12, 12]


def test_download_url_with_slash(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A slash at the end of the base URL changes nothing."""
    monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", f"{repository.url}/")

    download(tmp_path / "jars")

    assert repository.asked[0] == f"/maven2/{ONE}"


def test_download_interrupted(repository: MavenServer, tmp_path: Path) -> None:
    """A jar of which only a part arrives is asked for again."""
    repository.cuts = 2

    download(tmp_path / "jars")

    assert len(repository.asked) == 4
    assert names(tmp_path / "jars") == ["one-1.jar", "three-3.jar"]


def test_download_always_interrupted(repository: MavenServer, tmp_path: Path) -> None:
    """After three tries it is given up, and nothing of the jar is left."""
    repository.cuts = 9

    with pytest.raises(MachineError, match=r"doesn't respond .*IncompleteRead.* are kept"):
        download(tmp_path / "jars")
    assert len(repository.asked) == 3
    assert names(tmp_path / "jars") == []


def test_download_unwell_once(repository: MavenServer, tmp_path: Path) -> None:
    """A repository that fails for a moment is asked again."""
    repository.statuses = [503]

    download(tmp_path / "jars")

    assert len(repository.asked) == 3


def test_download_unwell(repository: MavenServer, tmp_path: Path) -> None:
    """A repository that goes on failing is asked three times, and for no other jar."""
    repository.statuses = [503] * 9

    with pytest.raises(MachineError, match=r"returned 503; try again .* KAFKA_DRAIN_MAVEN_URL"):
        download(tmp_path / "jars")
    assert repository.asked == [f"/maven2/{ONE}"] * 3


@pytest.mark.parametrize("status", [429, 503])
def test_download_retry_after(
    repository: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A repository that asks for an hour's patience doesn't hold up a drain for an hour."""
    slept: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", slept.append)
    repository.statuses, repository.retry_after = [status] * 9, "3600"

    with pytest.raises(MachineError, match=f"returned {status}"):
        download(tmp_path / "jars")

    assert len(slept) == 2
    assert max(slept) <= 30


def test_download_not_as_locked(repository: MavenServer, tmp_path: Path) -> None:
    """All jars that are missing or others are named at once; what is as locked is kept."""
    repository.files = {ONE: b"ONE"}
    other, four = "g/four/4/four-4.jar", "g/five/5/five-5.jar"
    repository.files |= {other: b"four", four: b"five and more"}
    jars = [*JARS, *locked({other: b"four", four: b"five"})]

    with pytest.raises(MachineError) as caught:
        maven.download(jars, tmp_path, "some jars")

    first, *lines, what_to_do = str(caught.value).splitlines()
    assert first == f"{repository.url} doesn't have the jars that jars.lock names:"
    seen = locked({ONE: b"ONE"})[0].sha256
    assert lines == [
        f"  one-1.jar has SHA-256 {seen}, expected {JARS[0].sha256}",
        f"  three-3.jar doesn't exist: 404 for {THREE}",
        "  five-5.jar has more bytes than the 4 expected",
    ]
    assert "set KAFKA_DRAIN_MAVEN_URL to another one" in what_to_do
    assert names(tmp_path) == ["four-4.jar"]


def test_download_login(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A login comes from the netrc file."""
    repository.login = LOGIN
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login reader password s3cr3t\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    download(tmp_path / "jars")

    assert names(tmp_path / "jars") == ["one-1.jar", "three-3.jar"]


def test_download_login_refused(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrong login is named with its place, and isn't shown."""
    repository.login = LOGIN
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login reader password wr0ng\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    with pytest.raises(MachineError, match=r"rejects the login \(401\).* ~/\.netrc") as caught:
        download(tmp_path / "jars")
    assert "wr0ng" not in str(caught.value)


def test_download_proxy(
    repository: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy is asked for the whole URL, where the variable names one."""
    monkeypatch.setenv("HTTP_PROXY", repository.url.removesuffix("/maven2"))
    monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", "http://maven.invalid/maven2")

    download(tmp_path / "jars")

    assert repository.asked[0] == f"http://maven.invalid/maven2/{ONE}"


@pytest.mark.parametrize("proxy", ["http://me:s3cr3t@[bad", "http://me:s3cr3t@127.0.0.1:1"])
def test_download_proxy_unusable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxy: str
) -> None:
    """What is wrong with a proxy is said without its password."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", "http://maven.invalid/maven2")

    with pytest.raises(MachineError, match="check the network and HTTPS_PROXY") as caught:
        download(tmp_path / "jars")
    assert "s3cr3t" not in str(caught.value)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def behind_tls(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MavenServer]:
    signed = certificates.sign("mirror")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(signed.certificate, signed.key)
    with maven_server(tls) as running:
        running.files |= FILES
        monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", running.url)
        yield running


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_download_own_authority(
    behind_tls: MavenServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
) -> None:
    """A company's own authority is trusted by each of the usual variables."""
    monkeypatch.setenv(variable, str(certificates.authority))

    download(tmp_path / "jars")

    assert names(tmp_path / "jars") == ["one-1.jar", "three-3.jar"]


def test_download_not_trusted(behind_tls: MavenServer, tmp_path: Path) -> None:
    """A certificate of an authority that nobody named is refused."""
    with pytest.raises(MachineError, match=r"isn't trusted .* REQUESTS_CA_BUNDLE"):
        download(tmp_path / "jars")
    assert behind_tls.asked == []


def test_download_no_ca_file(
    behind_tls: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file of certificates that isn't there is named, not taken for a full disk."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")

    with pytest.raises(MachineError, match=r"doesn't respond .*/nowhere/ca\.pem"):
        download(tmp_path / "jars")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("maven.example.com", "expected the base URL of a Maven repository"),
        ("ftp://maven.example.com", "expected the base URL of a Maven repository"),
        ("https://me:s3cr3t@maven.example.com", r"move it to ~/\.netrc"),
        ("https://me@maven.example.com", r"move it to ~/\.netrc"),
        ("me:s3cr3t@maven.example.com", "a login"),
    ],
)
def test_repository_url_refused(monkeypatch: pytest.MonkeyPatch, url: str, says: str) -> None:
    """What isn't a URL, or holds a login, is refused; a password isn't shown."""
    monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", url)

    with pytest.raises(ConfigError, match=says) as caught:
        maven.repository_url()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("value", [None, ""])
def test_repository_url_default(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Without the variable, or with an empty one, it is Maven Central, by HTTPS."""
    if value is not None:
        monkeypatch.setenv("KAFKA_DRAIN_MAVEN_URL", value)

    assert maven.repository_url().startswith("https://")
